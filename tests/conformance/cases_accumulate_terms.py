"""Cases of the primitive that adds each term of what a reduction adds by itself."""

from __future__ import annotations

from conformance_cases import Accept, Example, Refuse, chain, matmul

from tilewright import te
from tilewright.ir import if_then_else, select
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def planes(n: object = 5, dtype: str = "float32", choose: object = if_then_else) -> PrimFunc:
    """Real and imaginary parts of a product of complex matrices, as planes."""
    n = te.var("n") if n is None else n
    a, b = (te.placeholder((2, n, n), dtype, name) for name in ("A", "B"))
    k = te.reduce_axis((0, n), "k")

    def part(c: object, i: object, j: object) -> object:
        real = a[0, i, k] * b[0, k, j] - a[1, i, k] * b[1, k, j]
        imaginary = a[0, i, k] * b[1, k, j] + a[1, i, k] * b[0, k, j]
        return te.sum(choose(c == 0, real, imaginary), axis=k)

    return te.create_prim_func([a, b, te.compute((2, n, n), part, name="C")])


def nested() -> PrimFunc:
    """Terms in brackets, a subtracted quotient, one that isn't chosen everywhere."""
    a, b = te.placeholder((6, 7), name="A"), te.placeholder((7,), name="B")
    k = te.reduce_axis((0, 7), "k")

    def term(i: object) -> object:
        value = a[i, k] - (b[k] * 2.0 - (a[i, k] / 3.0 - b[k]) * b[k])
        return te.sum(select(k < 3, value, b[k]), axis=k)

    return te.create_prim_func([a, b, te.compute((6,), term, name="C")])


def terms(sch: Schedule) -> None:
    sch.accumulate_terms("C")


def update(sch: Schedule) -> None:
    """After its init was taken out, the last loop split."""
    loops = sch.get_loops("C")
    sch.decompose_reduction("C", loops[-1])
    sch.split(loops[-1], [None, 2])
    sch.accumulate_terms("C_update")


CASES = [
    Accept("accumulate_terms", planes, terms),
    Accept("accumulate_terms", planes, update),
    Accept("accumulate_terms", nested, terms),
    Accept("accumulate_terms", lambda: planes(4, "uint8", select), terms),
    Accept("accumulate_terms", lambda: planes(None), terms, ({"n": 0}, {"n": 5})),
    Refuse("accumulate_terms", "only adds", chain, lambda s: s.accumulate_terms("B"), "only add"),
    Refuse("accumulate_terms", "several terms", matmul, terms, "a single term"),
    Refuse(
        "accumulate_terms",
        "at least 32 bits",
        lambda: planes(4, "float16"),
        terms,
        "rounds after each term",
    ),
    Example("accumulate_terms", terms, {"A": "(2, 128, 64)", "B": "(2, 64)", "C": "(128,)"}),
]
