"""One program under one sequence of primitives, watched.

What the program means is said twice, by NumPy from its text (``oracle``) and by the interpreter.
After each primitive that was accepted the program verifies and computes what it did before; after
each that was refused the module is the same object and the error says why. At the end the trace
replays from JSON and from Python text, the program prints and parses back, and compiled code
agrees. What goes wrong is raised as ``Fault``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.driver import compile as compile_module
from tilewright.ir import (
    IRModule,
    Sequential,
    structural_equal,
)
from tilewright.runtime import guarded
from tilewright.script import parse
from tilewright.support.errors import BuildError, CodegenError, LowerError, RunError, ScheduleError
from tilewright.testing.fuzz.oracle import numpy_function
from tilewright.testing.fuzz.oracle_syntax import NotCovered
from tilewright.testing.fuzz.oracle_values import FILLS
from tilewright.testing.fuzz.programs import Program
from tilewright.testing.fuzz.replays import wrong_replay
from tilewright.testing.fuzz.steps import Step, Unresolved, results_of
from tilewright.tir import For, PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import compile_function, python_source
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.schedule import PRIMITIVES, Schedule
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.plan_buffer_allocation import PlanBufferAllocation
from tilewright.tir.walk import statements

ACCEPTED, REFUSED, SKIPPED = "accepted", "refused", "skipped"
UNSUPPORTED = (LowerError, CodegenError, BuildError)
"""What a lowering pass or code generator says of what it does not support."""


class Fault(Exception):
    """Something that must not happen: ``kind`` groups faults, ``detail`` tells about this one."""

    def __init__(self, kind: str, primitive: str, detail: str) -> None:
        super().__init__(f"{kind} ({primitive}): {detail}")
        self.kind = kind
        self.primitive = primitive
        self.detail = detail

    def __reduce__(self) -> Any:
        return Fault, (self.kind, self.primitive, self.detail)


class TooLong(Exception):
    """A program can't be compared: it runs too long, or fails as it is, before any step.

    Tiles multiply; products leave the range of their type. Nothing is known against a step.
    """


class TooSlow(BaseException):
    """A step ran past its time; no ``Exception``, so that nothing on the way catches it."""


@contextmanager
def deadline(seconds: float, *, of_cpu: bool = False) -> Iterator[None]:
    """Raise ``TooSlow`` in the body when the time is over.

    Time ``of_cpu`` is the process's own: other programs on the machine take nothing from it.
    """
    timer, number = signal.ITIMER_REAL, signal.SIGALRM
    if of_cpu:
        timer, number = signal.ITIMER_PROF, signal.SIGPROF

    def ring(*_: object) -> None:
        raise TooSlow

    old = signal.signal(number, ring)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, old)


class Session:
    """A program, its schedule, and what it computed when it was not yet scheduled."""

    def __init__(self, program: Program, *, seed: int = 0, limit: float = 20.0) -> None:
        self.program = program
        self.mod = program.module()
        self.func = self.mod["main"]
        names = sorted(self.mod.functions)
        self.scheduled = names[seed % len(names)]
        """The function that steps are about."""
        self.sch = self.fresh(self.mod, seed)
        self.made: dict[int, Any] = {}
        self.steps: list[Step] = []
        """Steps that were accepted."""
        self.limit = limit
        self.data_seed = seed % 10007
        self.sizes = program.sizes()
        self.data: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.expected: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.seen = ""
        self.seconds = 0.0
        """How long the program took when it was last interpreted."""
        self.runs = 0
        self.not_covered = ""
        """What the oracle doesn't know; the interpreter says what the program means then."""
        self.last = ""

    def fresh(self, mod: IRModule, seed: int | None = None) -> Schedule:
        """Return a schedule of a module on which nothing was done yet."""
        sch = Schedule(mod, seed=seed)
        sch.work_on(self.scheduled)
        return sch

    # ---- steps ----------------------------------------------------------------------------------

    def apply(self, step: Step, *, render: bool = True) -> str:
        """Apply a step and check; says whether it was accepted."""
        sch = self.sch
        before, recorded = sch.mod, len(sch.trace)
        name = self.last = step.primitive
        try:
            with deadline(self.limit):
                result = step.apply(sch, self.made)
        except Unresolved:
            return SKIPPED
        except ScheduleError as error:
            self.check_refusal(name, before, recorded, error, render)
            return REFUSED
        except TooSlow:
            raise Fault("slow", name, f"{step} took more than {self.limit:g} s") from None
        except RecursionError as error:
            raise Fault("crash", name, f"{step}: {error!r}") from error
        except Exception as error:
            raise Fault("crash", name, f"{step}: {type(error).__name__}: {error}") from error
        self.made[step.number] = results_of(result)
        self.steps.append(step)
        if sch.mod is not before:
            if PRIMITIVES.get(name).pure:
                raise Fault("question changed the program", name, str(step))
            self.check_program(step)
        return ACCEPTED

    def check_refusal(
        self, name: str, before: IRModule, recorded: int, error: ScheduleError, render: bool
    ) -> None:
        """A refusal changes nothing, records nothing and says why."""
        if self.sch.mod is not before:
            raise Fault("refusal changed the program", name, str(error))
        if any(not inst.primitive.pure for inst in self.sch.trace.insts[recorded:]):
            raise Fault("refusal was recorded", name, str(error))
        if not render:
            return
        try:
            text = str(error)
        except Exception as problem:
            raise Fault("message", name, f"rendering failed: {problem!r}") from problem
        if len(text) < 10:
            raise Fault("message", name, f"the message says nothing: {text!r}")

    def check_program(self, step: Step) -> None:
        """The program is well formed and computes the same."""
        try:
            verify(self.sch.mod)
        except Exception as error:
            raise Fault("not well formed", step.primitive, f"after {step}: {error}") from error
        self.compare(self.sch.mod, step.primitive)

    # ---- running --------------------------------------------------------------------------------

    def check_start(self) -> None:
        """Interpreter and oracle agree on the program as it is."""
        self.reference(0)
        for sizes in self.program.least_sizes():
            if self.is_defined(sizes):
                self.sizes.append(sizes)
        for which in range(len(self.sizes)):
            expected = self.reference(which)
            actual = self.arrays(which)
            try:
                self.interpreted(*actual)
            except Exception as error:
                detail = f"interpreter, {type(error).__name__}: {error}"
                raise Fault("oracle", "", detail) from error
            self.agree("oracle", "", expected, actual, "interpreter, ")

    def is_defined(self, sizes: dict[str, int]) -> bool:
        """Whether the program makes sense for some sizes: it may need more than nothing."""
        try:
            self.interpreted(*self.program.arrays(self.data_seed, sizes))
        except (RunError, ValueError):
            return False
        return self.not_covered != "" or not self.reads_nothing_written(sizes)

    def reads_nothing_written(self, sizes: dict[str, int]) -> bool:
        """Whether what memory was full of before can be seen in the results."""
        results = []
        for fill in FILLS:
            results.append(self.program.arrays(self.data_seed, sizes))
            numpy_function(self.program.text(), fill=fill)(*results[-1])
        return any(a.tobytes() != b.tobytes() for a, b in zip(*results))

    def reference(self, which: int) -> list[np.ndarray[Any, Any]]:
        """Return what the unscheduled program makes of the data."""
        found = self.expected.get(which)
        if found is None:
            found = self.arrays(which)
            try:
                self.meaning(*found)
            except Exception as error:
                raise Fault("oracle", "", f"{type(error).__name__}: {error}") from error
            self.expected[which] = found
        return found

    @cached_property
    def meaning(self) -> Any:
        """The unscheduled program as a function: the oracle's if it knows what it uses."""
        try:
            return numpy_function(self.program.text())
        except NotCovered as reason:
            self.not_covered = str(reason)
            return self.interpreted

    @cached_property
    def interpreted(self) -> Any:
        """The unscheduled program as a function, by the interpreter."""
        return compile_function(self.func, self.mod)

    def arrays(self, which: int) -> list[np.ndarray[Any, Any]]:
        """Return arguments that a run may change."""
        if which not in self.data:
            self.data[which] = self.program.arrays(self.data_seed, self.sizes[which])
        return [array.copy() for array in self.data[which]]

    def compare(self, mod: IRModule, primitive: str, *, every: bool = False) -> None:
        """Interpret a version of the program and compare with the unscheduled one."""
        try:
            text = "".join(
                python_source(func, functions=mod).text
                for _, func in sorted(mod.functions.items())
                if isinstance(func, PrimFunc)
            )
        except Exception as error:
            raise Fault("interpreter", primitive, f"{type(error).__name__}: {error}") from error
        if text != self.seen or every:
            self.run(compile_function(mod["main"], mod), primitive, every)
            self.seen = text
        if kinds_of_loops(mod[self.scheduled]) & {"parallel", "vectorized"}:
            # Loops whose iterations may run at the same time, from the end.
            turned = compile_function(mod["main"], mod, backwards=True)
            self.run(turned, primitive, every, "backwards, ")

    def run(self, program: Callable[..., None], primitive: str, every: bool, how: str = "") -> None:
        """Run on one set of extents, or on all, and compare."""
        self.runs += 1
        chosen = range(len(self.sizes)) if every else [self.runs % len(self.sizes)]
        for which in chosen:
            expected = self.reference(which)
            actual = self.arrays(which)
            start = time.perf_counter()
            try:
                with deadline(self.limit):
                    program(*actual)
            except TooSlow:
                raise TooLong(f"{how}after {primitive}") from None
            except Exception as error:
                raise Fault(
                    "program fails", primitive, f"{how}{type(error).__name__}: {error}"
                ) from error
            self.seconds = time.perf_counter() - start
            self.agree("meaning", primitive, expected, actual, how)

    def agree(
        self, kind: str, primitive: str, expected: list[Any], actual: list[Any], how: str = ""
    ) -> None:
        """Compare arguments after two runs."""
        for tensor, a, b in zip(self.program.params, expected, actual):
            if self.program.exact:
                same = a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True)
            else:
                tolerance = self.program.tolerance
                same = a.dtype.kind != "f" and np.array_equal(a, b)
                same = same or np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
            if not same:
                where = np.argwhere(~(a == b))
                first = tuple(int(item) for item in where[0]) if len(where) else ()
                raise Fault(
                    kind, primitive,
                    f"{how}{tensor.name} differs in {len(where)} of {a.size} places, first at "
                    f"{list(first)}: expected {a[first]}, got {b[first]}",
                )  # fmt: skip

    # ---- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check what holds of the sequence as a whole."""
        self.check_replay()
        self.check_script()
        if self.program.symbolic:
            self.compare(self.sch.mod, self.last, every=True)

    def check_replay(self) -> None:
        """The trace gives the same program again."""
        # Equal in structure, but not the same objects.
        again = self.fresh(self.mod.map_functions(lambda _, func: renew_definitions(func)))
        trace, python = self.sch.trace, self.data_seed % 2 == 0
        try:
            wrong = wrong_replay(again, trace, self.sch.mod, python=python)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}\n{trace}"
            raise Fault("replay", self.culprit(error), detail) from error
        if wrong is not None:
            raise Fault("replay", self.last, wrong)

    def culprit(self, error: Exception) -> str:
        """Name the primitive that a replay stopped at."""
        words = str(error).partition("(")[2].partition(")")[0]
        return words if words in PRIMITIVES else self.last

    def check_script(self) -> None:
        """The program prints and parses back."""
        mod = self.sch.mod
        try:
            text = mod.script()
            back = parse(text)
        except Exception as error:
            raise Fault("script", self.last, f"{type(error).__name__}: {error}") from error
        if not structural_equal(back, mod, map_free_vars=True):
            raise Fault("script", self.last, f"the text parses to another program:\n{text}")

    def check_undo(self) -> None:
        """``undo`` brings back the program before the last primitive, ``redo`` the one after."""
        sch = self.sch
        if not any(not inst.primitive.pure for inst in sch.trace.insts):
            return
        mod, count, state = sch.mod, len(sch.trace), sch.rng.state
        try:
            taken = sch.undo()
            if not taken or len(sch.trace) >= count:
                raise Fault("undo", self.last, "the trace is as long as before")
            verify(sch.mod)
            sch.redo()
        except (Fault, TooSlow):
            raise
        except Exception as error:
            raise Fault("undo", self.last, f"{type(error).__name__}: {error}") from error
        if not structural_equal(sch.mod, mod) or sch.rng.state != state:
            raise Fault("undo", self.last, "redo gives another program or another generator")

    def check_compiled(self) -> str:
        """Compile and compare; returns why it can't be compiled, or nothing."""
        try:
            with deadline(4 * self.limit):
                module = compile_module(self.sch.mod)
        except UNSUPPORTED as error:
            if "LLVM can't read" in str(error):  # ours was wrong, nothing was refused
                raise Fault("compile", self.last, str(error)) from error
            return f"{type(error).__name__}: {_gist(str(error))}"
        except TooSlow:
            raise Fault("slow", "compile", "compiling took too long") from None
        except Exception as error:
            raise Fault("compile", self.last, f"{type(error).__name__}: {error}") from error
        for which in range(len(self.sizes)):
            actual = [guarded(array) for array in self.arrays(which)]
            try:
                module["main"](*actual)
            except Exception as error:
                raise Fault(
                    "compiled code fails", self.last, f"{type(error).__name__}: {error}"
                ) from error
            self.agree("compiled code differs", self.last, self.reference(which), actual)
        # New memory in each iteration is often the old one again; the interpreter's never is.
        planned = _PLANNED(self.sch.mod)
        self.run(compile_function(planned["main"], planned), self.last, False, "planned, ")
        return ""


_PLANNED = Sequential([LowerInitBlock(), PlanBufferAllocation()])
"""Lowering up to where allocations have moved to where they are used."""


def _gist(message: str) -> str:
    """Return the first line of a message without names and numbers, to group by."""
    words = message.strip().split("\n")[0].split()
    return " ".join(w for w in words if not any(c.isdigit() or c in "'\"`" for c in w))[:90]


def kinds_of_loops(func: PrimFunc) -> set[str]:
    """Return the kinds of all loops of a function."""
    return {stmt.kind for stmt in statements(func) if type(stmt) is For}
