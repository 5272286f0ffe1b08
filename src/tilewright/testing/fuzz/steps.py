"""Steps: one application of a primitive each, in a form that outlives the schedule.

A step names its blocks by name and its loops by their place around a block. So a list of steps can
be applied to another program, and with some steps left out, which is what shrinking does; a trace,
whose handles come from earlier instructions, can't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import PRIMITIVES, BlockRV, LoopRV, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping


class Unresolved(Exception):
    """What a step refers to is not there (a step that made it was left out, say)."""


@dataclass(frozen=True)
class BlockRef:
    """A block by name."""

    name: str

    def resolve(self, sch: Schedule, made: Mapping[int, object]) -> BlockRV:
        """Return the handle."""
        try:
            return sch.get_block(self.name)
        except ScheduleError as error:
            raise Unresolved(str(self)) from error


@dataclass(frozen=True)
class LoopRef:
    """The loop at a place (0 is the outermost) around a block."""

    block: str
    place: int

    def resolve(self, sch: Schedule, made: Mapping[int, object]) -> LoopRV:
        """Return the handle."""
        try:
            loops = sch.get_loops(sch.get_block(self.block))
        except ScheduleError as error:
            raise Unresolved(str(self)) from error
        if self.place >= len(loops):
            raise Unresolved(str(self))
        return loops[self.place]


@dataclass(frozen=True)
class Made:
    """A handle that an earlier step returned; it may no longer stand for anything."""

    step: int
    place: int

    def resolve(self, sch: Schedule, made: Mapping[int, Any]) -> Any:
        """Return the handle."""
        results = made.get(self.step)
        if results is None or self.place >= len(results):
            raise Unresolved(str(self))
        return results[self.place]


@dataclass
class Step:
    """A call of a primitive; arguments may hold references, and samplings to be made first."""

    primitive: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def resolve(self, sch: Schedule, made: Mapping[int, object]) -> Any:
        """Sample: the step is an argument of another one."""
        result = self.apply(sch, made)
        if PRIMITIVES.get(self.primitive).samples and "decision" not in self.kwargs:
            # Repeated, it chooses the same.
            self.kwargs["decision"] = sch.trace.insts[-1].decision
        return result

    def arguments(self, sch: Schedule, made: Mapping[int, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with handles in place of references."""
        args = [_resolved(item, sch, made) for item in self.args]
        return args, {key: _resolved(item, sch, made) for key, item in self.kwargs.items()}

    def apply(self, sch: Schedule, made: Mapping[int, object]) -> Any:
        """Call the primitive."""
        args, kwargs = self.arguments(sch, made)
        return getattr(sch, self.primitive)(*args, **kwargs)

    def __str__(self) -> str:
        args = [_text(item) for item in self.args]
        args += [f"{key}={_text(item)}" for key, item in self.kwargs.items()]
        return f"{self.primitive}({', '.join(args)})"


def _resolved(value: object, sch: Schedule, made: Mapping[int, object]) -> object:
    if isinstance(value, (BlockRef, LoopRef, Made, Step)):
        return value.resolve(sch, made)
    if isinstance(value, list):
        return [_resolved(item, sch, made) for item in value]
    if isinstance(value, tuple):
        return tuple(_resolved(item, sch, made) for item in value)
    return value


def _text(value: object) -> str:
    if isinstance(value, BlockRef):
        return value.name
    if isinstance(value, LoopRef):
        return f"{value.block}.loops[{value.place}]"
    if isinstance(value, Made):
        return f"step{value.step}[{value.place}]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value) if isinstance(value, Step) else repr(value)


def results_of(value: object) -> Sequence[object]:
    """Return the handles among what a primitive returned."""
    return value if isinstance(value, (list, tuple)) else [value]
