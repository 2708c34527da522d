"""2x2 pooling with ReLU, and the way back through it and a convolution that many channels enter.

Only the winners of the pooling have a gradient: a quarter of the pixels, and fewer where ReLU cuts. A library
multiplies the zeros, too. Here winners are listed, and every gradient is a sum of rows, one for each in a list.
In bfloat16 torch is the faster one all the same (``spread``). Measured: docs/engine.md.
"""

from functools import cache

import numba
import numpy as np

from .vectors import HOW, LANES, add_rows, number

CUT = 4  # by ReLU; otherwise 0 to 3, the place of a window's winner
MOST = 12  # vectors that are summed at once in registers


@cache
def make(
    channels: int, outputs: int, height: int, width: int, size: int, padding: int
) -> tuple:
    """Return ``pool``, ``spread`` and ``backward`` for ``size`` x ``size`` weights, and h, w after the pooling.

    LANES divides ``channels``. All arrays are flat; images have channels last unless their shape says otherwise.
    """
    line, lines = width + 2 * padding, height + 2 * padding
    across, down = line - size + 1, lines - size + 1
    h, w, row = down // 2, across // 2, size * channels
    many, few = (
        max(n for n in range(1, MOST + 1) if long // LANES % n == 0)
        for long in (row, channels)
    )

    @numba.njit(**HOW)
    def pool(raw, out, winners):
        """Fill ``out`` (b, outputs, h, w) and ``winners`` (b, h, w, outputs) from a convolution's outputs."""
        best, zero = np.empty((w, outputs), out.dtype), out.dtype.type(0)
        for b in range(len(out) // (outputs * h * w)):
            for i in range(h):
                for j in range(w):
                    at, to = (
                        ((b * down + 2 * i) * across + 2 * j) * outputs,
                        ((b * h + i) * w + j) * outputs,
                    )
                    upper, lower = raw[at:], raw[at + across * outputs :]
                    winner, most = winners[to : to + outputs], best[j]
                    for o in range(outputs):
                        value, second = number(upper, o), number(upper, o + outputs)
                        third, last = number(lower, o), number(lower, o + outputs)
                        place = np.int32(1) if second > value else np.int32(0)
                        value = second if second > value else value
                        place = np.int32(2) if third > value else place
                        value = third if third > value else value
                        place = np.int32(3) if last > value else place
                        value = last if last > value else value
                        winner[o] = np.uint8(
                            np.int32(CUT) if value <= 0 else place
                        )  # NaN goes on
                        most[o] = zero if value < 0 else value
                for o in range(outputs):
                    for j in range(w):
                        out[((b * outputs + o) * h + i) * w + j] = best[j, o]

    @numba.njit(**HOW)
    def spread(d, winners, out):
        """Fill ``out`` (b, down, across, outputs) from the gradient ``d`` (b, h, w, outputs) of what was pooled."""
        for p in range(len(winners) // outputs):
            own, won = d[p * outputs :], winners[p * outputs :]
            for place in range(CUT):
                i, j = 2 * (p // w % h) + (place >> 1), 2 * (p % w) + (place & 1)
                to = out[((p // (h * w) * down + i) * across + j) * outputs :]
                for o in range(outputs):
                    to[o] = own[o] if won[o] == place else 0

    @numba.njit(**HOW)
    def backward(d, winners, x, taps, d_weight, d_bias, d_x):
        """Fill ``d_weight`` (outputs, size, size, channels), ``d_bias`` and ``d_x`` from the gradient ``d`` of ``out``.

        ``taps`` (size, size, outputs, channels) are the weights.
        """
        image = np.zeros(lines * line * channels, d.dtype)
        places, values = (
            np.empty(down * across * outputs + 1, np.int32),
            np.empty(down * across * outputs + 1, d.dtype),
        )
        end = np.zeros(down * across, np.intp)
        d_weight[:], d_bias[:] = 0, 0
        for b in range(len(d) // (outputs * h * w)):
            for r in range(height):
                begin, source = (
                    ((r + padding) * line + padding) * channels,
                    (b * height + r) * width * channels,
                )
                inner, pixels = (
                    image[begin : begin + width * channels],
                    x[source : source + width * channels],
                )
                for p in range(width * channels):
                    inner[p] = number(pixels, p)
            for i in range(h):
                for o in range(outputs):
                    n, own, total = (
                        np.uintp(0),
                        d[((b * outputs + o) * h + i) * w :],
                        d.dtype.type(0),
                    )
                    for j in range(w):
                        winner = np.intp(winners[((b * h + i) * w + j) * outputs + o])
                        places[n] = (
                            (2 * i + (winner >> 1)) * line + 2 * j + (winner & 1)
                        ) * channels
                        values[n] = own[j]
                        total += own[j] if winner < CUT else d.dtype.type(0)
                        n += np.uintp(winner < CUT)
                    d_bias[o] += total
                    for y in range(size):
                        for part in range(0, row, many * LANES):
                            to, source = (
                                (o * size + y) * row + part,
                                y * line * channels + part,
                            )
                            add_rows(
                                d_weight, to, many, image, source, places, values, 0, n
                            )
            for i in range(h):
                for j in range(w):
                    own, won = (
                        d[b * outputs * h * w + i * w + j :],
                        winners[((b * h + i) * w + j) * outputs :],
                    )
                    pixel = 2 * (i * across + j)
                    k, m = (
                        np.uintp(pixel * outputs),
                        np.uintp((pixel + across) * outputs),
                    )
                    n, p = k + np.uintp(outputs), m + np.uintp(outputs)
                    for o in range(
                        outputs
                    ):  # into all four lists; only the winner's grows
                        places[k] = places[n] = places[m] = places[p] = o * channels
                        values[k] = values[n] = values[m] = values[p] = own[o * h * w]
                        k += np.uintp(won[o] == 0)
                        n += np.uintp(won[o] == 1)
                        m += np.uintp(won[o] == 2)
                        p += np.uintp(won[o] == 3)
                    (
                        end[pixel],
                        end[pixel + 1],
                        end[pixel + across],
                        end[pixel + across + 1],
                    ) = k, n, m, p
            d_x[b * height * width * channels : (b + 1) * height * width * channels] = 0
            for tap in range(size * size):
                y, z = tap // size - padding, tap % size - padding
                for r in range(max(0, y), min(height, y + 2 * h)):
                    for c in range(max(0, z), min(width, z + 2 * w)):
                        pixel, to = (
                            (r - y) * across + c - z,
                            ((b * height + r) * width + c) * channels,
                        )
                        for part in range(0, channels, few * LANES):
                            source = tap * outputs * channels + part
                            add_rows(
                                d_x,
                                to + part,
                                few,
                                taps,
                                source,
                                places,
                                values,
                                pixel * outputs,
                                end[pixel],
                            )

    return pool, spread, backward, (h, w)
