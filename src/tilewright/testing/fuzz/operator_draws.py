"""What operators of the fuzzer draw: extents, dtypes, operands."""

from __future__ import annotations

import random
from typing import Any

from tilewright import te
from tilewright.target import Target

_SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33]
_FACTORS = [1, 1, 1000, 4099, 65536]
USUAL, EMPTY, HUGE = "usual", "empty", "huge"
"""Which sizes are drawn: some may be nothing, or so large that indices need 64 bits."""


class OperatorDraw:
    """What rows of the table draw; some of the sizes come with the call if ``symbolic``."""

    def __init__(self, rng: random.Random, symbolic: bool, extents: str = USUAL) -> None:
        self.rng = rng
        self.extents = extents
        self.lanes = Target("native").vector_lanes(32)
        self.inputs: list[te.Tensor] = []
        self.symbolic = symbolic
        self.dims: dict[str, int] = {}

    def size(self, most: int = 33, more: int = 0) -> Any:
        """An extent; typed as any number, as it may be a variable."""
        made = more + self.rng.choice([size for size in _SIZES if size <= most])
        if self.extents == EMPTY and not more and self.rng.random() < 0.3:
            made = 0
        elif self.extents == HUGE:
            made *= self.rng.choice(_FACTORS)
        return self.extent(made)

    def extent(self, made: int) -> Any:
        """An extent that was drawn, or a variable that stands for it."""
        if not self.symbolic or self.rng.random() < 0.5:
            return made
        name = f"n{len(self.dims)}"
        self.dims[name] = made
        return te.var(name)

    def value(self, size: Any) -> int:
        """The number that an extent has in this call."""
        return int(size) if isinstance(size, int) else self.dims[size.name]

    def input(self, *shape: Any, dtype: str = "float32") -> te.Tensor:
        """Add an input."""
        made = te.placeholder(shape, dtype, name=f"x{len(self.inputs)}")
        self.inputs.append(made)
        return made

    def dtype(self) -> str:
        """Draw a dtype, float32 more often than others."""
        return self.rng.choice(["float32", "float32", "float64", "float16", "int32", "int8"])
