"""Passes: ``IRModule -> IRModule``, their composition, options and instruments."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.ir.module import BaseFunc, IRModule
from tilewright.support.collector import few_collections
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import Registry

PASS_OPTIONS: Registry[type] = Registry("pass option")
"""Every option that a ``PassContext`` may hold, with the type of its value.

The first four say whether a pass takes part, where the target's own order says otherwise;
``disabled_pass`` leaves out any pass by name.
"""

for _name, _kind in (
    ("tir.storage_rewrite", bool),
    ("tir.cse", bool),
    ("tir.hoist_invariants", bool),
    ("tir.narrow_dtype", bool),
    # Stores and calls that copies of loops may add to a function, when conditions are hoisted.
    ("tir.unswitch_limit", int),
    # Error that the choice of a faster algorithm may add to a convolution, relative to its largest
    # result.
    ("relax.conv_max_error", float),
    # Whether chains of operators on 16-bit and smaller floats may stay in float32 in between.
    ("relax.excess_precision", bool),
    # Whether convolutions get channels in blocks: auto, NCHW or NCHWc.
    ("relax.conv_layout", str),
):
    PASS_OPTIONS.register(_name, _kind)


class PassInstrument:
    """Watches passes. Override what you need."""

    def enter_pass_context(self) -> None:
        """Called when the context is entered."""

    def exit_pass_context(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, name: str) -> bool:
        """Return whether the pass may run."""
        return True

    def run_before_pass(self, mod: IRModule, name: str) -> None:
        """Called with the module that the pass will get."""

    def run_after_pass(self, mod: IRModule, name: str) -> None:
        """Called with the module that the pass gave."""


class PassContext:
    """Options, instruments and the current target-independent settings of passes.

    >>> with PassContext(instruments=[PassTimingInstrument()]):
    ...     mod = some_pass(mod)
    """

    _local = threading.local()

    def __init__(
        self,
        *,
        opt_level: int = 2,
        config: Mapping[str, Any] | None = None,
        instruments: Sequence[PassInstrument] = (),
        disabled_pass: Sequence[str] = (),
    ) -> None:
        self.opt_level = opt_level
        self.config = dict(config or {})
        self.instruments = list(instruments)
        self.disabled_pass = set(disabled_pass)
        for key, value in self.config.items():
            expected = PASS_OPTIONS.get(key)
            if not isinstance(value, expected) or (type(value) is bool and expected is not bool):
                raise TilewrightError(
                    f"pass option {key!r} takes {expected.__name__}, got {value!r}"
                )

    @staticmethod
    def current() -> PassContext:
        """Return the innermost active context, or a default one."""
        stack = getattr(PassContext._local, "stack", None)
        return stack[-1] if stack else _DEFAULT

    def option(self, key: str, default: Any) -> Any:
        """Return an option's value, or ``default``."""
        PASS_OPTIONS.get(key)
        return self.config.get(key, default)

    def __enter__(self) -> PassContext:
        stack = getattr(PassContext._local, "stack", None)
        if stack is None:
            stack = PassContext._local.stack = []
        stack.append(self)
        for instrument in self.instruments:
            instrument.enter_pass_context()
        return self

    def __exit__(self, *_: object) -> None:
        PassContext._local.stack.pop()
        for instrument in self.instruments:
            instrument.exit_pass_context()


_DEFAULT = PassContext()


class Pass:
    """A transformation of modules. Subclasses define ``transform`` and hold options as fields."""

    @property
    def name(self) -> str:
        """The name that instruments and ``disabled_pass`` see."""
        return type(self).__name__

    def transform(self, mod: IRModule) -> IRModule:
        """Return the transformed module; the argument is never changed."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(mod)")

    def __call__(self, mod: IRModule) -> IRModule:
        if not isinstance(mod, IRModule):
            if isinstance(mod, BaseFunc):
                mod = IRModule.from_expr(mod)
            else:
                raise TilewrightError(
                    f"pass {self.name} takes an IRModule, got {type(mod).__name__}"
                )
        context = PassContext.current()
        if self.name in context.disabled_pass:
            return mod
        if not all(item.should_run(mod, self.name) for item in context.instruments):
            return mod
        for instrument in context.instruments:
            instrument.run_before_pass(mod, self.name)
        with few_collections():
            result = self.transform(mod)
        for instrument in context.instruments:
            instrument.run_after_pass(result, self.name)
        return result

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{self.name}({fields})"


class FunctionPass(Pass):
    """A pass made of a function ``(IRModule) -> IRModule``."""

    def __init__(self, function: Callable[[IRModule], IRModule], name: str) -> None:
        self._function = function
        self._name = name

    @property
    def name(self) -> str:
        """The name given when the pass was made."""
        return self._name

    def transform(self, mod: IRModule) -> IRModule:
        """Call the wrapped function."""
        return self._function(mod)

    def __repr__(self) -> str:
        return f"{self._name}()"


def module_pass(name: str) -> Callable[[Callable[[IRModule], IRModule]], FunctionPass]:
    """Turn a function on modules into a pass."""
    return lambda function: FunctionPass(function, name)


class Sequential(Pass):
    """Passes one after the other."""

    def __init__(self, passes: Sequence[Pass], name: str = "Sequential") -> None:
        self.passes = list(passes)
        self._name = name
        for item in self.passes:
            if not callable(item):
                raise TilewrightError(f"Sequential takes passes, got {type(item).__name__}")

    @property
    def name(self) -> str:
        """The name of the whole."""
        return self._name

    def transform(self, mod: IRModule) -> IRModule:
        """Run all passes in order."""
        for item in self.passes:
            mod = item(mod)
        return mod

    def __repr__(self) -> str:
        return f"{self._name}({self.passes!r})"


class PassTimingInstrument(PassInstrument):
    """Measures each pass; ``render()`` gives a table, seconds in total per pass name.

    The time of a sequence is that of its passes together.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._started: list[tuple[str, float]] = []

    def run_before_pass(self, mod: IRModule, name: str) -> None:
        """Start the clock."""
        self._started.append((name, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, name: str) -> None:
        """Stop the clock."""
        # Passes inside that failed never ended.
        started, since = self._started.pop()
        while started != name:
            started, since = self._started.pop()
        spent = time.perf_counter() - since
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self.calls[name] = self.calls.get(name, 0) + 1

    def render(self) -> str:
        """Return one line per pass, the costliest first."""
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        return "\n".join(
            f"{seconds * 1e3:10.3f} ms  {self.calls[name]:5d}x  {name}" for name, seconds in rows
        )


class DumpIR(PassInstrument):
    """Writes modules as script into a folder, numbered in order: before the first pass, after each.

    ``NNN_PassName.py`` is what the pass gave, ``NNN_before_PassName.py`` what it got, where that is
    not what the pass before it gave. A pass that changes nothing writes nothing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._number = 0
        self._latest: IRModule | None = None

    def run_before_pass(self, mod: IRModule, name: str) -> None:
        """Write ``NNN_before_PassName.py`` if nobody has seen the module."""
        self._write(mod, f"before_{name}")

    def run_after_pass(self, mod: IRModule, name: str) -> None:
        """Write ``NNN_PassName.py``."""
        self._write(mod, name)

    def _write(self, mod: IRModule, name: str) -> None:
        if mod is self._latest:
            return
        self._latest = mod
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self._number:03d}_{name}.py").write_text(mod.script())
        self._number += 1
