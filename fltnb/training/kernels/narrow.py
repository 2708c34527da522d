"""Convolution, 2x2 max pooling and ReLU in one step, for networks with few channels.

Libraries fill a vector with channels: with 6 or 16 of them, as in LeNet, most of it is
unused. Here a vector holds neighbouring pixels in the forward pass, and a row of
weights in the backward pass, where only the maxima of the pooling, a quarter of the
pixels, have a gradient. Measurements: docs/engine.md.

Images have channels last. An image (height, width, channels) is convolved with
``outputs`` kernels (size, size, channels); h and w are the height and width of the
result of the pooling. Sizes are constants of a compiled kernel, so that LLVM can
unroll its loops and make vectors of them.

In flat memory channel c of the pixel in line y and column x of image b is at::

    ((b * height + y) * width + x) * channels + c

A row of weights, line y of the kernel of output o, lies as the pixels do that it meets:
``rows[o, y, t * channels + c]`` is the weight of channel c of the pixel in column t. So
a row of weights meets a row of pixels number by number. Of 3 colours and 5 columns
these are 15 numbers, r g b r g b and so on, filled up with zeros to 16.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numba

from .vectors import HOW, LANES, add_scaled, padded

TAPS = 5  # weights in a row that one sweep over the pixels takes


class Kernels(NamedTuple):
    """The compiled functions for one shape, and the sizes of their arguments.

    Attributes
    ----------
    forward, backward : callable
    height, width : int
        Of the pooled images.
    row : int
        Numbers in a row of weights, filled up to whole vectors.
    sweep : int
        Numbers of an image in one channel of the output before the pooling, filled up
        in the same way.
    """

    forward: Callable
    backward: Callable
    height: int
    width: int
    row: int
    sweep: int


@cache
def make(channels: int, outputs: int, height: int, width: int, size: int) -> Kernels:
    """Return the kernels for ``size`` x ``size`` weights.

    There is no padding; ``size`` is at most TAPS, the number of ``outputs`` even. Of
    28 x 28 pixels 5 x 5 weights leave 24 x 24, and the pooling 12 x 12.
    """
    h = (height - size + 1) // 2
    w = (width - size + 1) // 2
    row = padded(TAPS * channels, 1)
    # Outputs before the pooling stand where the first pixel of their window stands, so
    # lines keep the width of the image. In one of 28 x 28 pixels the last window of 5 x
    # 5 begins at pixel 23 * 28 + 23: there are 668 places, some never read.
    last_line = height - size
    last_in_line = width - size
    sweep = padded(last_line * width + last_in_line + 1, 1)
    sizes = (channels, outputs, height * width, width, size, h, w)
    return Kernels(
        forward=_forward(*sizes, sweep),
        backward=_backward(*sizes, row),
        height=h,
        width=w,
        row=row,
        sweep=sweep,
    )


def _forward(channels, outputs, pixels, width, size, h, w, sweep) -> Callable:
    @numba.njit(**HOW)
    def forward(x, planes, sums, rows, bias, out, winners):
        """Fill ``out`` with activations, and ``winners`` with where they come from.

        Output o before the pooling is at place p, which is line p // width and column
        p % width of the image, the sum over channels c, rows y and columns t of the
        kernel::

            sums[p] = bias[o] + sum of rows[o, y, t * channels + c]
                                       * planes[c, p + y * width + t]

        A sweep adds the TAPS products of one channel and row to all places, also to
        those at the end of a line, where a window would reach into the next one: the
        pooling never reads them.

        Parameters
        ----------
        x : array, flat (b * height * width * channels,)
            Images.
        planes : array, shape (channels, sweep + TAPS * width)
            Working memory: the channels of one image, one by one.
        sums : array, shape (2, sweep)
            Working memory: two outputs of one image before the pooling.
        rows : array, shape (outputs, size, row)
            Weights. Of each row ``size`` pixels with channels last, then zeros.
        bias : array, shape (outputs,)
        out : array, shape (b, h, w, outputs)
        winners : array of int32, shape (b, h, w, outputs)
            Pixel of the image where the winning output's window begins.
        """
        first = sums[0]  # before the pooling, of output o
        second = sums[1]  # and of output o + 1
        zero = bias.dtype.type(0)
        for b in range(len(out)):
            # One plane a channel: a sweep then reads neighbouring pixels as a vector.
            image = x[b * pixels * channels :]
            for p in range(pixels):
                for c in range(channels):
                    planes[c, p] = image[p * channels + c]

            # Two outputs at a time: a pixel that is read serves both.
            for o in range(0, outputs, 2):
                first[:] = bias[o]
                second[:] = bias[o + 1]
                for c in range(channels):
                    for y in range(size):
                        # One row of TAPS weights sweeps over all pixels. Where the
                        # kernel is narrower the last weights are zeros. They are
                        # written out, since one sweep for each weight would read and
                        # write the sums five times.
                        plane = planes[c, y * width :]
                        u = rows[o, y, c:]
                        v = rows[o + 1, y, c:]
                        u0 = u[0]
                        u1 = u[channels]
                        u2 = u[2 * channels]
                        u3 = u[3 * channels]
                        u4 = u[4 * channels]
                        v0 = v[0]
                        v1 = v[channels]
                        v2 = v[2 * channels]
                        v3 = v[3 * channels]
                        v4 = v[4 * channels]
                        for p in range(sweep):
                            x0 = plane[p]
                            x1 = plane[p + 1]
                            x2 = plane[p + 2]
                            x3 = plane[p + 3]
                            x4 = plane[p + 4]
                            first[p] += u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3 + u4 * x4
                            second[p] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3 + v4 * x4

                # Pooling: the best of each 2 x 2 pixels. Of equal ones the first wins.
                for k in range(2):
                    raw = sums[k]
                    for i in range(h):
                        for j in range(w):
                            corner = 2 * (i * width + j)  # place of the first one
                            winner = corner
                            best = raw[winner]
                            for step in (1, width, width + 1):
                                if raw[corner + step] > best:
                                    winner = corner + step
                                    best = raw[winner]
                            out[b, i, j, o + k] = zero if best < 0 else best
                            winners[b, i, j, o + k] = winner

    return forward


def _backward(channels, outputs, pixels, width, size, h, w, row) -> Callable:
    @numba.njit(**HOW)
    def backward(d, x, out, winners, rows, d_rows, d_bias, d_x):
        """Fill ``d_rows``, ``d_bias`` and ``d_x``, sums over all images of a batch.

        The winner of a window has met ``size`` rows of pixels, one below the other.
        With the gradient ``scale`` of its output, a row of weights gets ``scale`` times
        its row of pixels, and these pixels get ``scale`` times the weights. Both are
        added in whole vectors, of which the last may reach past the window: there the
        weights are zeros, so these pixels get nothing. The gradients of these weights
        do get something, and are set to zero in the end.

        Parameters
        ----------
        d : array, shape (b, h, w, outputs)
            Gradient of ``out``.
        x : array, flat (b * height * width * channels,)
            Images, with ``row`` numbers to spare behind the last one.
        out, winners : arrays, shape (b, h, w, outputs)
            As :func:`forward` left them.
        rows, d_rows : arrays, flat (outputs * size * row,)
            Weights and their gradient.
        d_bias : array, shape (outputs,)
        d_x : array, flat
            Gradient of ``x``, with as much to spare. An empty one is left alone.
        """
        d_rows[:] = 0
        d_bias[:] = 0
        d_x[:] = 0
        for b in range(len(d)):
            for i in range(h):
                for j in range(w):
                    for o in range(outputs):
                        if out[b, i, j, o] <= 0:  # ReLU; NaN goes on
                            continue
                        scale = d[b, i, j, o]
                        d_bias[o] += scale
                        # `window`, `line`: places in the flat images; `taps` in rows.
                        # Only the winner's window of pixels has met these weights.
                        window = (b * pixels + winners[b, i, j, o]) * channels
                        for y in range(size):
                            taps = (o * size + y) * row
                            line = window + y * width * channels
                            for part in range(0, row, LANES):
                                add_scaled(d_rows, taps + part, scale, x, line + part)
                                if len(d_x):
                                    add_scaled(
                                        d_x, line + part, scale, rows, taps + part
                                    )
        # What fills the rows up has met pixels outside the window.
        for taps in range(0, len(d_rows), row):
            d_rows[taps + size * channels : taps + row] = 0

    return backward
