"""Whole programs that the kinds of stages do not make: what schedules rarely meet.

Their texts lie in ``hard_programs``, by what makes them hard; they use dimensions as stages do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tilewright.testing.fuzz.hard_programs import PROGRAMS
from tilewright.testing.fuzz.programs import Program, Tensor, dims_in


@dataclass(frozen=True)
class HardProgram(Program):
    """A program whose text is fixed but for its dimensions; parameters are its ``inputs``."""

    source: str = ""
    label: str = ""

    def text(self) -> str:
        """Return the program in the dialect ``T``."""
        return super().text() + self.render(self.source).strip("\n") + "\n"

    def is_valid(self) -> bool:
        """Whether it may take the place of another one when faults are made smaller."""
        return all(size > 0 for size in self.dims.values())


def hard_program(rng: random.Random, seed: Any, label: str = "") -> HardProgram:
    """Draw one of the programs of ``PROGRAMS``, with random extents."""
    label = label or rng.choice(sorted(PROGRAMS))
    signature, source = PROGRAMS[label].strip().split("\n", 1)
    source = "\n".join("    " + line if line else line for line in source.split("\n"))
    inputs = []
    for item in signature.split(";"):
        name, shape, dtype, *more = item.split()
        index_of = more[0] if more else ""
        inputs.append(Tensor(name, tuple(shape.split(",")), dtype, 4, index_of))
    used = set().union(*(dims_in(" ".join(t.dims)) for t in inputs), dims_in(source))
    dims = {dim: rng.choice([3, 4, 5, 6, 7, 8, 9, 12]) for dim in sorted(used)}
    alone = {dim for tensor in inputs for dim in tensor.dims if dim in dims}
    symbolic = {dim for dim in alone if rng.random() < 0.15}
    return HardProgram(
        seed, dims, frozenset(symbolic), tuple(inputs), (), frozenset(), source, label
    )


def hard_program_at_times(case: str) -> HardProgram | None:
    """Return such a program for one case in ten, and nothing for the others."""
    rng = random.Random(f"hard {case}")
    return hard_program(rng, case) if rng.random() < 0.1 else None
