"""Prefetches, and loads, stores and copies at raw addresses, for use in kernels.

Addresses point into Arrow buffers, whose owners the caller keeps alive.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE = ir.IntType(8).as_pointer()


@intrinsic
def prefetch(typingctx, array, index):
    """Prefetch ``array[index]`` into the CPU cache; a wrong index costs only time."""
    if not isinstance(array, types.Array) or array.ndim != 1:
        return None

    def codegen(context, builder, signature, args):
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        place = context.cast(builder, args[1], signature.args[1], types.intp)
        stride = builder.extract_value(struct.strides, 0)
        address = cgutils.pointer_add(builder, struct.data, builder.mul(place, stride))
        _prefetch(builder, builder.bitcast(address, _BYTE))
        return context.get_dummy_value()

    return types.void(array, index), codegen


@intrinsic
def prefetch_at(typingctx, address):
    """The same for an address, which need not be readable."""

    def codegen(context, builder, signature, args):
        _prefetch(builder, builder.inttoptr(args[0], _BYTE))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _prefetch(builder, pointer):
    word = ir.IntType(32)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [_BYTE], ir.FunctionType(ir.VoidType(), [_BYTE, word, word, word])
    )
    to_read, keep, data = word(0), word(3), word(1)
    builder.call(function, [pointer, to_read, keep, data])


@intrinsic
def copy_bytes(typingctx, target, at, source, start, count):
    """``target[at : at + count] = source[start : start + count]`` for bytes that do not overlap."""

    def codegen(context, builder, signature, args):
        def address(which, offset):
            struct = context.make_array(signature.args[which])(context, builder, args[which])
            place = context.cast(builder, args[offset], signature.args[offset], types.intp)
            return cgutils.pointer_add(builder, struct.data, place)

        length = context.cast(builder, args[4], signature.args[4], types.intp)
        cgutils.raw_memcpy(builder, address(0, 1), address(2, 3), length, 1)
        return context.get_dummy_value()

    return types.void(target, at, source, start, count), codegen


@intrinsic
def copy_from(typingctx, target, at, address, count):
    """``target[at : at + count] =`` the bytes at ``address``."""

    def codegen(context, builder, signature, args):
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        place = context.cast(builder, args[1], signature.args[1], types.intp)
        to = cgutils.pointer_add(builder, struct.data, place)
        start = builder.inttoptr(args[2], to.type)
        length = context.cast(builder, args[3], signature.args[3], types.intp)
        cgutils.raw_memcpy(builder, to, start, length, 1)
        return context.get_dummy_value()

    return types.void(target, at, types.int64, count), codegen


def _loader(bits, kind, value_type=None):
    loaded = value_type or ir.IntType(bits)

    @intrinsic
    def load(typingctx, address):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], loaded.as_pointer())
            value = builder.load(pointer)
            value.align = 1
            return value

        return kind(types.int64), codegen

    return load


load_int8 = _loader(8, types.int8)
load_uint8 = _loader(8, types.uint8)
load_int16 = _loader(16, types.int16)
load_uint16 = _loader(16, types.uint16)
load_int32 = _loader(32, types.int32)
load_uint32 = _loader(32, types.uint32)
load_int64 = _loader(64, types.int64)
load_uint64 = _loader(64, types.uint64)
load_float32 = _loader(32, types.float32, ir.FloatType())
load_float64 = _loader(64, types.float64, ir.DoubleType())


@intrinsic
def address_as_pointer(typingctx, address):
    """Cast the address of int64 values to a pointer, for ``numba.carray``."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), codegen


@intrinsic
def call_at(typingctx, function, argument):
    """Call the C function ``void function(void *)`` at an address."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_BYTE])
        called = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(called, [builder.inttoptr(args[1], _BYTE)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy_raw(typingctx, target, source, count):
    """Copy ``count`` bytes from one address to another; they must not overlap."""

    def codegen(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        to, start = builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte)
        length = context.cast(builder, args[2], signature.args[2], types.intp)
        cgutils.raw_memcpy(builder, to, start, length, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, count), codegen


def _storer(bits, kind):
    @intrinsic
    def store(typingctx, address, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            stored = builder.store(args[1], pointer)
            stored.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, kind), codegen

    return store


store_uint8 = _storer(8, types.uint8)
store_int32 = _storer(32, types.int32)
store_int64 = _storer(64, types.int64)
