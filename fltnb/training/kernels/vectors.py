"""Vector instructions that numba does not give: sums that stay in registers in a loop.

Each builds a function for numba's code from LLVM's vectors. Arrays may have any
distance between rows; numbers in a row are next to each other, and a row may be read
and written to the end of its last vector (:func:`padded`).

How such a function comes about: numba calls a function under ``@intrinsic`` once for
every combination of types. It returns the types of its arguments, and ``emit``, which
writes LLVM's instructions. So Python's loops in ``emit`` run once, when the code is
made, and are unrolled in it; a loop of the code itself is ``with code.range(end)``. The
docstrings here say what the code then does.

So ``emit`` handles two kinds of values. Numbers of Python are known now: of how many
rows and vectors a block is. Values of LLVM (``values``, and all that the methods of
:class:`_Code` return) stand for numbers that the code will have when it runs. Only
``builder`` can compute with these: ``builder.add(i, j)``, not ``i + j``.

A product is added in one instruction, which rounds once, and a sum keeps the order in
which it is written here.
"""

import numba
from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import intrinsic

# Numbers in a vector. For float64 LLVM takes two registers for each.
LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
# Size of a product's block: with what they are multiplied by, its sums fit into the
# registers. AVX-512 has 32 of them, other processors 16.
SAMPLES = 10 if LANES == 16 else 5
VECTORS = 2
# Samples in an update's block. How its sums are rounded depends on it (`update`), so it
# is the same on all processors.
UPDATED = 5
# "contract": multiply and add in one instruction
HOW = {"fastmath": {"contract"}, "error_model": "numpy", "cache": True}
_INDEX = numba.types.intp
_VOID = numba.types.void


