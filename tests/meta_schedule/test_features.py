"""Features: symbolic arrays agree with concrete replay; single features mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.everyday import few
from tests.meta_schedule.conftest import TASKS, matmul
from tilewright import te
from tilewright.meta_schedule.feature import FEATURE_NAMES, FeatureFunction, extract, features_of
from tilewright.meta_schedule.search_strategy.design import make_variants
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.support.errors import TuneError
from tilewright.tir.schedule import Schedule


def variants_of(func, target):
    generator = SpaceGenerator.create("post-order-apply", target=target)
    mod = Schedule(func).mod
    return make_variants(mod, generator.generate_design_space(mod), target)


def feature(evaluation, name, store=0):
    return float(evaluation.features[0, store, FEATURE_NAMES.index(name)])


@few("name", list(TASKS), every=3)
def test_arrays_agree_with_concrete_replay(name, target):
    rng = np.random.default_rng(3)
    for variant in variants_of(TASKS[name](), target):
        assert variant.function is not None, variant.fallback_reason
        rows = variant.draw(40, rng)
        whole = variant.evaluate(rows)
        for n in range(4):
            sch = variant.replay(rows[n])
            single = FeatureFunction(extract(sch.mod["main"]), target)([], 1)
            np.testing.assert_allclose(single.features[0], whole.features[n], atol=1e-3)
            np.testing.assert_allclose(single.cycles[0], whole.cycles[n], rtol=1e-6)
            assert single.valid[0] == whole.valid[n]


def test_one_vector_per_store_of_fixed_width(target):
    evaluation = features_of(matmul(8, 8, 8), target)
    assert evaluation.features.shape == (1, 1, len(FEATURE_NAMES))
    assert np.isfinite(evaluation.features).all()
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)


def test_operations_are_counted_by_kind(target):
    evaluation = features_of(matmul(8, 16, 32), target)
    assert feature(evaluation, "flops_mad") == pytest.approx(np.log2(1 + 8 * 16 * 32))
    assert feature(evaluation, "flops_mul") == 0
    assert feature(evaluation, "iterations") == pytest.approx(np.log2(1 + 8 * 16 * 32))


def test_accesses_know_their_strides(target):
    sch = Schedule(matmul(8, 16, 32))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    evaluation = features_of(sch.mod["main"], target)
    # C and B run along j, A stands still.
    assert feature(evaluation, "access0_contiguous") == 1
    assert feature(evaluation, "access1_broadcast") == 1
    assert feature(evaluation, "access2_contiguous") == 1
    assert feature(evaluation, "access1_reuse_count") == pytest.approx(np.log2(1 + 16))


def test_footprints(target):
    evaluation = features_of(matmul(8, 16, 32), target)
    assert feature(evaluation, "access1_unique_bytes") == pytest.approx(np.log2(1 + 8 * 32 * 4))
    assert feature(evaluation, "access2_unique_bytes") == pytest.approx(np.log2(1 + 32 * 16 * 4))


def test_rows_that_collide_in_the_cache_are_noticed(target):
    def collisions(width):
        a = te.placeholder((64, width), name="A")
        b = te.compute((width, 64), lambda i, j: a[j, i], name="B")
        return feature(features_of(te.create_prim_func([a, b]), target), "access1_row_collisions")

    assert collisions(1024) > 0
    assert collisions(1040) == 0


def test_register_tiles_that_do_not_fit_are_invalid(target):
    variant = variants_of(matmul(512, 512, 512), target)[0]
    tiles = [n for n, column in enumerate(variant.columns) if column.use == "tile"]
    rows = variant.draw(2, np.random.default_rng(0))
    fits, bursts = [1, 1, 64, 8], [1, 1, 8, 64]
    rows[0, tiles[0]] = variant.columns[tiles[0]].option_of(fits)
    rows[1, tiles[0]] = variant.columns[tiles[0]].option_of(bursts)
    rows[:, tiles[2]] = variant.columns[tiles[2]].option_of([1, 1, 16, 32])
    assert variant.evaluate(rows).valid.tolist() == [True, False]


def test_vector_tiles_are_whole_vectors_where_they_can_be(target):
    variant = variants_of(matmul(512, 512, 512), target)[0]
    last = [column for column in variant.columns if column.use == "tile"][2]
    assert (last.options[:, -1] % 16 == 0).all()


def test_extents_that_are_not_known_are_refused(target):
    n = te.var("n") if hasattr(te, "var") else None
    if n is None:
        pytest.skip("te has no symbolic extents")
    a = te.placeholder((n,), name="A")
    func = te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])
    with pytest.raises(TuneError, match="not known before the program runs"):
        features_of(func, target)
