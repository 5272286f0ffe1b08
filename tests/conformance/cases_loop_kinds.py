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


_barrier = script(
    """
@T.prim_func
def main(A: T.Buffer((6, 2)), B: T.Buffer((6, 2))):
    for i in range(6):
        with T.block("B"):
            v = T.axis.spatial(6, i)
            T.reads(A[v, 0:2])
            T.writes(B[v, 0:2])
            B[v, 0] = A[v, 0]
            T.evaluate(T.storage_sync("shared", dtype="void"))
            B[v, 1] = A[v, 1]
"""
)


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


def _fetching(
    tag: str = "threadIdx.x",
    *,
    scope: str = "shared",
    threads: int = 3,
    inner: int = 3,
    before: object = None,
) -> object:
    """Threads of rows of ``C``, each fetching ``B``, by ``threads`` and ``inner`` of them."""

    def apply(sch: Schedule) -> None:
        i, _, _ = sch.get_loops("C")
        outer = sch.split(i, [None, threads])[1]
        sch.bind(outer, tag)
        copy = sch.cache_read("C", 1, scope)
        sch.compute_at(copy, outer)
        if before is not None:
            before(sch, copy)  # type: ignore[operator]
        sch.bind(sch.split(sch.get_loops(copy)[-1], [None, inner])[1], tag)

    return apply


def _own_rows(sch: Schedule) -> None:
    outer = sch.split(loop(sch, 0), [None, 3])[1]
    copy = sch.cache_read("C", 0, "shared")
    sch.compute_at(copy, outer)
    sch.bind(outer, "threadIdx.x")
    sch.bind(sch.split(sch.get_loops(copy)[-1], [None, 2])[1], "threadIdx.x")


def _outer_afterwards(sch: Schedule) -> None:
    outer = sch.split(loop(sch, 0), [None, 3])[1]
    copy = sch.cache_read("C", 1, "shared")
    sch.compute_at(copy, outer)
    sch.bind(sch.split(sch.get_loops(copy)[-1], [None, 3])[1], "threadIdx.x")
    sch.bind(outer, "threadIdx.x")


def _through_registers(sch: Schedule, copy: object) -> None:
    """A copy of the thread's own, from which the shared tile is filled."""
    own = sch.cache_read(copy, 0, "local")
    sch.compute_at(own, sch.get_loops(copy)[1])


_in_triangles = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8, 8), "float32")):
    S = T.alloc_buffer((8,), "float32", scope="shared")
    for i in T.thread_binding(8, thread="threadIdx.x"):
        for j in range(i + 1):
            for k in range(8):
                with T.block("S"):
                    vk = T.axis.spatial(8, k)
                    S[vk] = A[vk]
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = S[vj]
"""
)

_sums_of_triangles = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        for k in range(i):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
"""
)

_in_a_block = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        with T.block("outer"):
            vo = T.axis.spatial(8, i)
            S = T.alloc_buffer((8,), "float32", scope="shared")
            for k in range(8):
                with T.block("S"):
                    vk = T.axis.spatial(8, k)
                    S[vk] = A[vk]
            for j in range(1):
                with T.block("C"):
                    vj = T.axis.spatial(8, vo + j)
                    C[vj] = S[7 - vj]
"""
)

_counted_up = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32", scope="shared")
    for i in T.thread_binding(8, thread="threadIdx.x"):
        for k in range(8):
            with T.block("zero"):
                vk = T.axis.spatial(8, k)
                S[vk] = T.float32(0)
        for k in range(8):
            with T.block("S"):
                vk = T.axis.spatial(8, k)
                S[vk] = S[vk] + A[vk]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = S[7 - vi]
"""
)


def _bind_inner(name: str) -> object:
    return lambda s: s.bind(loop(s, -1, name), "threadIdx.x")


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
    Refuse(
        "bind",
        "blocks with a barrier",
        _barrier,
        lambda s: s.bind(s.split(loop(s, 0, "B"), [None, 4])[0], "vthread"),
        "not all threads would reach it",
    ),
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
        "has an iteration",
        _sums_of_triangles,
        lambda s: s.bind(loop(s, 1), "threadIdx.x"),
        "may have no iterations",
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
        "on a clusterCtaIdx has a constant number of iterations, at most 16",
        symbolic_matmul,
        lambda s: s.bind(loop(s), "clusterCtaIdx.x"),
        "a cluster has a constant number of blocks, at most 16",
    ),
    Accept("bind", matmul, _fetching()),
    Accept("bind", matmul, _fetching(threads=4, inner=2)),
    Accept("bind", matmul, _outer_afterwards),
    Accept("bind", symbolic_matmul, _fetching(), SIZES),
    Refuse(
        "bind",
        "bound to the same axis",
        matmul,
        _both("bind", ("blockIdx.x",), ("blockIdx.x",)),
        r"only threads of a block \(threadIdx\) can do that",
    ),
    Refuse("bind", "no block is between", _in_a_block, _bind_inner("S"), "a block is between"),
    Refuse(
        "bind",
        "no more iterations than the outer",
        matmul,
        _fetching(threads=3, inner=4),
        "not shown to have no more iterations than the outer loop",
    ),
    Refuse(
        "bind",
        "come by it equally often",
        _in_triangles,
        _bind_inner("S"),
        "not all threads come by equally often",
    ),
    Refuse(
        "bind",
        "write ``shared`` memory",
        matmul,
        _fetching(scope="local"),
        "writes 'B_local' of scope 'local', not 'shared'",
    ),
    Refuse("bind", "the same in each iteration", matmul, _own_rows, "what it makes differs"),
    Refuse(
        "bind",
        "the same in each iteration",
        _counted_up,
        _bind_inner("S"),
        "not shown to make the same each time",
    ),
    Refuse(
        "bind",
        "private memory of threads",
        matmul,
        _fetching(before=_through_registers),
        "reads memory that each thread has for itself",
    ),
]
