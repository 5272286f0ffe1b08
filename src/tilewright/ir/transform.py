"""Passes: ``IRModule -> IRModule``, their composition, options and instruments."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, TypeVar, cast

from tilewright.ir.instrument import PassInfo, PassInstrument
from tilewright.ir.module import BaseFunc, IRModule
from tilewright.support.collector import few_collections
from tilewright.support.errors import TilewrightError, VerifyError
from tilewright.support.naming import named
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
        """Return a value of the right type; ``TilewrightError`` if it isn't.

        An option of several values may be given as a dict of some of them.
        """
        if is_dataclass(self.kind) and isinstance(value, Mapping):
            try:
                return cast(T, self.kind(**value))
            except TypeError as error:
                raise TilewrightError(f"pass option {self.key!r}: {error}") from None
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
    package, _, name = key.partition(".")
    if package in _SECOND_NAMES:
        key = f"tir.{name}"
    if key not in PASS_OPTIONS:
        _import_passes(key.partition(".")[0])
    return PASS_OPTIONS.get(key)


_SECOND_NAMES = ("tirx", "s_tir")  # of the package ``tir``
_ROOT = __name__.partition(".")[0]


def _import_passes(package: str) -> None:
    if package.isidentifier() and importlib.util.find_spec(f"{_ROOT}.{package}") is not None:
        spec = importlib.util.find_spec(f"{_ROOT}.{package}.transform")
        if spec is not None and spec.submodule_search_locations is not None:
            importlib.import_module(f"{_ROOT}.{package}.transform")


class PassContext:
    """Options, instruments and the current target-independent settings of passes.

    ``disabled_pass`` names passes that don't run. In a ``Sequential``, those whose level is above
    ``opt_level`` don't run either, but for those that ``required_pass`` names.

    >>> with PassContext(instruments=[PassTimingInstrument()]):
    ...     mod = some_pass(mod)
    """

    _local = threading.local()

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = set(required_pass or ())
        self.disabled_pass = set(disabled_pass or ())
        self.instruments = list(instruments or ())
        given = {_option(key): value for key, value in (config or {}).items()}
        self.config = {option.key: option.checked(value) for option, value in given.items()}

    @staticmethod
    def current() -> PassContext:
        """Return the innermost active context, or a default one."""
        stack = getattr(PassContext._local, "stack", None)
        return stack[-1] if stack else _DEFAULT

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """Return the options that a context may hold, each with the type of its value."""
        return {option.key: {"type": option.kind.__name__} for option in pass_options()}

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Take other instruments: leave the present ones, if any, and enter these."""
        for instrument in self.instruments:
            instrument.exit_pass_ctx()
        self.instruments = list(instruments or ())
        for instrument in self.instruments:
            instrument.enter_pass_ctx()

    def allows(self, info: PassInfo) -> bool:
        """Whether a pass of a ``Sequential`` runs at this context's level."""
        return info in self.required_pass or info.opt_level <= self.opt_level

    def __enter__(self) -> PassContext:
        stack = getattr(PassContext._local, "stack", None)
        if stack is None:
            stack = PassContext._local.stack = []
        stack.append(self)
        for instrument in self.instruments:
            instrument.enter_pass_ctx()
        return self

    def __exit__(self, *_: object) -> None:
        PassContext._local.stack.pop()
        for instrument in self.instruments:
            instrument.exit_pass_ctx()


_DEFAULT = PassContext()


class Pass:
    """A transformation of modules. Subclasses define ``transform`` and hold options as fields."""

    @property
    def name(self) -> str:
        """The name that instruments and ``disabled_pass`` see."""
        return type(self).__name__

    @property
    def info(self) -> PassInfo:
        """What instruments are told: the name, and the level from which on it runs."""
        return PassInfo(0, self.name)

    @property
    def pass_info(self) -> PassInfo:
        """The same as ``info``."""
        return self.info

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
        context, info = PassContext.current(), self.info
        if info in context.disabled_pass:
            return mod
        if not all(item.should_run(mod, info) for item in context.instruments):
            return mod
        for instrument in context.instruments:
            instrument.run_before_pass(mod, info)
        with few_collections():
            result = self.transform(mod)
        for instrument in context.instruments:
            instrument.run_after_pass(result, info)
        return result

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{self.name}({fields})"


