"""Vector instructions that numba does not give by itself: sums that stay in registers over a whole loop.

Each builds a function for numba's code from LLVM's vectors. Arrays may have any distance between rows; numbers in a row
are next to each other, and a row may be read and written to the end of its last vector (:func:`padded`).
"""

import numba
from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import intrinsic

LANES = (
    16 if binding.get_host_cpu_features().get("avx512f") else 8
)  # numbers in a vector
SAMPLES, VECTORS = (
    5,
    2,
)  # of a block: with what they are multiplied by, its sums fit the registers of any processor
HOW = {
    "fastmath": {"contract"},
    "error_model": "numpy",
    "cache": True,
}  # multiply and add in one instruction
_INDEX = numba.types.intp


def padded(numbers: int, vectors: int = VECTORS) -> int:
    """Return the length of a row of so many numbers in whole blocks of so many vectors."""
    return -(-numbers // (vectors * LANES)) * vectors * LANES


class _Code:
    """LLVM's instructions on arrays that are arguments of an intrinsic."""

    def __init__(self, context, builder, signature, values) -> None:
        self.context, self.builder, self.types, self.values = (
            context,
            builder,
            signature.args,
            values,
        )
        number = context.get_value_type(signature.args[0].dtype)
        self.vector, self.align = (
            ir.VectorType(number, LANES),
            signature.args[0].dtype.bitwidth // 8,
        )

    def place(self, argument: int, row, column, vector: bool = True):
        """Point to ``[row, column]`` of a matrix, or to that entry of a flat array if ``row`` is None."""
        b, array = self.builder, self.context.make_array(self.types[argument])
        made = array(self.context, b, self.values[argument])
        if row is not None:
            stride = b.sdiv(
                cgutils.unpack_tuple(b, made.strides)[0], column.type(self.align)
            )
            column = b.add(b.mul(row, stride), column)
        pointer = b.gep(made.data, [column])
        return b.bitcast(pointer, self.vector.as_pointer()) if vector else pointer

    def spread(self, number):
        """Return a vector of equal numbers."""
        lane, b = ir.IntType(32), self.builder
        first = b.insert_element(
            ir.Constant(self.vector, ir.Undefined), number, lane(0)
        )
        return b.shuffle_vector(
            first, first, ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
        )

    def load(self, pointer):
        return self.builder.load(pointer, align=self.align)

    def store(self, vector, pointer) -> None:
        self.builder.store(vector, pointer, align=self.align)

    def add_product(self, to, one, other):
        product = self.builder.fmul(one, other, flags=("contract",))
        return self.builder.fadd(to, product, flags=("contract",))


@intrinsic
def add_scaled(typing, target, i, scale, source, j):
    """``target[i : i + LANES] += scale * source[j : j + LANES]`` of flat arrays, which may be one."""

    def emit(*call):
        code, (_, i, scale, _, j) = _Code(*call), call[3]
        to = code.place(0, None, i)
        code.store(
            code.add_product(
                code.load(to), code.spread(scale), code.load(code.place(3, None, j))
            ),
            to,
        )
        return call[0].get_dummy_value()

    return numba.types.void(target, _INDEX, target.dtype, source, _INDEX), emit


@intrinsic
def number(typing, source, i):
    """``source[i]`` of a flat array; where that holds 16 bits, they are a bfloat16, the upper half of a float32."""
    short = isinstance(source.dtype, numba.types.Integer)

    def emit(*call):
        code, b = _Code(*call), call[1]
        got = b.load(code.place(0, None, call[3][1], vector=False))
        whole = ir.IntType(32)
        return (
            b.bitcast(b.shl(b.zext(got, whole), whole(16)), ir.FloatType())
            if short
            else got
        )

    return (numba.float32 if short else source.dtype)(source, _INDEX), emit


@intrinsic
def add_rows(typing, target, i, vectors, source, j, places, scales, begin, end):
    """``target[i : i + n] += scales[k] * source[j + places[k] : j + places[k] + n]`` for k from ``begin`` to ``end``.

    Arrays are flat; n numbers are as many ``vectors``, a constant.
    """
    if not isinstance(vectors, numba.types.IntegerLiteral):
        return None  # numba asks again, with the constant

    def emit(*call):
        code, b, (_, i, _, _, j, _, _, *rest) = _Code(*call), call[1], call[3]
        parts = [i.type(k * LANES) for k in range(vectors.literal_value)]
        to = [code.place(0, None, b.add(i, part)) for part in parts]
        sums = [cgutils.alloca_once_value(b, code.load(place)) for place in to]
        with cgutils.for_range_slice(b, *rest, i.type(1)) as (k, _):
            place = b.add(
                j, b.sext(b.load(code.place(5, None, k, vector=False)), i.type)
            )
            scale = code.spread(b.load(code.place(6, None, k, vector=False)))
            for part, total in zip(parts, sums, strict=True):
                row = code.load(code.place(3, None, b.add(place, part)))
                b.store(code.add_product(b.load(total), scale, row), total)
        for place, total in zip(to, sums, strict=True):
            code.store(b.load(total), place)
        return call[0].get_dummy_value()

    return numba.types.void(
        target, _INDEX, vectors, source, _INDEX, places, scales, _INDEX, _INDEX
    ), emit


def block(body, samples: int, vectors: int = VECTORS):
    """Return ``f(target, x, other, s, o, begin, end, keep, scale)`` of a ``body``: :func:`product` or :func:`update`.

    It takes so many rows from ``s`` on of the matrices with a row per sample, the columns of a block from ``o`` on of
    ``target`` and ``other``, and the weights and columns of ``x`` from ``begin`` to ``end``.
    """

    @intrinsic
    def run(typing, target, x, other, s, o, begin, end, keep, scale):
        def emit(*call):
            code, (_, _, _, s, o, *rest) = _Code(*call), call[3]
            rows = [call[1].add(s, s.type(k)) for k in range(samples)]
            body(
                code,
                rows,
                [call[1].add(o, o.type(k * LANES)) for k in range(vectors)],
                *rest,
            )
            return call[0].get_dummy_value()

        return numba.types.void(
            target, x, other, *[_INDEX] * 4, target.dtype, target.dtype
        ), emit

    return run


def product(code: _Code, rows: list, columns: list, begin, end, keep, scale) -> None:
    """``target += x @ other``: sums of a block in registers, over a range of weights."""
    b = code.builder
    places = [[code.place(0, row, o) for o in columns] for row in rows]
    sums = [
        [cgutils.alloca_once_value(b, code.load(place)) for place in line]
        for line in places
    ]
    with cgutils.for_range_slice(b, begin, end, begin.type(1)) as (i, _):
        weights = [code.load(code.place(2, i, o)) for o in columns]
        for row, line in zip(rows, sums, strict=True):
            value = code.spread(b.load(code.place(1, row, i, vector=False)))
            for total, weight in zip(line, weights, strict=True):
                b.store(code.add_product(b.load(total), value, weight), total)
    for line, totals in zip(places, sums, strict=True):
        for place, total in zip(line, totals, strict=True):
            code.store(b.load(total), place)


def update(code: _Code, rows: list, columns: list, begin, end, keep, scale) -> None:
    """``target = keep * target + scale * x.T @ other``: a block of ``other`` in registers, over a range of weights."""
    b, keep, scale = code.builder, code.spread(keep), code.spread(scale)
    others = [
        [b.fmul(scale, code.load(code.place(2, row, o))) for o in columns]
        for row in rows
    ]
    with cgutils.for_range_slice(b, begin, end, begin.type(1)) as (i, _):
        places = [code.place(0, i, o) for o in columns]
        sums = [b.fmul(keep, code.load(place)) for place in places]
        for row, line in zip(rows, others, strict=True):
            value = code.spread(b.load(code.place(1, row, i, vector=False)))
            sums = [
                code.add_product(total, value, other)
                for total, other in zip(sums, line, strict=True)
            ]
        for place, total in zip(places, sums, strict=True):
            code.store(total, place)
