"""Cases of fuse_reduction_epilogue."""

from __future__ import annotations

from conformance_cases import (
    Accept,
    Example,
    Program,
    Refuse,
    registered,
    script,
    with_epilogue,
)

from tilewright import te
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def symbolic_bias() -> PrimFunc:
    """A product of matrices with ``n`` rows, and a bias per column."""
    n = te.var("n")
    a = te.placeholder((n, 8), name="A")
    b = te.placeholder((8, 6), name="B")
    bias = te.placeholder((6,), name="bias")
    axis = te.reduce_axis((0, 8), "k")
    c = te.compute((n, 6), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((n, 6), lambda i, j: c[i, j] + bias[j], name="D")
    return te.create_prim_func([a, b, bias, d])


def _fuse_decomposed(sch: Schedule) -> None:
    block = sch.get_block("C")
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    sch.fuse_reduction_epilogue(block, "D")


def _fuse_averages(sch: Schedule) -> None:
    with registered("test_mean", lambda x, y: (x + y) * 0.5, lambda t: te.const(0, t), 1):
        _fuse(sch)


def fused(
    reading: str = "", first: str = "", tail: str = "", cover: str = "16", guard: str = "if True:"
) -> Program:
    """Row sums ``C`` and ``D = C + bias`` with something else somewhere."""
    return script(
        f"""
@T.prim_func
def main(
    A: T.Buffer((16, 32), "float32"),
    bias: T.Buffer((16,), "float32"),
    D: T.Buffer((16,), "float32"),
    E: T.Buffer((16,), "float32"),
):
    C = T.alloc_buffer((16,), "float32")
{first}
    for i, k in T.grid(16, 32):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
{reading}
    for i in range({cover}):
        {guard}
            with T.block("D"):
                vi = T.axis.spatial(16, i)
                D[vi] = C[vi] + bias[vi]
{tail}
"""
    )


averages = script("""
@T.prim_func
def main(
    A: T.Buffer((16, 32), "float32"),
    bias: T.Buffer((16,), "float32"),
    D: T.Buffer((16,), "float32"),
):
    C = T.alloc_buffer((16,), "float32")
    for i, k in T.grid(16, 32):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = (C[vi] + A[vi, vk]) * T.float32(0.5)
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = (C[vi] + bias[vi]) * T.float32(0.5)
""")


def copying(source: str, target: str, name: str) -> str:
    """A block that copies one row to another."""
    return f"""
    for i in range(16):
        with T.block("{name}"):
            vi = T.axis.spatial(16, i)
            {target}[vi] = {source}[vi]
"""


def _fuse(sch: Schedule) -> None:
    sch.fuse_reduction_epilogue("C", "D")


def _fuse_bound(sch: Schedule) -> None:
    sch.bind(sch.get_loops("C")[1], "threadIdx.x")
    _fuse(sch)


def _fuse_split(sch: Schedule) -> None:
    sch.split(sch.get_loops("C")[1], [None, 3])
    _fuse(sch)


def symbolic_relu() -> PrimFunc:
    """Sums of ``n`` elements, which may be none, and their positive parts."""
    n = te.var("n")
    a = te.placeholder((4, n), name="A")
    axis = te.reduce_axis((0, n), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, axis], axis=axis), name="C")
    d = te.compute((4,), lambda i: te.maximum(c[i], 0.0), name="D")
    return te.create_prim_func([a, d])


CASES = [
    Accept("fuse_reduction_epilogue", with_epilogue, _fuse),
    Accept("fuse_reduction_epilogue", lambda: with_epilogue("max", "max"), _fuse),
    Accept("fuse_reduction_epilogue", lambda: with_epilogue("relu", "max", "float32"), _fuse),
    Accept("fuse_reduction_epilogue", lambda: with_epilogue("relu"), _fuse),
    Accept("fuse_reduction_epilogue", lambda: with_epilogue("clip", dtype="float32"), _fuse),
    Accept("fuse_reduction_epilogue", symbolic_bias, _fuse, sizes=({"n": 5},)),
    Refuse(
        "fuse_reduction_epilogue",
        "in one scope",
        with_epilogue,
        lambda s: s.fuse_reduction_epilogue("D", "C"),
        "does not come after",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "around both blocks there are only loops",
        fused(guard="if i < 8:"),
        _fuse,
        "block 'D' is inside a IfThenElse",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "of one value by a registered reducer",
        with_epilogue,
        _fuse_decomposed,
        "not a reduction of one value",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "associative and commutative",
        averages,
        _fuse_averages,
        "identity is not neutral: for",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "one axis for each dimension",
        lambda: with_epilogue("shift"),
        _fuse,
        "one axis for each dimension",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "combines the result with another value",
        lambda: with_epilogue("wide"),
        _fuse,
        "which is 'C' in int64 instead of int32",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "loops of the reduction are serial and independent",
        lambda: with_epilogue("relu"),
        _fuse_bound,
        "there is no last iteration",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "no condition leaves out some",
        lambda: with_epilogue("relu"),
        _fuse_split,
        "a condition leaves out iterations",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "is known not to be empty",
        symbolic_relu,
        _fuse,
        "may be empty",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "of use to the epilogue only",
        fused(tail=copying("C", "E", "E")),
        _fuse,
        "block 'E' reads it too",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "runs for all elements",
        fused(cover="12"),
        _fuse,
        "not shown to run its whole domain",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "there before the reduction starts",
        fused(reading=copying("E", "bias", "late")),
        _fuse,
        "block 'late' writes 'bias'",
    ),
    Refuse(
        "fuse_reduction_epilogue",
        "nothing uses the epilogue's output",
        fused(reading=copying("D", "E", "early")),
        _fuse,
        "block 'early' uses 'D' before",
    ),
    Example(
        "fuse_reduction_epilogue",
        _fuse,
        {"A": "(16, 32)", "bias": "(16,)", "D": "(16,)"},
        before='C = T.alloc_buffer((16,), "float32")',
    ),
]
