"""Whole programs that the kinds of stages do not make: what schedules rarely meet.

Their texts lie in ``hard_programs``, by what makes them hard; they use dimensions as stages do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from textwrap import indent

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.testing.fuzz.hard_programs import FAMILIES, PROGRAMS
from tilewright.testing.fuzz.programs import Program, Tensor, dims_in
from tilewright.testing.fuzz.stages import generate

STAGES = "stages"
_SHARE = 0.25
"""How often a case is one of these programs, where no family is asked for."""


@dataclass(frozen=True)
class HardProgram(Program):
    """A program whose text is fixed but for its dimensions; parameters are its ``inputs``."""

    source: str = ""
    label: str = ""
    others: str = ""
    """Further functions of the module."""

    def text(self) -> str:
        """Return the program in the dialect ``T``."""
        text = super().text() + self.render(self.source).strip("\n") + "\n"
        if not self.others:
            return text
        text += "\n" + self.render(self.others).strip("\n") + "\n"
        return "@I.ir_module\nclass Module:\n" + indent(text, "    ")

    def module(self) -> IRModule:
        """Return the program as a module, with its other functions if it has some."""
        if not self.others:
            return super().module()
        made: IRModule = parse(self.text())
        return made

    @property
    def forms(self) -> tuple[str, ...]:
        """What to count it as."""
        return (self.label,)

    def is_valid(self) -> bool:
        """Whether it may take the place of another one when faults are made smaller."""
        return all(size > 0 for size in self.dims.values())


def hard_program(
    rng: random.Random,
    seed: object,
    label: str = "",
    *,
    extents: Sequence[int] = (3, 4, 5, 6, 7, 8, 9, 12),
    iterations: int = 3000,
) -> HardProgram:
    """Draw one of the programs of ``PROGRAMS``, with random extents.

    Their product stays below ``iterations``.
    """
    label = label or rng.choice(sorted(PROGRAMS))
    signature, source, others = _drawn(PROGRAMS[label], rng)
    source = "\n".join("    " + line if line else line for line in source.split("\n"))
    inputs = []
    for item in signature.split(";"):
        name, shape, dtype, *more = item.split()
        note = more[0] if more else ""
        wide = note == "wide"
        dims = tuple(shape.split(","))
        inputs.append(Tensor(name, dims, dtype, 4, "" if wide else note, wide))
    used = set().union(*(dims_in(" ".join(t.dims)) for t in inputs), dims_in(source))
    sizes = {dim: rng.choice(extents) for dim in sorted(used)}
    while prod(sizes.values()) > iterations:
        largest = max(sorted(sizes), key=lambda dim: sizes[dim])
        sizes[largest] = max(extents[0], sizes[largest] // 2)
    alone = {dim for tensor in inputs for dim in tensor.dims if dim in sizes}
    # Functions that call others pass no extents.
    symbolic = {dim for dim in sorted(alone) if rng.random() < 0.15} if not others else set()
    return HardProgram(
        seed, sizes, frozenset(symbolic), tuple(inputs), (), frozenset(), source, label, others
    )


def _drawn(text: str, rng: random.Random) -> tuple[str, str, str]:
    """Draw what a text leaves open; returns the parameters, the body and other functions."""
    text = text.strip()
    while text.startswith("?"):
        line, text = text.split("\n", 1)
        _, name, options = line.split(" ", 2)
        text = text.replace("{" + name + "}", rng.choice(options.split("|")))
    signature, source = text.split("\n", 1)
    source, _, others = source.partition("\n---\n")
    return signature, source, others


def program_of_case(case: str) -> Program:
    """Return the program of a case: ``name@family`` is one of the family.

    The family ``stages`` are random stages; cases without a family are of any.
    """
    rng = random.Random(f"hard {case}")
    name, _, family = case.partition("@")
    if family == STAGES:
        return generate(name)
    if family:
        return hard_program(rng, case, rng.choice(sorted(FAMILIES[family])))
    if rng.random() < _SHARE:
        return hard_program(rng, case, rng.choice(sorted(FAMILIES[rng.choice(sorted(FAMILIES))])))
    return generate(case)
