"""Convolution, 2x2 max pooling and ReLU in one step, for networks with few channels such as LeNet.

Libraries fill a vector with channels: with 6 or 16 of them most of it idles. Here a vector holds neighbouring pixels on
the way forward, and a row of weights on the way back, where only the winners of the pooling, a quarter of the pixels,
have a gradient at all. Measured: docs/engine.md.
"""

from functools import cache

import numba

from .vectors import HOW, LANES, add_scaled, padded

TAPS = 5  # weights in a row that one sweep over the pixels takes


@cache
def make(channels: int, outputs: int, height: int, width: int, size: int) -> tuple:
    """Return ``forward`` and ``backward`` for ``size`` x ``size`` weights, and h x w, n and m of their arguments.

    ``rows`` (outputs, size, n): weights, a row of ``size`` pixels with channels last, then zeros. At most TAPS pixels
    in a row, an even number of outputs, no padding.
    """
    wide = height - size + 1, width - size + 1
    h, w, n = wide[0] // 2, wide[1] // 2, padded(TAPS * channels, 1)
    sweep = padded((wide[0] - 1) * width + wide[1], 1)

    @numba.njit(**HOW)
    def forward(x, planes, sums, rows, bias, out, winners):
        """Fill ``out`` and ``winners``, flat: activations, and the pixel where the window of each begins.

        ``x`` and ``out`` have channels last; ``planes`` (channels, m + TAPS * width) and ``sums`` (2, m) are for one
        image: its channels one by one, two outputs before the pooling.
        """
        first, second = sums[0], sums[1]
        for b in range(len(winners) // (outputs * h * w)):
            for p in range(height * width):
                for c in range(channels):
                    planes[c, p] = x[(b * height * width + p) * channels + c]
            for o in range(0, outputs, 2):
                first[:], second[:] = bias[o], bias[o + 1]
                for c in range(channels):
                    for y in range(size):
                        plane, one, two = (
                            planes[c, y * width :],
                            rows[o, y, c:],
                            rows[o + 1, y, c:],
                        )
                        u0, u1, u2 = one[0], one[channels], one[2 * channels]
                        v0, v1, v2 = two[0], two[channels], two[2 * channels]
                        u3, u4, v3, v4 = (
                            one[3 * channels],
                            one[4 * channels],
                            two[3 * channels],
                            two[4 * channels],
                        )
                        for p in range(sweep):
                            x0, x1, x2, x3, x4 = (
                                plane[p],
                                plane[p + 1],
                                plane[p + 2],
                                plane[p + 3],
                                plane[p + 4],
                            )
                            first[p] += u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3 + u4 * x4
                            second[p] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3 + v4 * x4
                for k in range(2):
                    for i in range(h):
                        for j in range(w):
                            at = 2 * (i * width + j)
                            best, winner = sums[k, at], at
                            if sums[k, at + 1] > best:
                                best, winner = sums[k, at + 1], at + 1
                            if sums[k, at + width] > best:
                                best, winner = sums[k, at + width], at + width
                            if sums[k, at + width + 1] > best:
                                best, winner = sums[k, at + width + 1], at + width + 1
                            place = ((b * h + i) * w + j) * outputs + o + k
                            out[place] = bias.dtype.type(0) if best < 0 else best
                            winners[place] = winner

    @numba.njit(**HOW)
    def backward(d, x, out, winners, rows, d_rows, d_bias, below, d_x):
        """Fill ``d_rows``, ``d_bias`` and, if ``below``, ``d_x`` from ``d``, the gradient of ``out``; all flat.

        ``x`` and ``d_x`` have channels last, with n numbers to spare at the end.
        """
        d_rows[:], d_bias[:] = 0, 0
        if below:
            d_x[:] = 0
        for k in range(len(d)):
            if out[k] <= 0:  # ReLU; NaN goes on
                continue
            b, o = k // (outputs * h * w), k % outputs
            d_bias[o] += d[k]
            at = (b * height * width + winners[k]) * channels
            for y in range(size):
                row, pixels = (o * size + y) * n, at + y * width * channels
                for part in range(0, n, LANES):
                    add_scaled(d_rows, row + part, d[k], x, pixels + part)
                    if below:
                        add_scaled(d_x, pixels + part, d[k], rows, row + part)
        for row in range(0, len(d_rows), n):
            d_rows[row + size * channels : row + n] = 0

    return forward, backward, (h, w), n, sweep
