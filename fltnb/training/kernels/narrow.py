"""Convolution, 2x2 max pooling and ReLU in one step, for networks with few channels.

Libraries fill a vector with channels: with 6 or 16 of them, as in LeNet, most of it
idles. Here a vector holds neighbouring pixels on the way forward, and a row of weights
on the way back, where only the winners of the pooling, a quarter of the pixels, have a
gradient at all. Measured: docs/engine.md.

Arrays are flat, and images have channels last, unless their shape is given.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numba

from .vectors import HOW, LANES, add_scaled, padded

TAPS = 5  # weights in a row that one sweep over the pixels takes


class Kernels(NamedTuple):
    """The compiled functions for one shape, and the sizes of their arguments."""

    forward: Callable
    backward: Callable
    height: int  # of the pooled images
    width: int
    row: int  # numbers in a row of weights, filled up
    sweep: int  # numbers in an image before the pooling, filled up


@cache
def make(channels: int, outputs: int, height: int, width: int, size: int) -> Kernels:
    """Return the kernels for ``size`` x ``size`` weights.

    There is no padding; ``size`` is at most TAPS, the number of ``outputs`` even.
    """
    h = (height - size + 1) // 2
    w = (width - size + 1) // 2
    row = padded(TAPS * channels, 1)
    sweep = padded((height - size) * width + width - size + 1, 1)
    forward = _forward(channels, outputs, height, width, size, sweep)
    backward = _backward(channels, outputs, height, width, size, row)
    return Kernels(forward, backward, h, w, row, sweep)


def _forward(channels, outputs, height, width, size, sweep) -> Callable:
    h = (height - size + 1) // 2
    w = (width - size + 1) // 2

    @numba.njit(**HOW)
    def forward(x, planes, sums, rows, bias, out, winners):
        """Fill ``out`` and ``winners``: activations, and where each window's best is.

        ``planes`` (channels, sweep + TAPS * width) and ``sums`` (2, sweep) are memory
        for one image: its channels one by one, and two outputs before the pooling.
        ``rows`` (outputs, size, row): of each row of weights ``size`` pixels with
        channels last, then zeros.
        """
        first, second = sums[0], sums[1]
        for b in range(len(winners) // (outputs * h * w)):
            for p in range(height * width):
                for c in range(channels):
                    planes[c, p] = x[(b * height * width + p) * channels + c]
            for o in range(0, outputs, 2):
                first[:] = bias[o]
                second[:] = bias[o + 1]
                for c in range(channels):
                    for y in range(size):
                        plane = planes[c, y * width :]
                        u = rows[o, y, c:]
                        v = rows[o + 1, y, c:]
                        u0, u1, u2 = u[0], u[channels], u[2 * channels]
                        u3, u4 = u[3 * channels], u[4 * channels]
                        v0, v1, v2 = v[0], v[channels], v[2 * channels]
                        v3, v4 = v[3 * channels], v[4 * channels]
                        for p in range(sweep):
                            x0, x1, x2 = plane[p], plane[p + 1], plane[p + 2]
                            x3, x4 = plane[p + 3], plane[p + 4]
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

    return forward


def _backward(channels, outputs, height, width, size, row) -> Callable:
    h = (height - size + 1) // 2
    w = (width - size + 1) // 2

    @numba.njit(**HOW)
    def backward(d, x, out, winners, rows, d_rows, d_bias, d_x):
        """Fill ``d_rows``, ``d_bias`` and ``d_x`` from ``d``, the gradient of ``out``.

        ``x`` and ``d_x`` have ``row`` numbers to spare at the end. An empty ``d_x`` is
        left alone.
        """
        d_rows[:] = 0
        d_bias[:] = 0
        d_x[:] = 0
        for k in range(len(d)):
            if out[k] <= 0:  # ReLU; NaN goes on
                continue
            b = k // (outputs * h * w)
            o = k % outputs
            d_bias[o] += d[k]
            at = (b * height * width + winners[k]) * channels
            for y in range(size):
                taps = (o * size + y) * row
                pixels = at + y * width * channels
                for part in range(0, row, LANES):
                    add_scaled(d_rows, taps + part, d[k], x, pixels + part)
                    if len(d_x):
                        add_scaled(d_x, pixels + part, d[k], rows, taps + part)
        for taps in range(0, len(d_rows), row):
            d_rows[taps + size * channels : taps + row] = 0

    return backward
