"""What a family of primitives brings to the conformance suite.

Each file ``cases_<family>.py`` beside this one has a list ``CASES`` of the three kinds below.
``test_primitives.py`` demands that the cases of all files together cover the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.tir import REDUCERS, PrimFunc, register_reducer
from tilewright.tir.schedule import Schedule

Program = Callable[[], PrimFunc | IRModule]
Action = Callable[[Schedule], object]


@dataclass(frozen=True)
class Accept:
    """The primitive does something to a program; the meaning stays and the trace replays.

    ``apply`` may prepare with other primitives and must call ``primitive``. A program with symbolic
    extents gives their values in ``sizes``, ``{"n": 7}``. ``keeps_meaning`` is false only for what
    is called unsafe, or gives what is to be replaced by hand.
    """

    primitive: str
    program: Program
    apply: Action
    sizes: tuple[dict[str, int], ...] = ()
    keeps_meaning: bool = True


@dataclass(frozen=True)
class Refuse:
    """The primitive refuses: ``rule`` is a part of the sentence of its docstring that is broken.

    ``message`` is a regular expression that the rendered error matches; ``apply`` may prepare.
    """

    primitive: str
    rule: str
    program: Program
    apply: Action
    message: str


@dataclass(frozen=True)
class Example:
    """The Before and After of the docstring are what happens.

    ``params`` maps names of buffer parameters to their shapes as text, with a dtype other than
    float32 behind a colon (``"(16,): int8"``), of scalars to types. ``before`` and ``after`` hold
    lines that allocate what the docstring's programs use.
    """

    primitive: str
    apply: Action
    params: dict[str, str]
    before: str = ""
    after: str = ""


def script(text: str) -> Program:
    """A program written in the dialect T (``T`` and ``I`` are known)."""
    head = "from tilewright.script import ir as I\nfrom tilewright.script import tir as T\n"
    return lambda: parse(head + text)


def matmul(n: int = 12, m: int = 8, k: int = 10) -> PrimFunc:
    """``C = A @ B``: block ``C`` under loops i, j, k."""
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


def chain(n: int = 16, m: int = 12) -> PrimFunc:
    """Three elementwise blocks ``B``, ``C``, ``D``."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * c[i, j], name="D")
    return te.create_prim_func([a, d])


def symbolic_chain() -> PrimFunc:
    """Two elementwise blocks ``B``, ``C`` over ``(n, 12)``, then row sums ``D`` over ``(n,)``."""
    n = te.var("n")
    a = te.placeholder((n, 12), name="A")
    b = te.compute((n, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, 12), lambda i, j: b[i, j] + 1.0, name="C")
    r = te.reduce_axis((0, 12), "r")
    d = te.compute((n,), lambda i: te.sum(c[i, r], axis=r), name="D")
    return te.create_prim_func([a, d])


def symbolic_matmul() -> PrimFunc:
    """``C = A @ B`` with ``A`` of shape ``(n, 8)`` and ``B`` of ``(8, 6)``."""
    n = te.var("n")
    a = te.placeholder((n, 8), name="A")
    b = te.placeholder((8, 6), name="B")
    axis = te.reduce_axis((0, 8), "k")
    c = te.compute((n, 6), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


#: Sums that begin with the neighbour to the right, and use the one after it.
reads_neighbours = script(
    """
@T.prim_func
def main(A: T.Buffer((3, 2), "int32"), B: T.Buffer((5,), "int32")):
    for i, k in T.grid(3, 2):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = B[vi + 1]
            B[vi] = B[vi] + A[vi, vk] * B[vi + 2]
"""
)


def with_epilogue(op: str = "add", reduce: str = "sum", dtype: str = "int32") -> PrimFunc:
    """``D = reduce(A) op bias`` by rows."""
    a = te.placeholder((6, 8), dtype, name="A")
    bias = te.placeholder((6,), dtype, name="bias")
    axis = te.reduce_axis((0, 8), "k")
    c = te.compute((6,), lambda i: te.reducer(reduce)(a[i, axis], axis=axis), name="C")
    ops = {
        "add": lambda i: bias[i] + c[i],
        "relu": lambda i: te.maximum(c[i], 0),
        "max": lambda i: te.maximum(c[i], bias[i]),
        "twice": lambda i: c[i] + c[i],
        "wide": lambda i: c[i].astype("int64"),
        "clip": lambda i: te.minimum(te.maximum(c[i] + bias[i], 0), 6),
        "shift": lambda i: c[5 - i] + bias[i],
    }
    d = te.compute((6,), ops[op], name="D")
    return te.create_prim_func([a, bias, d])


@contextmanager
def registered(name: str, combine: Any, identity: Any, arity: int) -> Iterator[None]:
    """A reducer for the time of a test."""
    register_reducer(name, combine, identity, arity)
    try:
        yield
    finally:
        del REDUCERS._entries[name]
