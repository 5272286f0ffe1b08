"""Cases of primitives that say how a loop runs: parallel, vectorize, unroll, bind."""

from __future__ import annotations

from conformance_cases import Accept, Example, Refuse, chain, matmul, script, symbolic_matmul

from tilewright.tir.schedule import Schedule

SIZES = ({"n": 5},)


def loop(sch: Schedule, position: int = 0, name: str = "C") -> object:
    return sch.get_loops(sch.get_block(name))[position]


_scan = script(
    """
@T.prim_func
def main(A: T.Buffer((9,), "float32")):
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            A[vi + 1] = A[vi] * T.float32(2)
"""
)

_statement = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
        B[i] = B[i] + T.float32(1)
"""
)

_repeated = script(
    """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for r in range(3):
        for i, k in T.grid(4, 8):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
"""
)

_shifted = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((9,), "float32")
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            B[vi + 1] = A[vi]
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi]
"""
)

# ``x * x - y`` is no registered reducer.
_unknown_reducer = script(
    """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 8):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = A[vi, vk] - B[vi]
"""
)

_from_one = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(1, 8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
"""
)


def _simultaneous(name: str, *more: object) -> list[object]:
    """What all refuse whose iterations run at the same time."""

    def call(sch: Schedule, at: object) -> None:
        getattr(sch, name)(at, *more)

    def marked(sch: Schedule) -> None:
        sch.unroll(loop(sch))
        call(sch, loop(sch))

    return [
        Refuse(name, "the loop is serial", matmul, marked, "is unrolled already"),
        Refuse(
            name,
            "only blocks are below",
            _statement,
            lambda s: call(s, loop(s)),
            "a statement outside blocks",
        ),
        Refuse(
            name,
            "complete, reductions or updates",
            _scan,
            lambda s: call(s, loop(s)),
            "it reads what it writes",
        ),
        Refuse(
            name,
            "update different elements",
            _repeated,
            lambda s: call(s, loop(s)),
            "may update the same elements",
        ),
        Refuse(
            name,
            "what another one makes",
            _shifted,
            lambda s: call(s, loop(s)),
            "makes in another iteration",
        ),
    ]


def _feeding(name: str, *more: object) -> Refuse:
    return Refuse(
        name,
        "feeds no reduce iteration variable",
        matmul,
        lambda s: getattr(s, name)(loop(s, 2), *more),
        "feeds a reduce iteration variable",
    )


def _both(name: str, first: tuple[object, ...], second: tuple[object, ...]) -> object:
    def apply(sch: Schedule) -> None:
        getattr(sch, name)(loop(sch, 1), *first)
        getattr(sch, name)(loop(sch, 0), *second)

    return apply


def _reduce_on_threads(sch: Schedule) -> None:
    sch.bind(loop(sch, 0), "blockIdx.x")
    sch.bind(loop(sch, 2), "threadIdx.x")


VECTORS = {"A": "(1024,)", "B": "(1024,)"}

CASES = [
    Accept("parallel", matmul, lambda s: s.parallel(loop(s))),
    Accept("parallel", symbolic_matmul, lambda s: s.parallel(loop(s)), SIZES),
    Example("parallel", lambda s: s.parallel(loop(s, 0, "B")), VECTORS),
    *_simultaneous("parallel"),
    _feeding("parallel"),
    Accept("vectorize", matmul, lambda s: s.vectorize(loop(s, 1))),
    Accept("vectorize", symbolic_matmul, lambda s: s.vectorize(loop(s, 1)), SIZES),
    Example(
        "vectorize", lambda s: s.vectorize(loop(s, 1, "B")), {"A": "(64, 16)", "B": "(64, 16)"}
    ),
    *_simultaneous("vectorize"),
    _feeding("vectorize"),
    Refuse(
        "vectorize",
        "around it or inside of it",
        chain,
        _both("vectorize", (), ()),
        "of the same nest is vectorized already",
    ),
    Accept("unroll", matmul, lambda s: s.unroll(loop(s, 2))),
    Accept("unroll", symbolic_matmul, lambda s: s.unroll(loop(s, 2)), SIZES),
    Example("unroll", lambda s: s.unroll(loop(s, 0, "B")), {"A": "(4,)", "B": "(4,)"}),
    Refuse(
        "unroll",
        "the loop is serial",
        matmul,
        lambda s: (s.parallel(loop(s)), s.unroll(loop(s))),
        "is parallel already",
    ),
    Accept("bind", matmul, _both("bind", ("threadIdx.x",), ("blockIdx.x",))),
    Accept("bind", matmul, _both("bind", ("vthread",), ("vthread.x",))),
    Accept("bind", matmul, _reduce_on_threads),
    Accept("bind", symbolic_matmul, _both("bind", ("threadIdx.y",), ("blockIdx.z",)), SIZES),
    Example("bind", lambda s: s.bind(loop(s, 0, "B"), "threadIdx.x"), {"A": "(32,)", "B": "(32,)"}),
    *_simultaneous("bind", "threadIdx.x"),
    _feeding("bind", "blockIdx.x"),
    _feeding("bind", "vthread.x"),
    Refuse(
        "bind",
        "whose reducer is registered",
        _unknown_reducer,
        lambda s: s.bind(loop(s, 1), "threadIdx.x"),
        "no reduction by a registered reducer",
    ),
    Refuse(
        "bind",
        "is one of these",
        matmul,
        lambda s: s.bind(loop(s), "warpIdx"),
        "unknown thread axis 'warpIdx'",
    ),
    Refuse(
        "bind",
        "starts at 0",
        _from_one,
        lambda s: s.bind(loop(s), "threadIdx.x"),
        "the loop starts at 1",
    ),
    Refuse(
        "bind",
        "bound to the same axis",
        matmul,
        _both("bind", ("threadIdx.x",), ("threadIdx.x",)),
        "is bound to threadIdx.x already",
    ),
]
