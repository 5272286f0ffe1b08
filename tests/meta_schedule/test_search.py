"""Search strategies: what they propose, how they learn, and that proposals are right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.everyday import few
from tests.meta_schedule.conftest import conv2d, matmul, softmax
from tilewright.ir import structural_equal
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import MemoryDatabase, TuningRecord
from tilewright.meta_schedule.feature import candidate_evaluation
from tilewright.meta_schedule.postproc import Postproc, Rejected
from tilewright.meta_schedule.runner import RunnerResult as Result
from tilewright.meta_schedule.search_strategy import EvolutionarySearch, SearchStrategy
from tilewright.meta_schedule.search_strategy.design import Variant, first_of_equals, make_variants
from tilewright.meta_schedule.space_generator import PostOrderApply, ScheduleFn
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import TuneError
from tilewright.tir.analysis import estimate_code_size


def prepared(func, target, strategy="evolutionary", *, model="xgb", database=None, space=None):
    context = TuneContext(
        func,
        target=target,
        space_generator=space or PostOrderApply(),
        search_strategy=strategy,
    )
    cost_model = CostModel.create(model)
    context.pre_tuning(100, 16, database=database, cost_model=cost_model)
    return context, cost_model


def measured(context, candidates, cost_model=None):
    """Report times as a machine would that does exactly what the machine model expects."""
    results = [
        Result((float(candidate_evaluation(context, item).cycles[0]) * 1e-9,))
        for item in candidates
    ]
    if cost_model is not None:
        cost_model.update(context, candidates, results)
    context.search_strategy.notify_runner_results(candidates, results)
    return [result.run_secs[0] for result in results]


@few("strategy", ["evolutionary", "replay-trace"], every=3)
def test_candidates_keep_the_meaning(strategy, task, target, same_result):
    context, _ = prepared(task, target, strategy)
    candidates = context.search_strategy.generate_measure_candidates(4)
    assert len(candidates) == 4
    for candidate in candidates:
        same_result(task, candidate.sch.mod)


def test_candidates_are_new_each_time(target):
    context, model = prepared(matmul(64, 64, 64), target)
    seen = set()
    for _ in range(4):
        candidates = context.search_strategy.generate_measure_candidates(8)
        texts = {item.sch.mod.script() for item in candidates}
        assert len(texts) == 8 and not texts & seen
        seen |= texts
        measured(context, candidates, model)


def test_search_beats_chance(target):
    best = {}
    for strategy in ("evolutionary", "replay-trace"):
        context, model = prepared(matmul(256, 256, 256), target, strategy)
        times = []
        for _ in range(2):
            candidates = context.search_strategy.generate_measure_candidates(8)
            times += measured(context, candidates, model)
        best[strategy] = min(times)
    assert best["evolutionary"] < best["replay-trace"]


def test_same_seed_same_candidates(target):
    texts = []
    for _ in range(2):
        context, _ = prepared(matmul(64, 64, 64), target, EvolutionarySearch(seed=5))
        candidates = context.search_strategy.generate_measure_candidates(6)
        texts.append([item.sch.mod.script() for item in candidates])
    assert texts[0] == texts[1]


def test_the_first_candidates_have_innermost_tiles_of_their_own(target):
    context, model = prepared(matmul(64, 64, 64), target, EvolutionarySearch(eps_greedy=0.0))
    strategy = context.search_strategy
    tried = []
    for fresh in (10, 3):
        before = set(strategy.times)
        candidates = strategy.generate_measure_candidates(12)
        new = [key for key in strategy.times if key not in before]
        tiles = [
            strategy._innermost(number, np.frombuffer(row, dtype=np.int64)) for number, row in new
        ]
        assert len(set(tiles) - set(tried)) >= fresh
        tried += tiles
        measured(context, candidates, model)
    context.post_tuning()
    assert not strategy._tiles


def test_decisions_with_few_options_have_the_best_one_by_score(target):
    """Whatever the generations came across."""
    context, _ = prepared(matmul(64, 64, 64), target, EvolutionarySearch(genetic_num_iters=0))
    strategy = context.search_strategy
    number, variant = next(
        (n, v) for n, v in enumerate(strategy.variants)
        if any(1 < len(c.options) <= 8 for c in v.columns) and v.function is not None
    )  # fmt: skip
    place = next(n for n, c in enumerate(variant.columns) if 1 < len(c.options) <= 8)
    rows = variant.draw(40, strategy.rng)
    rows[:, place] = 0
    group = strategy._evaluated(variant, rows)
    extended = strategy._with_all_options(number, group)
    best = group.rows[np.argmax(group.scores)]
    options = {
        int(row[place]) for row in extended.rows if (np.delete(row - best, place) == 0).all()
    }
    assert len(options) == len(variant.columns[place].options)
    assert extended.scores.max() >= group.scores.max()
    assert len({row.tobytes() for row in extended.rows}) == len(extended.rows)
    assert (
        strategy._with_all_options(number, group.take(np.zeros(len(group.rows), bool))).rows.size
        == 0
    )


def test_small_spaces_are_exhausted(target):
    def scheduled(sch):
        i = sch.get_loops(sch.get_block("C"))[0]
        sch.split(i, sch.sample_perfect_tile(i, 2))

    context, _ = prepared(matmul(6, 8, 8), target, space=ScheduleFn(scheduled, seed=0))
    found = context.search_strategy.generate_measure_candidates(32)
    assert len(found) == 4  # 1x6, 2x3, 3x2, 6x1
    assert context.search_strategy.generate_measure_candidates(32) is None


def test_records_of_the_database_are_not_measured_again(target):
    func = softmax(4, 32)
    context, model = prepared(func, target)
    database = MemoryDatabase()
    workload = database.commit_workload(context.mod)
    candidates = context.search_strategy.generate_measure_candidates(12)
    for candidate, seconds in zip(candidates, measured(context, candidates, model)):
        database.commit_tuning_record(
            TuningRecord(
                candidate.sch.trace.simplified(), workload, (seconds,), context.target, None
            )
        )
    again, model = prepared(func, target, database=database)
    strategy = again.search_strategy
    assert len(strategy.times) == 12
    assert model.trained
    known = set(strategy.times)
    strategy.generate_measure_candidates(12)
    assert len(set(strategy.times) - known) >= 12
    assert all(np.isfinite(strategy.times[key]) for key in known)


class Picky(Postproc):
    name = "picky"

    def apply(self, sch):
        return Rejected("no reason")


def test_rejections_are_counted(target):
    space = PostOrderApply(postprocs=[Picky()])
    context, _ = prepared(softmax(2, 32), target, space=space)
    assert context.search_strategy.generate_measure_candidates(4) is None
    assert context.rejected["picky"] > 0


def test_what_resists_symbolic_replay_is_replayed_and_counted(target):
    def scheduled(sch):
        i, j, _ = sch.get_loops(sch.get_block("C"))
        sch.split(j, sch.sample_tile(j, 2), tail="overlap")  # may be shorter than a tile
        sch.split(i, sch.sample_perfect_tile(i, 2))

    context, model = prepared(matmul(16, 16, 16), target, space=ScheduleFn(scheduled, seed=0))
    strategy = context.search_strategy
    assert strategy.fallback_share == 1.0
    candidates = strategy.generate_measure_candidates(4)
    assert len(candidates) == 4
    measured(context, candidates, model)


def test_default_sketches_need_no_fallback(task, target):
    context, _ = prepared(task, target)
    assert context.search_strategy.fallback_share == 0.0


def test_random_and_no_model(target):
    for name in ("random", "none", "analytic"):
        context, _ = prepared(matmul(32, 32, 32), target, model=name)
        assert len(context.search_strategy.generate_measure_candidates(4)) == 4


def test_errors_say_what_is_expected(target):
    with pytest.raises(TuneError, match="evolutionary"):
        SearchStrategy.create("evolutionery")
    with pytest.raises(TuneError, match="has no task"):
        _ = EvolutionarySearch().context


def test_code_that_is_far_too_large_is_invalid_before_it_is_replayed(target):
    """What is known of a candidate as arrays agrees with its program, roughly."""
    context, _ = prepared(conv2d(16, 14, 32), target)
    rng = np.random.default_rng(0)
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for variant in context.search_strategy.variants:
        rows = np.unique(variant.draw(10, rng), axis=0)
        rows = rows[variant.evaluate(rows).valid]
        variant.limit_code(1000.0)
        for row, fits in zip(rows, variant.evaluate(rows).valid):
            sch = variant.replay(row)
            for postproc in context.space_generator.postprocs:
                postproc.apply(sch)
            sizes[bool(fits)].append(estimate_code_size(sch.mod, target.vector_bits))
    assert min(map(len, sizes.values())) > 10
    assert np.quantile(sizes[True], 0.9) < 4000 and np.quantile(sizes[False], 0.1) > 250


def test_candidates_that_share_decisions_are_replayed_from_there(target):
    """As if each were replayed from the start, in whatever order they come."""
    context, _ = prepared(matmul(32, 32, 32), target)
    rng = np.random.default_rng(0)
    shared = 0
    for variant in context.search_strategy.variants[:3]:
        rows = variant.draw(5, rng)
        alike = rows.copy()
        alike[:, -1] = rows[0, -1]  # the same up to the last decision
        for row in rng.permutation(np.repeat(np.concatenate([rows, alike]), 2, axis=0)):
            shared += tuple(row[:-1]) in variant._begun
            made = variant.replay(row)
            alone = Variant(variant.mod, variant.trace, variant.family, target).replay(row)
            assert structural_equal(made.mod, alone.mod)
            texts = [str(item.trace) for item in (made, alone)]
            assert texts[0] == texts[1]
            made.annotate("root", "of_this_one", 1)
        assert 0 < len(variant._begun) <= 13
    context.search_strategy.notify_runner_results([], [])
    assert not any(variant._begun for variant in context.search_strategy.variants)
    assert shared > 5


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 0), (300, 4), (300, 1)])
@pytest.mark.parametrize("most", [1, 3, 2**40])
def test_different_rows_are_found_as_by_numpy(shape, most):
    rows = np.random.default_rng(0).integers(0, most, shape)
    rows = np.concatenate([rows, rows[::-1]])
    _, wanted = np.unique(rows, axis=0, return_index=True)
    np.testing.assert_array_equal(first_of_equals(rows), wanted)
    if rows.size:
        np.testing.assert_array_equal(rows[first_of_equals(rows)], np.unique(rows, axis=0))


def test_what_was_too_large_keeps_larger_ones_of_its_variant_from_being_replayed(target):
    context, _ = prepared(matmul(64, 64, 64), target)
    variant = context.search_strategy.variants[0]
    rows = np.unique(variant.draw(64, np.random.default_rng(0)), axis=0)
    variant.limit_code(1000.0)
    codes = variant.evaluate(rows).code
    assert codes.min() < 700 < 1000 < codes.max()
    variant.learn_too_large(900.0)
    assert variant.max_code == pytest.approx(891.0)
    variant.learn_too_large(1.0)  # one mistake doesn't rule out all others
    assert variant.max_code == pytest.approx(0.7 * 891.0)
    evaluation = variant.evaluate(rows)
    assert not evaluation.valid[codes > variant.max_code].any()


def test_times_of_failures_are_infinite(target):
    context, _ = prepared(matmul(32, 32, 32), target)
    strategy = context.search_strategy
    candidates = strategy.generate_measure_candidates(3)
    strategy.notify_runner_results(candidates, [Result(None)] * 3)
    assert list(strategy.times.values()) == [np.inf] * 3


def test_padding_is_tried_at_the_root_and_outside_of_loops_it_does_not_depend_on(target):
    context = TuneContext(conv2d(8, 14, 64), target=target, start_from_rules=False)
    sketches = context.generate_design_space()
    variants = make_variants(context.mod, sketches[:1], context.target)
    places = []
    for variant in variants:
        (inst,) = (i for i in variant.trace.insts if i.name == "sample_compute_location")
        places.append(inst.decision)
    assert len(places) == 3
    assert places[0] == -1
    sch = sketches[0]
    names = [
        loop.loop_var.name
        for loop in sch.state.loops_above(sch.state.get_block(sch.get_block("conv2d")))
    ]
    assert all(names[n][0] in "hw" and names[n + 1][0] == "f" for n in places[1:])
