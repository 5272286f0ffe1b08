"""Tile so that the innermost loop is one wide vector."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.meta_schedule.schedule_rule.level_tiling import ReuseType, make_levels
from tilewright.meta_schedule.schedule_rule.multi_level_tiling import MultiLevelTiling
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import Block


class MultiLevelTilingWideVector(MultiLevelTiling):
    """Tile by level, with an innermost loop of ``vector_length_in_bits`` along the result's memory.

    Where that doesn't divide the axis it is tiled as the others are. ``None`` takes the target's
    widest vector. The further options are those of ``MultiLevelTiling``.
    """

    name = "multi-level-tiling-wide-vector"

    def __init__(
        self,
        structure: str = "SSRSRS",
        vector_length_in_bits: int | None = None,
        max_innermost_factor: int = 64,
        reuse_read: ReuseType | None = None,
        reuse_write: ReuseType | None = None,
        *,
        filter_fn: Callable[[Block], bool] | None = None,
    ) -> None:
        super().__init__(structure, max_innermost_factor=max_innermost_factor, filter_fn=filter_fn)
        if vector_length_in_bits is not None and vector_length_in_bits < 8:
            raise TuneError(f"vectors have at least 8 bits, got {vector_length_in_bits}")
        self.vector_length_in_bits = vector_length_in_bits
        self.reuse_read, self.reuse_write = reuse_read, reuse_write
        self._choose_levels(vector_length_in_bits or 0)

    def initialize(self, target: Target) -> None:
        """Learn the widest vector."""
        self._choose_levels(self.vector_length_in_bits or target.vector_bits)

    def _choose_levels(self, vector_bits: int) -> None:
        self.levels = make_levels(
            self.structure,
            max_innermost_factor=self.max_innermost_factor,
            reuse_read=self.reuse_read,
            reuse_write=self.reuse_write,
            vector_bits=vector_bits,
        )
