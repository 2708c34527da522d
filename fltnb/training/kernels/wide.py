"""2x2 pooling with ReLU, and the backward pass of it and of a wide convolution.

Wide means many input channels. Only the maxima of the pooling have a gradient: a
quarter of the pixels, and fewer after ReLU. A library multiplies the zeros, too. Here
the maxima are listed, and every gradient is a sum of rows, one per entry of a list. In
bfloat16 torch is still faster (``spread``). Measurements: docs/engine.md.

An image (height, width, channels) is convolved with ``outputs`` kernels (size, size,
channels). This gives (down, across) pixels, and (h, w) after the pooling. LANES divides
the number of channels. Sizes are known when a kernel is compiled, as in :mod:`.narrow`.

Where images, weights and their gradients are flat, numbers lie in this order, the last
one side by side::

    images, d_x        image, line, column, channel
    raw                image, line, column, output
    d_weight           output, line of the kernel, column of the kernel, channel
    taps               line of the kernel, column of the kernel, output, channel

So with 2 outputs and 16 channels, the weights of output 1 at line 0 and column 1 of a
5 x 5 kernel begin at (1 * 5 + 0) * 80 + 1 * 16 in ``d_weight``, as a line has 80
numbers, and at ((0 * 5 + 1) * 2 + 1) * 16 in ``taps``.

The lists are in the order of the loops that fill them, and sums follow the lists: this
order decides the last digits.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numba
import numpy as np

from .vectors import HOW, LANES, add_rows, number

# A winner is the place 0 to 3 of a window's pixels, or means that ReLU cut it.
#     0 1    A pixel's place p is in line p >> 1 and column p & 1 of its window: 2 is
#     2 3    below the first one.
CUT = 4
MOST = 12  # vectors that are summed at once in registers


class Kernels(NamedTuple):
    """The compiled functions for one shape.

    Attributes
    ----------
    pool, spread, weight_gradients, input_gradients : callable
    height, width : int
        Of the pooled images.
    """

    pool: Callable
    spread: Callable
    weight_gradients: Callable
    input_gradients: Callable
    height: int
    width: int


@cache
def make(
    channels: int, outputs: int, height: int, width: int, size: int, padding: int
) -> Kernels:
    """Return the kernels for ``size`` x ``size`` weights.

    A padding of 2 pixels on each side and 5 x 5 weights keep 12 x 12 pixels, of which
    the pooling leaves 6 x 6.
    """
    down = height + 2 * padding - size + 1
    across = width + 2 * padding - size + 1
    sizes = (channels, outputs, height, width, size, padding, down, across)
    return Kernels(
        pool=_pool(outputs, down, across),
        spread=_spread(outputs, down, across),
        weight_gradients=_weight_gradients(*sizes),
        input_gradients=_input_gradients(*sizes),
        height=down // 2,
        width=across // 2,
    )


def _pool(outputs, down, across) -> Callable:
    h = down // 2
    w = across // 2

    @numba.njit(**HOW)
    def pool(raw, out, winners):
        """Pool what a convolution gives, and set to 0 what is negative.

        Parameters
        ----------
        raw : array, flat (b * down * across * outputs,)
            The convolution's outputs, channels last; 16 bits are a bfloat16.
        out : array, shape (b, outputs, h, w)
            Activations, filled.
        winners : array of uint8, shape (b, h, w, outputs)
            Which of its window's pixels an activation is, or CUT; filled.
        """
        best = np.empty((w, outputs), out.dtype)  # a line of the pooled image
        zero = out.dtype.type(0)
        for b in range(len(out)):
            for i in range(h):
                for j in range(w):
                    at = ((b * down + 2 * i) * across + 2 * j) * outputs
                    upper = raw[at:]  # begins at the window's first pixel
                    lower = raw[at + across * outputs :]  # and at the one below it
                    winner = winners[b, i, j]
                    most = best[j]
                    # The window's four pixels of each output, side by side in memory:
                    # choices without branches make vectors of the loop.
                    for o in range(outputs):
                        value = number(upper, o)
                        second = number(upper, o + outputs)
                        third = number(lower, o)
                        last = number(lower, o + outputs)
                        place = np.int32(1) if second > value else np.int32(0)
                        value = second if second > value else value
                        place = np.int32(2) if third > value else place
                        value = third if third > value else value
                        place = np.int32(3) if last > value else place
                        value = last if last > value else value
                        place = np.int32(CUT) if value <= 0 else place  # NaN goes on
                        winner[o] = np.uint8(place)
                        most[o] = zero if value < 0 else value

                # Outputs were last; the next layer wants them before the pixels.
                for o in range(outputs):
                    for j in range(w):
                        out[b, o, i, j] = best[j, o]

    return pool


def _spread(outputs, down, across) -> Callable:
    h = down // 2
    w = across // 2

    @numba.njit(**HOW)
    def spread(d, winners, out):
        """Take a gradient back through the pooling.

        Parameters
        ----------
        d : array, shape (b, h, w, outputs)
            Gradient of what was pooled.
        winners : array, shape (b, h, w, outputs)
            As :func:`pool` left them.
        out : array, shape (b, down, across, outputs)
            Gradient before the pooling, filled where there are windows. A last line or
            column that belongs to no window stays as it is.
        """
        for b in range(len(d)):
            for i in range(h):
                for j in range(w):
                    own = d[b, i, j]
                    won = winners[b, i, j]
                    for place in range(CUT):
                        line = 2 * i + (place >> 1)
                        column = 2 * j + (place & 1)
                        to = out[b, line, column]
                        for o in range(outputs):
                            to[o] = own[o] if won[o] == place else 0

    return spread


def _vectors(numbers: int) -> int:
    """Return the number of vectors of a row of sums: a divisor, at most MOST.

    320 numbers are 20 vectors of 16 lanes, which are summed 10 at a time. It is a
    divisor, so that no vector is left over at the row's end.
    """
    whole = numbers // LANES
    for count in range(MOST, 1, -1):
        if whole % count == 0:
            return count
    return 1


def _weight_gradients(
    channels, outputs, height, width, size, padding, down, across
) -> Callable:
    line = width + 2 * padding  # pixels in a line of a padded image
    lines = height + 2 * padding
    h = down // 2
    w = across // 2
    row = size * channels
    vectors = _vectors(row)

    @numba.njit(**HOW)
    def weight_gradients(d, winners, x, d_weight, d_bias):
        """Fill the gradients of weights and bias, sums over all images of a batch.

        A winner at pixel (y, z) before the pooling has met the ``size`` x ``size``
        pixels of the padded image from (y, z) on. So the gradient of output o's weights
        is the sum of these windows, each times its winner's gradient; that of the bias
        is the sum of the gradients alone::

            d_weight[o, k, l] = sum over winners of d[o] * image[y + k, z + l]

        The winners of one line of windows are listed, then added up row by row.

        Parameters
        ----------
        d : array, shape (b, outputs, h, w)
            Gradient of what was pooled.
        winners : array, shape (b, h, w, outputs)
            As :func:`pool` left them.
        x : array, flat (b * height * width * channels,)
            Images, channels last.
        d_weight : array, flat (outputs * size * size * channels,)
        d_bias : array, shape (outputs,)
        """
        # one image with its padding
        image = np.zeros(lines * line * channels, d.dtype)
        # the winners of a line of one output: where their windows begin in the image,
        # and their gradients
        places = np.empty(w + 1, np.int32)
        values = np.empty(w + 1, d.dtype)
        zero = d.dtype.type(0)
        d_weight[:] = 0
        d_bias[:] = 0
        for b in range(len(d)):
            # Copy the image inside its padding, which stays zero.
            for r in range(height):
                begin = ((r + padding) * line + padding) * channels
                inner = image[begin : begin + width * channels]
                pixels = x[(b * height + r) * width * channels :]
                for p in range(width * channels):
                    inner[p] = number(pixels, p)

            for i in range(h):
                for o in range(outputs):
                    n = np.uintp(0)
                    total = zero
                    own = d[b, o, i]
                    for j in range(w):
                        winner = np.intp(winners[b, i, j, o])
                        y = 2 * i + (winner >> 1)
                        z = 2 * j + (winner & 1)
                        # Written in any case; the list only grows by a winner. So
                        # there is no branch that is taken or not as if by chance.
                        places[n] = (y * line + z) * channels
                        values[n] = own[j]
                        total += own[j] if winner < CUT else zero
                        n += np.uintp(winner < CUT)
                    d_bias[o] += total

                    # A row of weights gets the sum of the windows' rows, each times
                    # its gradient. Row k of a window begins k lines below it, so all
                    # places of the list move by `source`.
                    listed = places[:n]
                    scales = values[:n]
                    for k in range(size):
                        target = (o * size + k) * row
                        source = k * line * channels
                        for part in range(0, row, vectors * LANES):
                            to = target + part
                            at = source + part
                            add_rows(d_weight, to, vectors, image, at, listed, scales)

    return weight_gradients


def _input_gradients(
    channels, outputs, height, width, size, padding, down, across
) -> Callable:
    h = down // 2
    w = across // 2
    vectors = _vectors(channels)

    @numba.njit(**HOW)
    def input_gradients(d, winners, taps, d_x):
        """Fill the gradient of the images.

        In the forward pass the weight in line k and column l of a kernel leads from
        pixel (r, c) of the image to pixel (r - y, c - z) before the pooling, where y is
        k - padding and z is l - padding. So this is the backward pass, for every
        channel::

            d_x[r, c] = sum over (k, l), and over the outputs o that won
                        pixel (r - y, c - z), of d[o] * taps[k, l, o]

        The outputs that won a pixel are listed once, for all weights. With 3 outputs
        and winners 1, CUT and 1 in the first window, pixel 1 has the list of outputs 0
        and 2, and the window's other three pixels have empty lists.

        Parameters
        ----------
        d : array, shape (b, outputs, h, w)
            Gradient of what was pooled.
        winners : array, shape (b, h, w, outputs)
            As :func:`pool` left them.
        taps : array, flat (size * size * outputs * channels,)
            Weights.
        d_x : array, flat (b * height * width * channels,)
        """
        # A list for every pixel before the pooling: where the weights of its outputs
        # begin, and their gradients. That of pixel p begins at p * outputs, as it has
        # room for all of them, and ends before end[p].
        places = np.empty(down * across * outputs + 1, np.int32)
        values = np.empty(down * across * outputs + 1, d.dtype)
        end = np.zeros(down * across, np.intp)
        d_x[:] = 0
        for b in range(len(d)):
            for i in range(h):
                for j in range(w):
                    # The window's four pixels, and where their lists grow.
                    own = d[b, :, i, j]
                    won = winners[b, i, j]
                    pixel = 2 * (i * across + j)
                    below = pixel + across
                    # Unsigned: of a signed place numba tests whether it is negative.
                    at_0 = np.uintp(pixel * outputs)
                    at_1 = at_0 + np.uintp(outputs)
                    at_2 = np.uintp(below * outputs)
                    at_3 = at_2 + np.uintp(outputs)
                    # Written into all four lists; only the winner's grows.
                    for o in range(outputs):
                        tap = o * channels
                        value = own[o]
                        places[at_0] = places[at_1] = tap
                        places[at_2] = places[at_3] = tap
                        values[at_0] = values[at_1] = value
                        values[at_2] = values[at_3] = value
                        at_0 += np.uintp(won[o] == 0)
                        at_1 += np.uintp(won[o] == 1)
                        at_2 += np.uintp(won[o] == 2)
                        at_3 += np.uintp(won[o] == 3)
                    end[pixel] = at_0
                    end[pixel + 1] = at_1
                    end[below] = at_2
                    end[below + 1] = at_3

            # A weight carries the gradients of a pixel before the pooling to the
            # image's pixel that is (y, z) further, if the image has it.
            for weight in range(size * size):
                y = weight // size - padding
                z = weight % size - padding
                for r in range(max(0, y), min(height, y + 2 * h)):
                    for c in range(max(0, z), min(width, z + 2 * w)):
                        pixel = (r - y) * across + c - z  # before the pooling
                        listed = places[pixel * outputs : end[pixel]]
                        scales = values[pixel * outputs : end[pixel]]
                        target = ((b * height + r) * width + c) * channels
                        for part in range(0, channels, vectors * LANES):
                            to = target + part
                            at = weight * outputs * channels + part
                            add_rows(d_x, to, vectors, taps, at, listed, scales)

    return input_gradients
