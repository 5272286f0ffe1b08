"""Tensor intrinsics that tests use, as pairs of script functions."""

from __future__ import annotations

from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.tensor_intrin import TensorIntrin


def mma(m: int, n: int, k: int, order: str = "mnk", dtype: str = "float32") -> PrimFunc:
    """``C += A @ B`` with loops in this order."""
    names = ", ".join(order)
    extents = ", ".join(str({"m": m, "n": n, "k": k}[axis]) for axis in order)
    kinds = "".join("R" if axis == "k" else "S" for axis in order)
    axes = ", ".join(f"v{axis}" for axis in order)
    return parse(
        f"""
from tilewright.script import tir as T

@T.prim_func
def main(
    A: T.Buffer(({m}, {k}), "{dtype}"),
    B: T.Buffer(({k}, {n}), "{dtype}"),
    C: T.Buffer(({m}, {n}), "{dtype}"),
):
    with T.block("root"):
        T.reads(A[0:{m}, 0:{k}], B[0:{k}, 0:{n}], C[0:{m}, 0:{n}])
        T.writes(C[0:{m}, 0:{n}])
        for {names} in T.grid({extents}):
            with T.block("update"):
                {axes} = T.axis.remap("{kinds}", [{names}])
                C[vm, vn] = C[vm, vn] + A[vm, vk] * B[vk, vn]
"""
    )


def elementwise(text: str) -> PrimFunc:
    """A function of ``X`` and ``Y``, 16 floats each, with this body."""
    return parse(
        f"""
from tilewright.script import tir as T

@T.prim_func
def main(X: T.Buffer((16,), "float32"), Y: T.Buffer((16,), "float32")):
{text}
"""
    )


ADD_ONE = elementwise("""
    for i in range(16):
        with T.block("add"):
            vi = T.axis.spatial(16, i)
            Y[vi] = X[vi] + T.float32(1)
""")
ADD_ONE_VECTOR = elementwise("""
    Y[T.Ramp(0, 1, 16)] = X[T.Ramp(0, 1, 16)] + T.Broadcast(T.float32(1), 16)
""")


def register() -> None:
    """Register them all; once more does no harm."""
    if "add_one_16" in TensorIntrin.names():
        return
    TensorIntrin.register("add_one_16", ADD_ONE, ADD_ONE_VECTOR)
    TensorIntrin.register("test_mma_4x8x3", mma(4, 8, 3), mma(4, 8, 3, "knm"))
    TensorIntrin.register("test_mma_4x4x4", mma(4, 4, 4), mma(4, 4, 4, "kmn"))
    unused = elementwise("""
    for i in range(16):
        with T.block("add"):
            vi = T.axis.spatial(16, i)
            Y[vi] = T.float32(1)
""")
    TensorIntrin.register("test_unused", unused, unused)
    wrong = elementwise("""
    Y[T.Ramp(0, 1, 16)] = X[T.Ramp(0, 1, 16)] + T.Broadcast(T.float32(2), 16)
""")
    TensorIntrin.register("test_add_two", ADD_ONE, wrong)


register()
