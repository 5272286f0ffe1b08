"""Tile a block around a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import pre_order
from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.level_tiling import (
    Levels,
    ReuseType,
    keep_result,
    make_levels,
    tile_by_levels,
)
from tilewright.meta_schedule.schedule_rule.patterns import why_not_tiled
from tilewright.support.errors import ScheduleError, TuneError
from tilewright.tir import Block, BufferStore
from tilewright.tir.attrs import AUTO_TENSORIZE, TILED
from tilewright.tir.schedule import BlockRV, Schedule, tile_with_tensor_intrin
from tilewright.tir.tensor_intrin import TensorIntrin


class MultiLevelTilingWithIntrin(ScheduleRule):
    """Tile reductions whose innermost loops an intrinsic can replace.

    Without ``intrin_name`` it is the first of all registered ones that fits. ``structure`` and the
    further options are those of ``MultiLevelTiling``, for the loops around the intrinsic; extents
    that it doesn't divide are padded. ``RewriteTensorize`` puts it in. By default sums are kept in
    the memory scope that the intrinsic wants.
    """

    name = "multi-level-tiling-with-intrin"

    def __init__(
        self,
        intrin_name: str | None = None,
        structure: str = "SSRSRS",
        tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int = 64,
        vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | None = None,
        reuse_write: ReuseType | None = None,
        *,
        filter_fn: Callable[[Block], bool] | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "tile_binds": tile_binds,
            "max_innermost_factor": max_innermost_factor,
            "vector_load_lens": vector_load_lens,
            "reuse_read": reuse_read,
            "reuse_write": reuse_write,
        }
        self.intrin_name = intrin_name
        self.structure = structure
        self.filter_fn = filter_fn
        self.options = options
        make_levels(structure, **options)
        if intrin_name is not None:
            self._levels(intrin_name)

    def _levels(self, intrin_name: str) -> Levels:
        """Return the levels around an intrinsic.

        Raises ``TuneError`` if they keep results elsewhere than the intrinsic does.
        """
        scope, options = _scope_of(intrin_name), dict(self.options)
        if scope != "global":
            options["reuse_write"] = options["reuse_write"] or ReuseType("must", (2,), scope)
        levels = make_levels(self.structure, **options)
        if levels.reuse_write.req != "no" and levels.reuse_write.scope != scope:
            raise TuneError(
                f"{intrin_name!r} updates memory of scope {scope!r}, reuse_write keeps results in "
                f"{levels.reuse_write.scope!r}"
            )
        return levels

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return one schedule for each way to tile around the intrinsic."""
        if why := why_not_tiled(sch, block, self.filter_fn):
            return NotApplicable(why)
        names = TensorIntrin.names() if self.intrin_name is None else [self.intrin_name]
        reasons = []
        for name in names:
            try:
                made = self._tile(sch.copy(seed=sch.fork_seed()), block, name)
            except (ScheduleError, TuneError) as error:
                reasons.append(error.message)
                continue
            if made is not None:
                return made
        reasons = reasons if self.intrin_name is not None else []
        wanted = self.intrin_name or "any registered intrinsic"
        return NotApplicable(reasons[0] if reasons else f"it isn't what {wanted} computes")

    def _tile(self, sch: Schedule, block: BlockRV, intrin: str) -> list[Schedule] | None:
        levels, scope = self._levels(intrin), _scope_of(intrin)
        kept = None if scope == "global" else keep_result(sch, block, scope)
        loop = tile_with_tensor_intrin(sch, block, intrin, allow_padding=True)
        if loop is None:
            return None
        outer = sch.blockize(loop)
        sch.annotate(outer, AUTO_TENSORIZE, intrin)
        # Tiles are of the outer block; no rule shall tile what is inside of it.
        sch.annotate(block, TILED, self.structure)
        return tile_by_levels(sch, outer, levels, kept)


def _scope_of(intrin_name: str) -> str:
    """Return the scope of the memory that an intrinsic updates."""
    body = TensorIntrin.get(intrin_name).desc.body
    return next(node.buffer.scope for node in pre_order(body) if type(node) is BufferStore)
