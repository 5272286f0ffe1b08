"""Effects of expressions and functions; where buffers may be allocated."""

from __future__ import annotations

import numpy as np
import pytest
from observed import scheduled_at_random, stages

from tilewright import te
from tilewright.ir import Mutator, Var, call, const
from tilewright.script import parse
from tilewright.tir import Allocate, Block, Buffer, For, PrimFunc, decl_buffer
from tilewright.tir.analysis import (
    SideEffect,
    check_purity,
    is_pure_function,
    lca_of_buffer_accesses,
    side_effect,
)
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

# ---- purity -------------------------------------------------------------------------------------


def test_levels_of_effects():
    a = decl_buffer((8,), "float32", "A")
    x = Var("x", "float32")
    assert side_effect(call("exp", x) + 1.0) is SideEffect.PURE
    assert side_effect(call("exp", a[0])) is SideEffect.READ_STATE
    assert side_effect(call("call_extern", "f", dtype="float32") + a[0]) is SideEffect.OPAQUE
    assert SideEffect.READ_STATE < SideEffect.UPDATE_STATE < SideEffect.OPAQUE
    assert side_effect(const(1)) is SideEffect.PURE


def test_pure_functions_write_their_own_memory_only():
    pure = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32")) -> T.float32:
    X = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("x"):
            vi = T.axis.spatial(8, i)
            X[vi] = A[vi]
"""
    )
    assert is_pure_function(pure)
    impure = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    A[0] = T.float32(0)
    T.evaluate(T.call_extern("puts", 1, dtype="int32"))
    assert A[0] > T.float32(1), "small"
"""
    )
    assert [reason for _, reason in check_purity(impure)] == [
        "it writes 'A', which is not its own",
        "it calls 'call_extern', which may do anything",
        "it may stop the program by an assertion",
    ]
    assert not is_pure_function(impure)


def test_a_window_of_own_memory_is_own_memory():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    X = T.alloc_buffer((8,), "float32")
    with T.block("x"):
        T.reads()
        T.writes({buffer}[0:4])
        W = T.match_buffer({buffer}[0:4], (4,), "float32")
        W[0] = T.float32(0)
""".replace("{buffer}", "X")
    )
    assert is_pure_function(func)


# ---- lowest common ancestors --------------------------------------------------------------------


def places(func: PrimFunc) -> dict[str, str]:
    """Where each buffer may live, by the name of the loop or block."""
    made = {}
    for buffer, place in lca_of_buffer_accesses(func).items():
        made[buffer.name] = place.name if isinstance(place, Block) else place.loop_var.name
    return made


def chain(n: object = 16, m: object = 12) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    return te.create_prim_func([a, c])


def test_apart_means_the_root():
    assert places(chain()) == {"A": "B", "B": "root", "C": "C"}


@pytest.mark.parametrize("n", [16, te.var("n")])
def test_inside_a_shared_loop(n: object):
    sch = Schedule(chain(n))
    sch.compute_at("B", sch.get_loops("C")[0])
    assert places(sch.mod["main"])["B"] == "i"


def test_a_reduction_lasts_through_its_loop():
    a = te.placeholder((16, 12), name="A")
    k = te.reduce_axis((0, 12), "k")
    b = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="B")
    func = te.create_prim_func([a, b])
    assert places(func) == {"A": "B", "B": "i"}
    sch = Schedule(func)
    sch.reorder(*reversed(sch.get_loops("B")))
    assert places(sch.mod["main"]) == {"A": "B", "B": "root"}


THREADS = """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    X = T.alloc_buffer((16, 32), "float32", scope="{scope}")
    for bx in T.thread_binding(16, thread="blockIdx.x"):
        for ty in T.thread_binding(4, thread="threadIdx.y"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("X"):
                    vi = T.axis.spatial(16, bx)
                    vj = T.axis.spatial(32, ty * 8 + tx)
                    X[vi, vj] = A[vi, vj]
                with T.block("B"):
                    vi = T.axis.spatial(16, bx)
                    vj = T.axis.spatial(32, ty * 8 + tx)
                    B[vi, vj] = X[vi, vj]
"""


@pytest.mark.parametrize(
    ("scope", "place"),
    [("local", "tx"), ("warp", "ty"), ("shared", "bx"), ("shared.dyn", "bx"), ("global", "root")],
)
def test_what_threads_share_lives_outside_of_them(scope: str, place: str):
    assert places(parse(THREADS.format(scope=scope)))["X"] == place


@pytest.mark.parametrize("scope", ["local", "warp", "shared", "global"])
def test_threads_compute_the_same_from_there(scope: str):
    func = parse(THREADS.format(scope=scope))
    data = np.random.default_rng(0).random((16, 32)).astype("float32")
    found = np.zeros((16, 32), "float32")
    run(allocated_at_lowest_places(func), data, found)
    np.testing.assert_array_equal(found, data)


def test_matched_buffers_stand_for_their_source():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32")):
    X = T.alloc_buffer((8, 4), "float32")
    for i in range(8):
        with T.block("x"):
            vi = T.axis.spatial(8, i)
            T.reads()
            T.writes(X[vi, 0:4])
            W = T.match_buffer(X[vi, 0:4], (4,), "float32")
            for j in range(4):
                W[j] = T.float32(0)
        with T.block("y"):
            vi = T.axis.spatial(8, i)
            A[vi, 0] = X[vi, 0]
"""
    )
    assert places(func) == {"A": "y", "X": "i"}


class _Move(Mutator):
    """Allocates each root buffer at its lowest place."""

    def __init__(self, places: dict[object, list[Buffer]], moved: list[Buffer]) -> None:
        self.places = places
        self.moved = moved

    def visit_For(self, node: For) -> object:
        made = self.generic_visit(node)
        body = made.body
        for buffer in self.places.get(node, ()):
            body = Allocate(buffer, body)
        return made.replace(body=body)

    def visit_Block(self, node: Block) -> object:
        made = self.generic_visit(node)
        kept = [buffer for buffer in made.alloc_buffers if buffer not in self.moved]
        return made.replace(alloc_buffers=(*kept, *self.places.get(node, ())))


def allocated_at_lowest_places(func: PrimFunc) -> PrimFunc:
    sites: dict[object, list[Buffer]] = {}
    moved = []
    for buffer, place in lca_of_buffer_accesses(func).items():
        if buffer in func.root.alloc_buffers:
            sites.setdefault(place, []).append(buffer)
            moved.append(buffer)
    return func.replace(body=_Move(sites, moved).visit(func.body))


@pytest.mark.parametrize("seed", range(40))
def test_allocating_there_changes_nothing(seed: int):
    func = stages()
    scheduled = scheduled_at_random(func, seed)
    data = np.random.default_rng(seed).integers(-5, 5, (6, 8)).astype("float32")
    expected, found = np.zeros((6, 6), "float32"), np.zeros((6, 6), "float32")
    run(func, data, expected)
    run(allocated_at_lowest_places(scheduled), data, found)
    np.testing.assert_allclose(found, expected)
