"""Products by tensor maps whose blocks go through tiles in turn, and whose sums leave registers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor
from test_tensor_map_products import _lines_joined
from test_warpgroups import HOPPER, product

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight import Choices, first_schedule, gpu
from tilewright.ir import IRModule, PassContext, assert_structural_equal
from tilewright.runtime.dlpack import numpy_dtype
from tilewright.scheduling.gpu import Grid, WarpgroupTile, grids_by_maps
from tilewright.scheduling.gpu.grids import Sizes
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.script import parse
from tilewright.support.errors import LowerError, RunError
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.interpreter import simulate
from tilewright.tir.schedule import Trace
from tilewright.tir.transform import gpu_pipeline

ONE = Target("nvidia/nvidia-h200 -num-cores=1")
"""Of its three blocks the first ones have a second tile where there are four."""


def by_rule(func: PrimFunc, target: Target = ONE, **wanted: Any) -> IRModule:
    """Lower a product, with the choices that are named as their keys end."""
    taken: dict[str, int] = {}
    with PassContext(config={"dlight.tensor_maps": True}), target:
        for _ in range(1 + len(wanted)):  # what is offered depends on what was chosen
            choices = Choices(taken)
            made = first_schedule(func, (gpu.Matmul(),), target, choices=choices)
            assert made is not None
            for key, options in choices.offered.items():
                name = key.rpartition(".")[2]
                if name in wanted:
                    taken[key] = [is_turn(x) for x in options].index(wanted[name])
        module: IRModule = gpu_pipeline(target)(made.mod)
    assert "T.ptx_cp_async_bulk_tensor(" in module.script()
    return module


def is_turn(option: Any) -> Any:
    """Grids by whether their blocks take turns, other options as they are."""
    return option.blocks is not None if isinstance(option, Grid) else option


def in_turn(func: PrimFunc, cluster: tuple[int, int] = (1, 1), element_bytes: int = 2) -> IRModule:
    tile = WarpgroupTile(64, 64, 128 // element_bytes, 1, 4)
    module = by_rule(func, warpgroup_tile=tile, cluster=cluster, turns=True)
    assert " turn " in module.script()
    return module


def agrees(module: IRModule, a: Any, b: Any, total: str = "float32") -> Any:
    found = np.full((a.shape[0], b.shape[0]), 7, total)
    report = simulate(module, a, b, found, check_races=True)
    np.testing.assert_array_equal(found, a.astype("float32") @ b.astype("float32").T)
    return report


def matrices(m: int, n: int, k: int, dtype: str = "float16") -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return tuple(
        rng.integers(-4, 5, shape).astype(numpy_dtype(dtype)) for shape in ((m, k), (n, k))
    )


CASES: dict[str, tuple[tuple[int, int], int, int, int, str]] = {
    "a step": ((1, 1), 256, 64, 64, "float16"),
    "a part of a step": ((1, 1), 200, 40, 40, "bfloat16"),
    "stages in turn": ((1, 1), 256, 64, 320, "float16"),
    "odd": ((1, 1), 65, 137, 136, "float16"),
    "bytes": ((1, 1), 256, 64, 256, "int8"),
    "eighths": ((1, 1), 256, 64, 256, "float8_e4m3fn"),
    "rows": ((2, 1), 256, 64, 192, "float16"),
    "odd columns": ((1, 2), 65, 137, 136, "float16"),
}


@few("name", CASES, "odd")
def test_products(name: str) -> None:
    cluster, m, n, k, dtype = CASES[name]
    total = "int32" if dtype == "int8" else "float32"
    module = in_turn(product(m, n, k, dtype, total), cluster, numpy_dtype(dtype).itemsize)
    assert ("clusterCtaIdx" in module.script()) == (cluster != (1, 1))
    assert agrees(module, *matrices(m, n, k, dtype), total).bank_conflicts == 0
    assert all(item.spill_bytes == 0 for item in compiled(module, ONE).values())


@pytest.mark.parametrize("direct", [True, False])
def test_sums_of_a_single_step(direct: bool) -> None:
    """Such a loop is one all the same: its barrier tells when the operands have come."""
    module = by_rule(product(64, 64, 40), turns=False, from_registers=direct)
    agrees(module, *matrices(64, 64, 40))


@few("cluster", [(1, 1), (2, 1)], (1, 1))
def test_sizes_of_the_call(cluster: tuple[int, int]) -> None:
    """Also none, of steps as of tiles."""
    n, k = te.var("n"), te.var("k") * 8
    func = function(
        lambda a, b: topi.nn.relu(topi.matmul(a, b, False, True, "float32")),
        tensor(n, k, dtype="float16", name="a"),
        tensor(72, k, dtype="float16", name="b"),
    )
    module = in_turn(func, cluster)
    compiled(module, ONE)
    for rows, depth in ((0, 8), (130, 0), (1, 64), (140, 8)):
        a, b = matrices(rows, 72, depth)
        found = np.full((rows, 72), 7, "float32")
        simulate(module, a, b, found, check_races=True)
        wanted = np.maximum(a.astype("float32") @ b.T.astype("float32"), 0)
        np.testing.assert_array_equal(found, wanted)


def test_registers_hold_sums_until_the_results_of_the_last_tile_are_written() -> None:
    """Large tiles spill nothing, and results need no shared memory."""
    module = by_rule(product(4096, 4096, 4096), HOPPER)
    (bound,) = kernel_bounds(module, HOPPER)
    assert bound.blocks == 132 and bound.worst(shared=False) == 1
    (resources,) = compiled(module, HOPPER).values()
    assert resources.spill_bytes == 0 and resources.registers == 168
    text = module.script()
    assert text.count("T.ptx_setmaxnreg(") == 4 and text.count('T.storage_sync("shared"') == 2
    # One block for each tile has the same work for the busiest processor.
    (other,) = kernel_bounds(by_rule(product(4096, 4096, 4096), HOPPER, turns=False), HOPPER)
    assert bound.l2 == pytest.approx(other.l2, rel=1e-2)
    (through,) = kernel_bounds(
        by_rule(product(4096, 4096, 4096), HOPPER, turns=False, from_registers=False), HOPPER
    )
    assert other.shared < through.shared


@pytest.mark.parametrize("turns", [True, False])
def test_a_single_block_with_a_turn_more_is_the_busiest(turns: bool) -> None:
    """A tile more than blocks takes as long as twice as many, whoever takes turns."""
    tile = WarpgroupTile(128, 256, 64, 2, 4)
    one, two = (
        kernel_bounds(
            by_rule(func, HOPPER, warpgroup_tile=tile, cluster=(1, 1), turns=turns), HOPPER
        )
        for func in (product(128 * tiles, 256, 1024) for tiles in (133, 264))
    )
    assert one[0].blocks == (132 if turns else 133)
    for roof in ("issue", "shared", "l2"):
        assert getattr(one[0], roof) == pytest.approx(getattr(two[0], roof), rel=2e-2)
    assert one[0].memory == pytest.approx(two[0].memory * 133 / 264, rel=2e-2)


def test_blocks_take_turns_where_there_are_more_tiles() -> None:
    tile = WarpgroupTile(128, 256, 64, 2, 4)
    turns = Grid(66)
    for m, n, whole, wanted in (
        (4096, 4096, True, [turns, Grid()]),
        (4096, 4096, False, [Grid(), turns]),
        (66 * 256, 256, True, [Grid()]),  # each of 66 clusters has one pair of tiles
        (66 * 256, 256, False, [Grid()]),
        (66 * 256 + 1, 256, True, [turns, Grid()]),
    ):
        sizes = Sizes(m, n, 1, 512)
        assert grids_by_maps(tile, sizes, (2, 1), HOPPER, in_turn=whole) == wanted
    sizes = Sizes(None, 4096, 1, 512)
    assert grids_by_maps(tile, sizes, (1, 1), HOPPER, in_turn=True) == [Grid(), Grid(132)]


def test_half_floats_leave_through_shared_memory() -> None:
    """Four threads write 16 bytes of a row: half a sector."""
    a, b = (tensor(512, 512, dtype="float16", name=name) for name in "ab")
    func = function(lambda a, b: topi.matmul(a, b, False, True, "float16"), a, b)
    assert "turn" not in by_rule(func).script()
    (direct,) = kernel_bounds(by_rule(func, HOPPER, turns=False, from_registers=True), HOPPER)
    (through,) = kernel_bounds(by_rule(func, HOPPER), HOPPER)
    assert direct.worst(shared=False) == 2 and through.worst(shared=False) == 1


ARRIVE = "T.evaluate(T.ptx_arrive_barrier("
BROKEN = {
    "the last stage of a turn is never empty": (ARRIVE, (1,), "pass  # ", "lacks 4 of 4 arrivals"),
    "a stage is empty twice": ("if 1 <= ax3_0 and tx", (0,), "if tx", "are there already|race"),
    "the producer's stages begin anew": (
        "(turn * 5 + ax3_0) % 4", range(10), "ax3_0 % 4", "lacks|are there already|race",
    ),
    "the producer's phases begin anew": (
        "(turn * 5 + ax3_0) // 4", (0,), "ax3_0 // 4", "lacks|are there already|race",
    ),
    "the consumers' phases begin anew": (
        "(turn * 5 + ax3_0) // 4", (1,), "ax3_0 // 4", "lacks|are there already|race",
    ),
    "no wait for the last products": (
        "T.evaluate(T.ptx_wgmma_wait_group(0))", (0,), "pass", "race|without waiting|written",
    ),
    "no wait for an empty stage": (
        "T.evaluate(T.ptx_wait_barrier(", (0,), "pass  # ", "are there already|race",
    ),
    "no wait for a full stage": (
        "T.evaluate(T.ptx_wait_barrier(", (1,), "pass  # ", "race|nothing has written|already",
    ),
    "sums go on": ("T.evaluate(T.mma_fill(", (0,), "pass  # ", "nothing has written"),
}  # fmt: skip


@few("name", BROKEN, "the producer's stages begin anew")
def test_broken_turns_are_reported(name: str) -> None:
    text = _lines_joined(in_turn(product(256, 64, 320)).script())
    old, numbers, new, message = BROKEN[name]
    parts = text.split(old)
    assert len(parts) > max(numbers) + 1
    broken = parts[0]
    for number, part in enumerate(parts[1:]):
        broken += (new if number in numbers else old) + part
    with pytest.raises(RunError, match=message):
        agrees(parse(broken), *matrices(256, 64, 320))


TURNS = """
@T.prim_func
def main(A: T.Buffer((4, 64, 64), "float16"), B: T.Buffer((4, 64, 64), "float16")):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for ty in T.thread_binding(1, thread="threadIdx.y"):
            for tx in T.thread_binding(128, thread="threadIdx.x"):
                for turn in range(2):
                    for k in T.serial(STEPS, annotations={
                        "software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1],
                        "software_pipeline_async_stages": [0], "software_pipeline_specialised": 1}):
                        with T.block("step"):
                            vt, vk = T.axis.remap("SS", [turn, k])
                            T.reads(A[vt, 0:64, 0:64])
                            T.writes(B[vt, 0:64, 0:64])
                            S = T.alloc_buffer((64, 64), "float16", scope="shared")
                            with T.block("copy"):
                                T.block_attr({"tensor_copy": 1})
                                for i, j in T.grid(64, 64):
                                    S[i, j] = A[vt, i, j]
                            for i in range(32):
                                B[vt, tx // 64 * 32 + i, tx % 64] = S[tx // 64 * 32 + i, tx % 64]
"""


FLAT = (
    ("alloc_buffer((64, 64)", "alloc_buffer((4096,)"),
    ("S[i, j] =", "S[i * 64 + j] ="),
    ("S[tx // 64 * 32 + i, tx % 64]", "S[(tx // 64 * 32 + i) * 64 + tx % 64]"),
)


@few(("steps", "flat"), [("1", False), ("2", False), ("2", True)], ("2", True))
def test_turns_by_hand(steps: str, flat: bool) -> None:
    """All threads read a stage, and each says that it is empty; its rows may lie along one axis."""
    text = TURNS.replace("STEPS", steps)
    for old, new in FLAT if flat else ():
        assert old in text
        text = text.replace(old, new)
    with HOPPER:
        module = gpu_pipeline(HOPPER)(IRModule({"main": parse(text)}))
    a = np.arange(4 * 64 * 64).reshape(4, 64, 64).astype("float16")
    b = np.zeros_like(a)
    simulate(module, a, b, check_races=True)
    np.testing.assert_array_equal(b[:2], a[:2])


@pytest.mark.parametrize("maps", [True, False])
def test_records_of_products_are_read_again(maps: bool) -> None:
    """As data and as text, whether sums pass shared memory or results leave from registers."""
    func = product(256, 64, 320)
    with PassContext(config={"dlight.tensor_maps": maps}), ONE:
        made = first_schedule(func, (gpu.Matmul(),), ONE, record=True)
    assert made is not None and made.trace is not None
    data = json.loads(json.dumps(made.trace.as_json()))
    again = Schedule(IRModule({"main": func}))
    Trace.apply_json_to_schedule(data, again)
    assert_structural_equal(again.mod, made.mod)
    assert again.trace is not None and again.trace.as_json() == data
    by_text = Schedule(IRModule({"main": func}))
    namespace: dict[str, Any] = {}
    exec(str(made.trace), namespace)
    namespace["apply_trace"](by_text)
    assert_structural_equal(by_text.mod, made.mod)


OWN = """
                L = T.allocate((1,), "int32", scope="local")
                L[0] = bx
                for turn in range("""
AFTER = """S[tx // 64 * 32 + i, tx % 64]
                    for i in range(32):
                        with T.block("next"):
                            vt, vi, vx = T.axis.remap("SSS", [turn, i, tx])
                            T.reads(B[vt, vx // 64 * 32 + vi, vx % 64])
                            T.writes(A[vt + 1, vx // 64 * 32 + vi, vx % 64])
                            A[vt + 1, vx // 64 * 32 + vi, vx % 64] = B[
                                vt, vx // 64 * 32 + vi, vx % 64]
"""
TURN = "                for turn in range("


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([(TURN, OWN), ("A[vt, i, j]", "A[L[0] + vt, i, j]")], "can't depend on L"),
        ([(TURN, OWN), (TURN + "2", TURN + "L[0] + 1")], "can't depend on L"),
        (
            [(TURN, OWN), (TURN + "2", TURN + "1"), ("A[vt, i, j]", "A[L[0], i, j]")],
            "can't depend on L",
        ),
        (
            [("for k in T.serial(", "L[0] = turn\n                    for k in T.serial("),
             (TURN, OWN), ("A[vt, i, j]", "A[L[0], i, j]")],
            "can't depend on L",
        ),
        ([("S[tx // 64 * 32 + i, tx % 64]\n", AFTER)], "in later ones, but they write A"),
    ],
)  # fmt: skip
def test_what_the_producer_would_not_know(edits: list[tuple[str, str]], message: str) -> None:
    """It doesn't compute what other threads have of their own, nor wait for what they write."""
    text = TURNS.replace("STEPS", "2")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(LowerError, match=message), HOPPER:
        gpu_pipeline(HOPPER)(IRModule({"main": parse(text)}))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("T.serial(STEPS", "T.serial(turn + 1", "as many steps in each turn"),
        ("for turn in range(2):", "for turn in range(1, 3):", "one serial loop from 0 at most"),
        ("for turn in range(2):", "for other, turn in T.grid(2, 2):", "one serial loop from 0"),
    ],
)
def test_what_is_no_turn_is_refused(old: str, new: str, message: str) -> None:
    text = TURNS.replace(old, new).replace("STEPS", "2")
    with pytest.raises(LowerError, match=message), HOPPER:
        gpu_pipeline(HOPPER)(IRModule({"main": parse(text)}))
