"""Undo and redo: the history of a schedule.

Programs are persistent, so the state before each primitive is simply kept; undo is a few
assignments. The history is a linked list that copies of a schedule share up to where they diverge.
Schedules without a trace (``record=False``) have no history.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule.error import schedule_error
from tilewright.tir.schedule.instruction import Instruction, handles_in
from tilewright.tir.schedule.running import Running


class Step(NamedTuple):
    """A primitive that ran: its instruction, and the state and random generator before it."""

    inst: Instruction
    saved: tuple[Any, ...]
    drawn: int
    past: Step | None

    @property
    def does_something(self) -> bool:
        """Whether it is more than a look-up: it changes the program, samples or leaves a mark."""
        primitive = self.inst.primitive
        return primitive.samples or not primitive.pure


class Undone(NamedTuple):
    """An undone step, with the look-ups after it, and the state that redo restores."""

    steps: tuple[Step, ...]  # the latest first
    saved: tuple[Any, ...]
    symbolic: tuple[Any, ...]
    drawn: int
    killed: tuple[Any, ...]
    later: Undone | None


class History:
    """The steps of one schedule, done and undone, and the handles that are dead.

    ``dead`` maps a handle to the reason why it must not be used. It is replaced, never changed.
    """

    __slots__ = ("dead", "future", "past")

    def __init__(self) -> None:
        self.past: Step | None = None
        self.future: Undone | None = None
        self.dead: dict[Any, str] = {}

    def copy(self) -> History:
        """Return a history that shares all steps so far."""
        made = History()
        made.past, made.future, made.dead = self.past, self.future, self.dead
        return made

    def remember(
        self, inst: Instruction, saved: tuple[object, ...], drawn: int, past: Step | None
    ) -> None:
        """Add a primitive that ran; steps undone before can't be redone."""
        self.past = Step(inst, saved, drawn, past)
        self.future = None

    # ---- handles --------------------------------------------------------------------------------

    def kill(self, handles: Any, reason: str) -> tuple[Any, ...]:
        """Make handles unusable; returns those that were usable until now."""
        killed = tuple(handle for handle in handles if handle not in self.dead)
        self.dead = {**self.dead, **dict.fromkeys(killed, reason)}
        return killed

    def check_alive(self, values: object, primitive: str | None = None) -> None:
        """Refuse arguments that hold a dead handle."""
        for handle in handles_in(values):
            reason = self.dead.get(handle)
            if reason is not None:
                raise schedule_error(
                    primitive,
                    f"{handle!r} can't be used any more: {reason}",
                    remedy="get a new one, by get_block or get_loops",
                )

    # ---- back and forth -------------------------------------------------------------------------

    def undo(self, sch: Running, count: int) -> list[Instruction]:
        """Undo ``count`` steps; returns their instructions, in the order they ran.

        Raises ``ScheduleError`` if there are fewer, or the trace was changed by hand.
        """
        taken: list[Step] = []
        for _ in range(count):
            taken += self._last(taken[-1].past if taken else self.past, count)
        insts = [step.inst for step in reversed(taken)]
        recorded = sch.trace.insts[len(sch.trace.insts) - len(insts) :]
        if len(recorded) != len(insts) or any(a is not b for a, b in zip(insts, recorded)):
            raise ScheduleError("undo: the trace was changed by hand, so nothing can be taken back")
        while taken:
            first = next(n for n, step in enumerate(taken) if step.does_something)
            self._take_back(sch, tuple(taken[: first + 1]))
            del taken[: first + 1]
        return insts

    def _last(self, step: Step | None, count: int) -> list[Step]:
        """Return the latest step that did something, after the look-ups that followed it."""
        found = []
        while step is not None:
            found.append(step)
            if step.does_something:
                return found
            step = step.past
        there, last = 0, self.past
        while last is not None:
            there += last.does_something
            last = last.past
        raise ScheduleError(
            f"undo: there are {there} primitives to take back, {count} were asked for"
        )

    def _take_back(self, sch: Running, steps: tuple[Step, ...]) -> None:
        state, trace, oldest = sch.state, sch.trace, steps[-1]
        after = state.snapshot(), tuple(state.symbolic), sch.rng.state
        state.restore(oldest.saved)
        sch.rng.state = oldest.drawn
        del trace.insts[len(trace.insts) - len(steps) :]
        kept = {output for inst in trace.insts for output in inst.outputs}
        killed: tuple[Any, ...] = ()
        for step in steps:
            gone = [output for output in handles_in(step.inst.outputs) if output not in kept]
            killed += self.kill(gone, f"undo took back the `{step.inst.name}` that gave it")
        self.past = oldest.past
        self.future = Undone(steps, *after, killed, self.future)

    def redo(self, sch: Running, count: int) -> list[Instruction]:
        """Redo ``count`` undone steps; returns their instructions.

        Raises ``ScheduleError`` if there are fewer.
        """
        there, later = 0, self.future
        while later is not None:
            there, later = there + 1, later.later
        if count > there:
            raise ScheduleError(
                f"redo: there are {there} primitives to bring back, {count} were asked for; "
                "a primitive after undo drops what was taken back"
            )
        insts: list[Instruction] = []
        for _ in range(count):
            undone = self.future
            assert undone is not None
            sch.state.restore(undone.saved)
            sch.state.symbolic[:] = undone.symbolic
            sch.rng.state = undone.drawn
            again = [step.inst for step in reversed(undone.steps)]
            sch.trace.insts.extend(again)
            self.dead = {
                handle: why for handle, why in self.dead.items() if handle not in undone.killed
            }
            self.past, self.future = undone.steps[0], undone.later
            insts += again
        return insts
