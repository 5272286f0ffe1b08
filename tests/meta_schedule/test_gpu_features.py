"""Features of GPU candidates: arrays say what the lowered kernels do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.meta_schedule.conftest import matmul, softmax
from tests.meta_schedule.test_gpu_search import row_sums
from tilewright.meta_schedule import TuneContext
from tilewright.meta_schedule.cost_model import XGBModel
from tilewright.meta_schedule.feature import (
    FEATURE_NAMES,
    GPU_FEATURE_NAMES,
    GPUFeatureFunction,
    features_of,
    names_of,
)
from tilewright.meta_schedule.search_strategy.design import Variant
from tilewright.scheduling.gpu.kernel_bounds import KernelBound, kernel_bounds
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.transform import gpu_pipeline

H200 = Target("nvidia/nvidia-h200")
COLUMN = {name: n for n, name in enumerate(GPU_FEATURE_NAMES)}


def design(func: PrimFunc, target: Target = H200) -> tuple[TuneContext, Variant]:
    context = TuneContext(func, target=target, search_strategy="evolutionary")
    context.pre_tuning(max_trials=64, num_trials_per_iter=4)
    return context, context.search_strategy.variants[0]


def lowered(context: TuneContext, variant: Variant, row: np.ndarray) -> list[KernelBound]:
    """The bounds of a candidate that was built like one that is measured."""
    sch = variant.replay(row)
    for postproc in context.space_generator.postprocs:
        assert postproc.apply(sch) is None
    return kernel_bounds(gpu_pipeline(H200)(sch.mod), H200)


def test_arrays_agree_with_lowered_kernels() -> None:
    context, variant = design(matmul(64, 96, 32))
    rows = variant.draw(60, np.random.default_rng(1))
    made = variant.evaluate(rows)
    assert made.features.shape[2] == len(GPU_FEATURE_NAMES)
    checked = 0
    for n in np.flatnonzero(made.valid)[:6]:
        (bound,) = lowered(context, variant, rows[n])
        found = {key: 2.0 ** made.features[n, -1, at] - 1 for key, at in COLUMN.items()}
        assert found["gpu_blocks"] == pytest.approx(bound.blocks, rel=1e-3)
        assert found["gpu_threads"] == pytest.approx(bound.threads, rel=1e-3)
        assert found["gpu_registers"] == pytest.approx(bound.registers, rel=1e-3)
        assert found["gpu_occupancy"] == pytest.approx(100 * bound.occupancy, rel=1e-3)
        # Padding against bank conflicts, and alignment, come with lowering.
        assert found["gpu_shared_bytes"] == pytest.approx(bound.shared_bytes, rel=0.2, abs=64)
        # Arrays have the first warp's accesses, the other has those of several.
        assert found["gpu_l2"] == pytest.approx(bound.l2 * 1e9, rel=0.25)
        checked += 1
    assert checked == 6


def test_what_a_gpu_cannot_run_is_invalid_before_it_is_built() -> None:
    small = Target("nvidia/nvidia-h200 -max-shared-memory=4096 -max-threads=64")
    _, variant = design(matmul(256, 256, 256), small)
    function = variant.function
    assert isinstance(function, GPUFeatureFunction)
    rows = np.stack([c.draw(400, np.random.default_rng(0)) for c in variant.columns], axis=1)
    made = variant.evaluate(rows)
    shared = 2.0 ** made.features[:, -1, COLUMN["gpu_shared_bytes"]] - 1
    threads = 2.0 ** made.features[:, -1, COLUMN["gpu_threads"]] - 1
    assert (made.valid <= ((shared < 4097) & (threads < 65))).all()
    assert 0 < made.valid.sum() < len(rows)
    drawn = variant.draw(400, np.random.default_rng(0))
    assert variant.evaluate(drawn).valid.mean() > 2 * made.valid.mean()


def test_neighbouring_threads_that_read_columns_touch_more_sectors() -> None:
    """A reduction whose threads stride over rows, and one whose threads share them."""
    context, _ = design(row_sums(512, 512))
    excess = []
    for variant in context.search_strategy.variants:
        rows = variant.draw(32, np.random.default_rng(0))
        made = variant.evaluate(rows)
        excess.append(made.features[:, :, COLUMN["gpu_sector_excess"]].max())
    assert min(excess) < 2 < 2 ** max(excess)


@pytest.mark.parametrize("make", [lambda: softmax(64, 128), lambda: row_sums(3, 50)])
def test_every_kernel_counts(make: object) -> None:
    _, variant = design(make())  # type: ignore[operator]
    made = variant.evaluate(variant.draw(16, np.random.default_rng(0)))
    assert np.isfinite(made.features).all()
    assert (made.cycles[made.valid] > 0).all()


def test_models_keep_features_of_one_kind_of_target(tmp_path: Path) -> None:
    func = matmul(32, 32, 32)
    on_gpu, on_cpu = features_of(func, H200), features_of(func, Target("llvm"))
    assert names_of(H200)[: len(FEATURE_NAMES)] == names_of(Target("llvm")) == FEATURE_NAMES
    model = XGBModel()
    model.learn("task", [on_gpu] * 4, [1e-3, 2e-3, 3e-3, 4e-3])
    with pytest.raises(TuneError, match="one kind of target"):
        model.learn("task", [on_cpu], [1e-3])
    model.save(tmp_path / "model.npz")
    again = XGBModel()
    again.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.score("task", on_gpu), model.score("task", on_gpu))