class InfoPass(Pass):
    """A pass that is given what instruments are told of it."""

    def __init__(self, pass_info: PassInfo, function: Callable[..., Any] | None = None) -> None:
        self._info = pass_info
        self._function = function

    @property
    def name(self) -> str:
        """The name given when the pass was made."""
        return self._info.name

    @property
    def info(self) -> PassInfo:
        """What instruments are told."""
        return self._info

    def __repr__(self) -> str:
        return f"{self.name}()"


class ModulePass(InfoPass):
    """A pass made of a function ``(IRModule) -> IRModule``, or ``(IRModule, PassContext)``.

    Without a function, a subclass defines ``transform``.
    """

    def __init__(
        self, pass_info: PassInfo, function: Callable[..., IRModule] | None = None
    ) -> None:
        super().__init__(pass_info, function)
        self._takes_context = function is not None and _takes_context(function)

    def transform(self, mod: IRModule) -> IRModule:
        """Call the function.

        Raises ``NotImplementedError`` if there is none.
        """
        if self._function is None:
            return super().transform(mod)
        context = (PassContext.current(),) if self._takes_context else ()
        made: IRModule = self._function(mod, *context)
        return made


def _takes_context(function: Callable[..., Any]) -> bool:
    """Whether a function needs one more argument than the module."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return sum(each.kind in kinds and each.default is each.empty for each in found) > 1


def pass_decorator(
    own: str, kind: Callable[[PassInfo, Callable[..., Any]], Pass], method: str, doc: str
) -> Callable[..., Any]:
    """Return TVM's decorator that makes passes, called ``own``: those of a ``kind``.

    A function becomes a pass of that kind. A class becomes a class of passes, which do with their
    ``method`` what the kind does with a function.
    """

    def decorate(
        pass_func: object = None,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> Any:
        def make(decorated: Any) -> Any:
            if not callable(decorated):
                raise VerifyError(
                    f"a pass is made of a function or class, got {type(decorated).__name__}"
                )
            info = PassInfo(opt_level or 0, name or decorated.__name__, required, traceable)
            if not inspect.isclass(decorated):
                return kind(info, decorated)
            if not hasattr(decorated, method):
                raise VerifyError(f"{decorated.__name__} must define {method}")
            return _class_of_passes(
                decorated, info, lambda made, mod: kind(info, getattr(made, method)).transform(mod)
            )

        return make if pass_func is None else make(pass_func)

    decorate.__module__ = kind.__module__
    return named(decorate, own, doc)


module_pass = pass_decorator(
    "module_pass",
    ModulePass,
    "transform_module",
    """Turn a function on modules, or a class with such a ``transform_module``, into a pass.

    Use it as a decorator, with options or without. The function takes the module, or the module and
    the ``PassContext``. The pass of a class is made by calling the class.

    Raises ``VerifyError`` for what is neither, and a class without the method.
    """,
)


def _class_of_passes(
    cls: type[Any], about: PassInfo, run: Callable[[Any, IRModule], IRModule]
) -> type[Pass]:
    """Return a subclass of a class whose objects are passes that ``run``."""

    class Made(cls, Pass):  # type: ignore[misc]
        @property
        def name(self) -> str:
            return about.name

        @property
        def info(self) -> PassInfo:
            return about

        def transform(self, mod: IRModule) -> IRModule:
            return run(self, mod)

    Made.__name__, Made.__qualname__, Made.__doc__ = cls.__name__, cls.__qualname__, cls.__doc__
    Made.__module__ = cls.__module__
    return Made


class Sequential(InfoPass):
    """Runs passes in order, but for those whose level is above the context's."""

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None:
        super().__init__(PassInfo(opt_level, name, required, traceable))
        self.passes = list(passes or ())
        for item in self.passes:
            if not callable(item):
                raise TilewrightError(f"Sequential takes passes, got {type(item).__name__}")

    def transform(self, mod: IRModule) -> IRModule:
        """Run all passes in order."""
        context = PassContext.current()
        for item in self.passes:
            if not isinstance(item, Pass) or context.allows(item.info):
                mod = item(mod)
        return mod

    def __repr__(self) -> str:
        return f"{self.name}({self.passes!r})"


class PrintIR(Pass):
    """Prints the module, under a header, and leaves it as it is."""

    def __init__(self, header: str = "") -> None:
        self.header = header

    def transform(self, mod: IRModule) -> IRModule:
        """Print the module."""
        print(f"PrintIR({self.header})\n{mod.script()}")
        return mod
