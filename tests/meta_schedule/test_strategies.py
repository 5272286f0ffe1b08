"""Strategies besides the evolutionary one, unions of spaces, and the exact sizes of spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.meta_schedule.conftest import matmul, softmax
from tilewright.ir import structural_hash
from tilewright.meta_schedule import TuneContext
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.feature import candidate_evaluation
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.search_strategy import (
    CoordinateDescent,
    EvolutionarySearch,
    Exhaustive,
    ReplayFunc,
)
from tilewright.meta_schedule.search_strategy.tile_options import (
    count_covering,
    count_tiles,
    covering_options,
    tile_options,
)
from tilewright.meta_schedule.space_generator import (
    PostOrderApply,
    ScheduleFn,
    SpaceGeneratorUnion,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc
from tilewright.tir.schedule import Schedule


def context_of(func: PrimFunc, target: Target, space: Any, strategy: Any, **options: Any) -> Any:
    made = TuneContext(
        func,
        target=target,
        space_generator=space,
        search_strategy=strategy,
        start_from_rules=False,
        **options,
    )
    made.pre_tuning(max_trials=1000, num_trials_per_iter=8, cost_model=CostModel.create("analytic"))
    return made


def tiled(sch: Schedule) -> None:
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.split(i, sch.sample_perfect_tile(i, 2, 4))
    sch.split(j, sch.sample_perfect_tile(j, 2, 8))


def dependent(sch: Schedule) -> None:
    """What is split at all depends on a sample, in Python."""
    i, j, _ = sch.get_loops(sch.get_block("C"))
    if int(sch.get(sch.sample_categorical([0, 1], [0.5, 0.5]))):
        sch.split(i, sch.sample_perfect_tile(i, 2, 4))
    else:
        sch.split(j, [None, 2])


def rest_of(context: TuneContext) -> list[Any]:
    """Measure everything, with times that the machine model expects."""
    found: list[Any] = []
    while made := context.generate_measure_candidates():
        cycles = [float(candidate_evaluation(context, item).cycles[0]) for item in made]
        context.notify_runner_results(made, [RunnerResult((c * 1e-9,)) for c in cycles])
        found += made
    return found


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("extent", "n", "most"), [(96, 3, 16), (60, 1, 8), (37, 2, 8), (48, 4, 0)])
def test_tiles_are_counted_as_they_are_listed(extent: int, n: int, most: int) -> None:
    assert count_tiles(extent, n, most) == len(tile_options(extent, n, most))
    assert count_covering(extent, n, most) == len(covering_options(extent, n, most))


def test_sampled_options_are_counted_all(target: Target) -> None:
    def wide(sch: Schedule) -> None:
        i, *_ = sch.get_loops(sch.get_block("C"))
        sch.split(i, sch.sample_perfect_tile(i, 6, 0))

    context = context_of(matmul(2**12 * 27, 8, 8), target, wide, "replay-trace")
    # Places for 12 factors of two, times places for 3 factors of three, among 6 loops.
    assert context.search_strategy.space_size == 6188 * 56
    (variant,) = context.search_strategy.variants
    assert variant.is_sampled and len(variant.columns[0].options) <= 20_000


def test_every_candidate_of_a_small_space_is_tried_once(target: Target) -> None:
    context = context_of(matmul(8, 8, 8), target, tiled, Exhaustive())
    assert context.search_strategy.space_size == 3 * 4
    found = rest_of(context)
    decisions = {str(item.sch.trace.as_json()) for item in found}
    assert len(found) == len(decisions) == 12


def test_a_large_space_is_not_searched_through(target: Target) -> None:
    with pytest.raises(TuneError, match=r"has 12 candidates, an exhaustive search takes up to 11"):
        context_of(matmul(8, 8, 8), target, tiled, Exhaustive(max_candidates=11))


# ---- other strategies ----------------------------------------------------------------------------


def test_a_function_is_run_anew_for_each_candidate(target: Target, same_result: Any) -> None:
    func = matmul(8, 8, 8)
    context = context_of(func, target, dependent, ReplayFunc(max_fail_count=40))
    found = rest_of(context)
    # One way to split j; as many tiles of i as there are.
    assert len(found) == 1 + 3
    for item in found:
        same_result(func, item.sch.mod)
    assert len({structural_hash(item.sch.mod) for item in found}) == 4


@pytest.mark.parametrize("strategy", ["evolutionary", "replay-trace", "coordinate-descent"])
@pytest.mark.parametrize("rules", [False, True])
@few("count", [1, 4, 12], 4)
def test_candidates_that_come_one_by_one_are_the_same(
    target: Target, strategy: str, rules: bool, count: int
) -> None:
    def batches(one_by_one: bool) -> list[list[str]]:
        made = TuneContext(
            matmul(16, 16, 16), target=target, search_strategy=strategy, start_from_rules=rules
        )
        made.pre_tuning(max_trials=1000, cost_model=CostModel.create("analytic"))
        ask = made.each_measure_candidate if one_by_one else made.generate_measure_candidates
        found = []
        for _ in range(2):
            batch = list(ask(count))
            times = [RunnerResult((1e-6 * (3 + len(found) + n % 4),)) for n in range(len(batch))]
            made.notify_runner_results(batch, times)
            found.append([structural_hash(item.sch.mod) for item in batch])
        return found

    assert batches(True) == batches(False)
    assert 0 < len(batches(True)[0]) <= count


def test_a_subclass_says_which_candidates_there_are(target: Target) -> None:
    class Half(EvolutionarySearch):
        def generate_measure_candidates(self, count: int | None = None) -> list[Any]:
            return (super().generate_measure_candidates(count) or [])[::2]

    context = context_of(matmul(16, 16, 16), target, "post-order-apply", Half())
    assert len(list(context.each_measure_candidate(12))) == 6


def test_replaying_is_repeatable(target: Target) -> None:
    def programs() -> list[str]:
        made = context_of(softmax(6, 48), target, "post-order-apply", "replay-func", rand_state=3)
        return [structural_hash(c.sch.mod) for c in made.generate_measure_candidates(3)]

    assert programs() == programs()


def test_coordinate_descent_finds_the_best_of_its_neighbours(
    target: Target, same_result: Any
) -> None:
    func = matmul(48, 64, 32)
    context = context_of(
        func, target, PostOrderApply(max_sketches=4), CoordinateDescent(starts=4, centres=1)
    )
    seconds: list[float] = []
    for _ in range(6):
        made = context.generate_measure_candidates(4)
        cycles = [float(candidate_evaluation(context, item).cycles[0]) for item in made]
        context.notify_runner_results(made, [RunnerResult((c,)) for c in cycles])
        seconds += cycles
    same_result(func, made[0].sch.mod)
    assert min(seconds[4:]) < min(seconds[:4])
    assert len(seconds) == 24


def test_neighbours_differ_in_one_decision(target: Target) -> None:
    context = context_of(matmul(8, 8, 8), target, tiled, "coordinate-descent")
    strategy = context.search_strategy
    (variant,) = strategy.variants
    centre = np.array([int(column.find(np.array([[4, 2]]))[0]) for column in variant.columns])
    rows = strategy._neighbours(0, centre)
    tiles = [[c.decision(int(option)) for c, option in zip(variant.columns, row)] for row in rows]
    assert sorted(tiles) == [[[2, 4], [4, 2]], [[4, 2], [2, 4]], [[4, 2], [8, 1]], [[8, 1], [4, 2]]]


# ---- spaces --------------------------------------------------------------------------------------


def test_a_union_has_the_sketches_of_all(target: Target, same_result: Any) -> None:
    func = matmul(16, 16, 8)

    def parallel(sch: Schedule) -> None:
        sch.parallel(sch.get_loops(sch.get_block("C"))[0])

    union = SpaceGeneratorUnion([tiled, PostOrderApply(sch_rules=["add-rfactor"]), parallel])
    context = context_of(func, target, union, "replay-trace")
    sizes = [variant.size for variant in context.search_strategy.variants]
    assert sizes == [3 * 4, 1, 1] and context.search_strategy.space_size == 14
    for item in context.generate_measure_candidates(6):
        same_result(func, item.sch.mod)
    with pytest.raises(TuneError, match="at least one"):
        SpaceGeneratorUnion([])


def test_blocks_can_be_left_alone(target: Target) -> None:
    def only_c(block: Block) -> bool:
        return block.name == "C"

    func = matmul(16, 16, 16, epilogue=True)
    made = TuneContext(
        func, target=target, space_generator=PostOrderApply(only_c, sch_rules=["auto-inline"])
    ).generate_design_space()
    assert made[0].has_block("D") and made[0].has_block("E")
    made = TuneContext(
        func, target=target, space_generator=PostOrderApply(sch_rules=["auto-inline"])
    ).generate_design_space()
    assert not made[0].has_block("E")


def test_names_of_kinds_stand_for_their_defaults(target: Target) -> None:
    named = PostOrderApply(sch_rules="llvm", postprocs="from-target", mutator_probs="llvm")
    usual = PostOrderApply()
    for generator in (named, usual):
        generator.initialize(target)
    assert [r.name for r in named.sch_rules] == [r.name for r in usual.sch_rules]
    assert [p.name for p in named.postprocs] == [p.name for p in usual.postprocs]
    assert sorted(named.mutator_probs.values()) == sorted(usual.mutator_probs.values())
    with pytest.raises(TuneError, match="no default rules for target 'hexagon'"):
        PostOrderApply(sch_rules="hexagon").initialize(target)


def test_a_clone_shares_nothing(target: Target) -> None:
    context = context_of(matmul(8, 8, 8), target, ScheduleFn(tiled, seed=1), Exhaustive())
    clone = context.clone()
    assert clone.space_generator.postprocs[-1] is not context.space_generator.postprocs[-1]
    clone.pre_tuning(max_trials=8, num_trials_per_iter=4)
    first = [str(c.sch.trace.as_json()) for c in context.generate_measure_candidates(3)]
    second = [str(c.sch.trace.as_json()) for c in clone.generate_measure_candidates()]
    assert second[:3] == first and len(second) == 4
    clone.post_tuning()
    assert len(context.generate_measure_candidates()) == 8
    with pytest.raises(TuneError, match="has no task"):
        _ = clone.search_strategy.context