def padded(numbers: int, vectors: int = VECTORS) -> int:
    """Return a row's length in whole blocks of vectors.

    With 16 lanes and blocks of two vectors, 200 numbers are filled up to 224.
    """
    block = vectors * LANES
    n_blocks = -(-numbers // block)  # rounded up
    return n_blocks * block


class _Code:
    """LLVM's instructions on arrays that are arguments of an intrinsic.

    An array is named by its place among the arguments. What methods take and return are
    values of LLVM: numbers, vectors of LANES numbers, and pointers to either.
    """

    def __init__(self, context, builder, signature, values) -> None:
        self.context = context
        self.builder = builder
        self.types = signature.args
        self.values = values
        number = signature.args[0].dtype
        self.vector = ir.VectorType(context.get_value_type(number), LANES)
        self.bytes = number.bitwidth // 8

    def array(self, argument: int):
        """Return numba's structure of an array."""
        structure = self.context.make_array(self.types[argument])
        return structure(self.context, self.builder, self.values[argument])

    def length(self, argument: int):
        """Return an array's first dimension."""
        shape = cgutils.unpack_tuple(self.builder, self.array(argument).shape)
        return shape[0]

    def number_at(self, argument: int, row, column):
        """Point to ``[row, column]`` of a matrix; row None: to that of a flat array.

        numba counts the distance between rows in bytes, LLVM's pointers in numbers:
        with 224 float32 in a row, which are 896 bytes, row 2 begins at number 448.
        """
        b = self.builder
        array = self.array(argument)
        if row is None:
            return b.gep(array.data, [column])
        strides = cgutils.unpack_tuple(b, array.strides)
        bytes_to_next_row = strides[0]
        numbers_to_next_row = b.sdiv(bytes_to_next_row, column.type(self.bytes))
        place = b.add(b.mul(row, numbers_to_next_row), column)
        return b.gep(array.data, [place])

    def vector_at(self, argument: int, row, column):
        """Point to the vector that begins there."""
        number = self.number_at(argument, row, column)
        return self.builder.bitcast(number, self.vector.as_pointer())

    def get(self, argument: int, row, column):
        """Return the number at ``[row, column]``."""
        return self.builder.load(self.number_at(argument, row, column))

    def load(self, pointer):
        """Return the vector at a pointer, which may be that of any number.

        Unless told its alignment, LLVM takes one for granted that only whole vectors
        have.
        """
        return self.builder.load(pointer, align=self.bytes)

    def load_at(self, argument: int, row, column):
        """Return the vector that begins at ``[row, column]``."""
        return self.load(self.vector_at(argument, row, column))

    def store(self, vector, pointer) -> None:
        """Write a vector where a pointer says."""
        self.builder.store(vector, pointer, align=self.bytes)

    def spread(self, number):
        """Return a vector of equal numbers: the first one, taken LANES times."""
        b = self.builder
        lane = ir.IntType(32)
        empty = ir.Constant(self.vector, ir.Undefined)
        first = b.insert_element(empty, number, lane(0))
        everywhere = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
        return b.shuffle_vector(first, first, everywhere)

    def add_product(self, to, one, other):
        """Return ``to + one * other`` of three vectors, in one instruction."""
        product = self.builder.fmul(one, other, flags=("contract",))
        return self.builder.fadd(to, product, flags=("contract",))

    def product_apart(self, one, other):
        """Return ``one * other``, rounded before anything is added to it.

        numba gives "contract" to instructions that have no flag of their own. This one
        has no effect on a product.
        """
        return self.builder.fmul(one, other, flags=("arcp",))

    def sums(self, places: list) -> list:
        """Return variables that hold the vectors at some places.

        They are memory of the function, which LLVM replaces by registers. A value of
        LLVM cannot change, and these change in each pass of a loop.
        """
        variables = []
        for place in places:
            vector = self.load(place)
            variables.append(cgutils.alloca_once_value(self.builder, vector))
        return variables

    def keep(self, sums: list, places: list) -> None:
        """Write variables to memory, where :meth:`sums` has them from."""
        for variable, place in zip(sums, places, strict=True):
            self.store(self.builder.load(variable), place)

    def add_to(self, variable, one, other) -> None:
        """Add a product to a variable."""
        b = self.builder
        b.store(self.add_product(b.load(variable), one, other), variable)

    def steps(self, index, count: int, length: int = LANES) -> list:
        """Return ``count`` indices at equal distances: where vectors begin.

        From 32 on three vectors of 16 lanes begin at 32, 48 and 64.
        """
        offsets = [index.type(k * length) for k in range(count)]
        return [self.builder.add(index, offset) for offset in offsets]

    def range(self, end):
        """Loop from 0 to ``end``, in a ``with`` statement."""
        return cgutils.for_range_slice(self.builder, end.type(0), end, end.type(1))


@intrinsic
def add_scaled(typing, target, i, scale, source, j):
    """``target[i : i + LANES] += scale * source[j : j + LANES]`` of flat arrays.

    These may be one.
    """

    def emit(context, builder, signature, values):
        code = _Code(context, builder, signature, values)
        _, i, scale, _, j = values
        to = code.vector_at(0, None, i)
        before = code.load(to)
        scale = code.spread(scale)
        added = code.load_at(3, None, j)
        code.store(code.add_product(before, scale, added), to)
        return context.get_dummy_value()

    return _VOID(target, _INDEX, target.dtype, source, _INDEX), emit


@intrinsic
def number(typing, source, i):
    """``source[i]`` of a flat array; 16 bits are a bfloat16.

    That is the upper half of a float32.
    """
    is_bfloat16 = isinstance(source.dtype, numba.types.Integer)

    def emit(context, builder, signature, values):
        code = _Code(context, builder, signature, values)
        got = code.get(0, None, values[1])
        if not is_bfloat16:
            return got
        whole = ir.IntType(32)
        bits = builder.shl(builder.zext(got, whole), whole(16))
        return builder.bitcast(bits, ir.FloatType())

    kind = source.dtype
    if is_bfloat16:
        kind = numba.float32
    return kind(source, _INDEX), emit


@intrinsic
def add_rows(typing, target, i, vectors, source, j, places, scales):
    """``target[i : i + n] += scales[k] * source[p : p + n]`` for all k.

    p is ``j + places[k]``. Arrays are flat; n numbers are as many ``vectors``, a
    constant. The sums stay in registers while all rows of ``source`` pass. With two
    vectors a compiled call is::

        sum_0 = target[i : i + LANES]
        sum_1 = target[i + LANES : i + 2 * LANES]
        for k in range(len(places)):
            p = j + places[k]
            sum_0 += scales[k] * source[p : p + LANES]
            sum_1 += scales[k] * source[p + LANES : p + 2 * LANES]
        target[i : i + LANES] = sum_0
        target[i + LANES : i + 2 * LANES] = sum_1
    """
    if not isinstance(vectors, numba.types.IntegerLiteral):
        return None  # numba asks again, with the constant
    count = vectors.literal_value

    def emit(context, builder, signature, values):
        code = _Code(context, builder, signature, values)
        _, i, _, _, j, _, _ = values
        # arguments: 0 target, 3 source, 5 places, 6 scales
        block = [code.vector_at(0, None, at) for at in code.steps(i, count)]
        sums = code.sums(block)
        with code.range(code.length(5)) as (k, _):
            offset = builder.sext(code.get(5, None, k), i.type)
            place = builder.add(j, offset)
            scale = code.spread(code.get(6, None, k))
            for total, at in zip(sums, code.steps(place, count), strict=True):
                added = code.load_at(3, None, at)
                code.add_to(total, scale, added)
        code.keep(sums, block)
        return context.get_dummy_value()

    taken = (target, _INDEX, vectors, source, _INDEX, places, scales)
    return _VOID(*taken), emit


def product(samples: int, vectors: int = VECTORS):
    """Return ``f(target, x, other, s, o)``: ``target += x @ other`` of a block.

    The block has so many rows, from ``s`` on, and so many vectors of columns, from
    ``o`` on. Its sums stay in registers while all rows of ``other`` pass. With 5 rows
    and 2 vectors these are 10 registers (20 with 10 rows); two more hold a row of
    ``other``, and one a number of ``x``. With 2 rows and 1 vector a compiled call is::

        columns = slice(o, o + LANES)
        sum_0 = target[s, columns]
        sum_1 = target[s + 1, columns]
        for i in range(len(other)):
            weight = other[i, columns]
            sum_0 += x[s, i] * weight
            sum_1 += x[s + 1, i] * weight
        target[s, columns] = sum_0
        target[s + 1, columns] = sum_1
    """

    @intrinsic
    def run(typing, target, x, other, s, o):
        def emit(context, builder, signature, values):
            code = _Code(context, builder, signature, values)
            _, _, _, s, o = values
            rows = code.steps(s, samples, length=1)
            columns = code.steps(o, vectors)
            # Places of the block's vectors row by row, and a variable for each sum.
            block = []
            for row in rows:
                for at in columns:
                    block.append(code.vector_at(0, row, at))
            sums = code.sums(block)
            with code.range(code.length(2)) as (i, _):
                # A vector of `other` is read once, and meets every sample's number.
                weights = [code.load_at(2, i, at) for at in columns]
                totals = iter(sums)  # row by row, as the two loops below
                for row in rows:
                    value = code.spread(code.get(1, row, i))
                    for weight in weights:
                        code.add_to(next(totals), value, weight)
            code.keep(sums, block)
            return context.get_dummy_value()

        return _VOID(target, x, other, _INDEX, _INDEX), emit

    return run


def update(samples: int, apart: bool = False):
    """Return ``f(target, x, other, s, o, keep, scale)``.

    It is ``target = keep * target + scale * x.T @ other`` for the rows of ``x`` and
    ``other`` from ``s`` on and the columns of a block from ``o`` on. The block of
    ``other`` stays in registers while all rows of ``target`` pass: the reverse of
    :func:`product`, whose target stays. A gradient of weights has many rows and few
    samples to sum over, so it is read and written once for each block of samples. With
    2 rows, and for one of the block's VECTORS vectors, a compiled call is::

        columns = slice(o, o + LANES)
        row_0 = scale * other[s, columns]
        row_1 = scale * other[s + 1, columns]
        for i in range(len(target)):
            product = x[s, i] * row_0
            total = keep * target[i, columns] + product
            total += x[s + 1, i] * row_1
            target[i, columns] = total

    A line that adds to ``total`` rounds once. So the product of the first row is
    rounded before it is added, and the others are not. With ``apart`` all are.
    """

    @intrinsic
    def run(typing, target, x, other, s, o, keep, scale):
        def emit(context, builder, signature, values):
            code = _Code(context, builder, signature, values)
            _, _, _, s, o, keep, scale = values
            keep = code.spread(keep)
            scale = code.spread(scale)
            rows = code.steps(s, samples, length=1)
            columns = code.steps(o, VECTORS)
            # the block of `other`, scaled: a line of vectors for each row
            block = []
            for row in rows:
                line = [code.load_at(2, row, at) for at in columns]
                block.append([builder.fmul(scale, vector) for vector in line])

            with code.range(code.length(0)) as (i, _):
                places = [code.vector_at(0, i, at) for at in columns]
                value = code.spread(code.get(1, rows[0], i))
                sums = []
                for vector, place in zip(block[0], places, strict=True):
                    first = code.product_apart(value, vector)
                    sums.append(code.add_product(first, keep, code.load(place)))
                for row, line in zip(rows[1:], block[1:], strict=True):
                    value = code.spread(code.get(1, row, i))
                    for k, vector in enumerate(line):
                        if apart:
                            product = code.product_apart(value, vector)
                            sums[k] = builder.fadd(sums[k], product)
                        else:
                            sums[k] = code.add_product(sums[k], value, vector)
                for total, place in zip(sums, places, strict=True):
                    code.store(total, place)
            return context.get_dummy_value()

        number = target.dtype
        return _VOID(target, x, other, _INDEX, _INDEX, number, number), emit

    return run
