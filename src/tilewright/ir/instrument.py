"""Instruments: what watches passes, to time them, to print or to keep what they make."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tilewright.ir.module import IRModule


class PassInfo(str):
    """What is known about a pass: its name, which the text itself is, and when it runs.

    In a ``Sequential``, it runs if its ``opt_level`` isn't above the context's.
    """

    opt_level: int
    required: tuple[str, ...]
    traceable: bool

    def __new__(
        cls, opt_level: int, name: str, required: object = None, traceable: bool = False
    ) -> PassInfo:
        if required:
            raise ValueError(
                f"pass {name!r} requires {required}: passes don't run others by name; put them "
                "before it, into a Sequential"
            )
        made = super().__new__(cls, name)
        made.opt_level, made.required, made.traceable = opt_level, (), traceable
        return made

    @property
    def name(self) -> str:
        """The name of the pass."""
        return str(self)


class PassInstrument:
    """Watches passes. Override what you need; ``info`` is the name of a pass, and more."""

    @property
    def name(self) -> str:
        """The name of the instrument: that of its class."""
        return type(self).__name__

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Return whether the pass may run."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the pass's input module."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the pass's result module."""


def pass_instrument(pi_cls: type | None = None) -> Any:
    """Turn a class with some of an instrument's methods into an instrument.

    Use it as a decorator, with or without parentheses.
    """

    def make(cls: type) -> type:
        if issubclass(cls, PassInstrument):
            return cls
        return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__})

    return make if pi_cls is None else make(pi_cls)


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the pass's input."""
        print(f"Before running pass: {info}\n{mod.script()}")


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the pass's result."""
        print(f"After running pass: {info}\n{mod.script()}")


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after passes of some names."""

    def __init__(
        self, print_before_pass_names: Collection[str], print_after_pass_names: Collection[str]
    ) -> None:
        self.print_before_pass_names = print_before_pass_names
        self.print_after_pass_names = print_after_pass_names

    def run_before_pass(self, mod: IRModule, pass_info: PassInfo) -> None:
        """Print the pass's input, if it is asked for."""
        if pass_info in self.print_before_pass_names:
            print(f"Print IR before: {pass_info}\n{mod.script()}")

    def run_after_pass(self, mod: IRModule, pass_info: PassInfo) -> None:
        """Print the pass's result, if it is asked for."""
        if pass_info in self.print_after_pass_names:
            print(f"Print IR after: {pass_info}\n{mod.script()}")


class PassTimingInstrument(PassInstrument):
    """Measures each pass; ``render()`` returns a table of total seconds per pass name.

    The time of a sequence includes that of its passes.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._started: list[tuple[str, float]] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Start the clock."""
        self._started.append((info, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Stop the clock."""
        # Passes inside that failed never ended.
        started, since = self._started.pop()
        while started != info:
            started, since = self._started.pop()
        spent = time.perf_counter() - since
        self.seconds[info] = self.seconds.get(info, 0.0) + spent
        self.calls[info] = self.calls.get(info, 0) + 1

    def render(self) -> str:
        """Return one line per pass, the costliest first."""
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        return "\n".join(
            f"{seconds * 1e3:10.3f} ms  {self.calls[name]:5d}x  {name}" for name, seconds in rows
        )


class DumpIR(PassInstrument):
    """Writes modules as script into a folder, numbered in order: before the first pass, after each.

    ``NNN_PassName.py`` is the pass's result, ``NNN_before_PassName.py`` its input, written only if
    that is not the previous pass's result. A pass that changes nothing writes nothing. ``refresh``
    removes what was written into the folder before.
    """

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.folder = Path(dump_dir)
        if refresh and self.folder.is_dir():
            for old in self.folder.glob("[0-9][0-9][0-9]_*.py"):
                old.unlink()
        self._number = 0
        self._latest: IRModule | None = None

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write ``NNN_before_PassName.py`` if the module was not written before."""
        self._write(mod, f"before_{info}")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write ``NNN_PassName.py``."""
        self._write(mod, info)

    def _write(self, mod: IRModule, name: str) -> None:
        if mod is self._latest:
            return
        self._latest = mod
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self._number:03d}_{name}.py").write_text(mod.script())
        self._number += 1
