"""Passes: ``IRModule -> IRModule``, their composition, options and instruments."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tilewright.ir.module import BaseFunc, IRModule
from tilewright.support.collector import few_collections
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import Registry

T = TypeVar("T")


@dataclass(frozen=True)
class PassOption(Generic[T]):
    """An option that a ``PassContext`` may hold, by ``key``; made by :func:`pass_option`."""

    key: str
    kind: type[T]
    default: T
    means: str

    def value(self, default: T | None = None) -> T:
        """Return the active context's value, else ``default``, else the option's own default."""
        found = PassContext.current().config.get(self.key, default)
        return self.default if found is None else self.checked(found)

    def checked(self, value: object) -> T:
        """Return a value of the right type; ``TilewrightError`` if it isn't."""
        if not isinstance(value, self.kind) or (type(value) is bool and self.kind is not bool):
            raise TilewrightError(
                f"pass option {self.key!r} takes {self.kind.__name__}, got {value!r}"
            )
        return value


PASS_OPTIONS: Registry[PassOption[Any]] = Registry("pass option")
"""The options of the passes that have been imported; see :func:`pass_options`."""


def pass_option(key: str, kind: type[T], default: T, means: str) -> PassOption[T]:
    """Register an option next to the pass that reads it.

    The key starts with the package of the pass: ``tir.cse`` is read in ``tilewright.tir.transform``
    (or later in a build).
    """
    made = PassOption(key, kind, default, means)
    PASS_OPTIONS.register(key, made)
    return made


def pass_options() -> list[PassOption[Any]]:
    """Return all options sorted by key, including those of passes not yet imported."""
    for item in pkgutil.iter_modules(importlib.import_module(_ROOT).__path__):
        if item.ispkg:
            _import_passes(item.name)
    return [option for _, option in sorted(PASS_OPTIONS.items())]


def _option(key: str) -> PassOption[Any]:
    if key not in PASS_OPTIONS:
        _import_passes(key.partition(".")[0])
    return PASS_OPTIONS.get(key)


_ROOT = __name__.partition(".")[0]


def _import_passes(package: str) -> None:
    if package.isidentifier() and importlib.util.find_spec(f"{_ROOT}.{package}") is not None:
        spec = importlib.util.find_spec(f"{_ROOT}.{package}.transform")
        if spec is not None and spec.submodule_search_locations is not None:
            importlib.import_module(f"{_ROOT}.{package}.transform")


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
        """Called with the pass's input module."""

    def run_after_pass(self, mod: IRModule, name: str) -> None:
        """Called with the pass's result module."""


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
        config: Mapping[str, object] | None = None,
        instruments: Sequence[PassInstrument] = (),
        disabled_pass: Sequence[str] = (),
    ) -> None:
        self.opt_level = opt_level
        self.config = dict(config or {})
        self.instruments = list(instruments)
        self.disabled_pass = set(disabled_pass)
        for key, value in self.config.items():
            _option(key).checked(value)

    @staticmethod
    def current() -> PassContext:
        """Return the innermost active context, or a default one."""
        stack = getattr(PassContext._local, "stack", None)
        return stack[-1] if stack else _DEFAULT

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
    """Runs passes in order."""

    def __init__(self, passes: Sequence[Pass], name: str = "Sequential") -> None:
        self.passes = list(passes)
        self._name = name
        for item in self.passes:
            if not callable(item):
                raise TilewrightError(f"Sequential takes passes, got {type(item).__name__}")

    @property
    def name(self) -> str:
        """The name of the sequence."""
        return self._name

    def transform(self, mod: IRModule) -> IRModule:
        """Run all passes in order."""
        for item in self.passes:
            mod = item(mod)
        return mod

    def __repr__(self) -> str:
        return f"{self._name}({self.passes!r})"


class PassTimingInstrument(PassInstrument):
    """Measures each pass; ``render()`` returns a table of total seconds per pass name.

    The time of a sequence includes that of its passes.
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

    ``NNN_PassName.py`` is the pass's result, ``NNN_before_PassName.py`` its input, written only if
    that is not the previous pass's result. A pass that changes nothing writes nothing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._number = 0
        self._latest: IRModule | None = None

    def run_before_pass(self, mod: IRModule, name: str) -> None:
        """Write ``NNN_before_PassName.py`` if the module was not written before."""
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
