"""Specifications of a module's methods for export: what they take, and how effects are passed.

    {"forward": {"x": nn.spec.Tensor(("n", 4), "float32"), "length": int, "$": {...}}}

``"$"`` may have ``"param_mode"`` and ``"effect_mode"``: ``"plain"`` (one by one), ``"packed"`` (as
one tuple), ``"none"`` (not at all).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import dtypes
from tilewright.support.errors import VerifyError


@dataclass(frozen=True)
class Tensor:
    """A tensor argument; extents are numbers or names of symbolic extents (``"batch"``)."""

    shape: tuple[int | str, ...]
    dtype: str = "float32"

    def __init__(self, shape: Sequence[int | str], dtype: str = "float32") -> None:
        dtypes.split_dtype(dtype)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True)
class Int:
    """A size: an argument that defines a symbolic extent of the same name."""


@dataclass(frozen=True)
class Object:
    """An argument of which the graph knows nothing; the method gets an ``object_type`` of it."""

    object_type: type


@dataclass(frozen=True)
class Tuple:
    """Several arguments in one."""

    name: str
    elements: tuple[Any, ...]

    def __init__(self, name: str, elements: Sequence[Any]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "elements", tuple(elements))


ArgSpec = Tensor | Int | Object | Tuple

_MODES = ("plain", "packed", "none")


@dataclass(frozen=True)
class MethodSpec:
    """What a method takes."""

    method: Callable[..., Any]
    arg_names: list[str]
    arg_specs: list[ArgSpec]
    param_mode: str = "plain"
    effect_mode: str = "plain"

    def __post_init__(self) -> None:
        for name in ("param_mode", "effect_mode"):
            if getattr(self, name) not in _MODES:
                raise VerifyError(
                    f"{name} must be 'plain', 'packed' or 'none', got {getattr(self, name)!r}"
                )

    @staticmethod
    def from_raw(spec: MethodSpec | Mapping[str, Any], method: Callable[..., Any]) -> MethodSpec:
        """Read a specification that is written as a dictionary.

        Raises ``VerifyError`` for names that the method doesn't take, and unknown values.
        """
        if isinstance(spec, MethodSpec):
            return spec
        given = dict(spec)
        modes = dict(given.pop("$", {}))
        unknown = sorted(modes.keys() - {"param_mode", "effect_mode"})
        if unknown:
            raise VerifyError(f"'$' has 'param_mode' and 'effect_mode', not {unknown[0]!r}")
        name = getattr(method, "__name__", repr(method))
        names = _argument_names(method, given)
        if wrong := sorted(given.keys() ^ set(names)):
            raise VerifyError(
                f"{name} takes {', '.join(names) or 'nothing'}: describe each of them "
                f"(see {', '.join(wrong)})"
            )
        specs = [_argument(given[key], key, name) for key in names]
        return MethodSpec(method, names, specs, **modes)

    @staticmethod
    def from_torch(args: Sequence[Any], method: Callable[..., Any]) -> MethodSpec:
        """Describe what a method takes by examples: tensors and integers."""
        names = _argument_names(method, {})
        if len(names) != len(args):
            raise VerifyError(f"the method takes {', '.join(names)}, got {len(args)} examples")
        return MethodSpec(method, names, [_example(item) for item in args])


@dataclass(frozen=True)
class ModuleSpec:
    """What the methods of a module take."""

    module: Any
    method_names: list[str]
    method_specs: list[MethodSpec]

    @staticmethod
    def from_raw(spec: ModuleSpec | Mapping[str, Any], module: object) -> ModuleSpec:
        """Read a specification that is written as a dictionary.

        Raises ``VerifyError`` for names of methods that the module doesn't have.
        """
        if isinstance(spec, ModuleSpec):
            return spec
        for name in spec:
            if not hasattr(module, name):
                raise VerifyError(f"{type(module).__name__} has no method {name!r}")
        methods = [MethodSpec.from_raw(item, getattr(module, name)) for name, item in spec.items()]
        return ModuleSpec(module, list(spec), methods)


def _argument_names(method: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Names of a method's arguments; those with a default may be left out."""
    names: list[str] = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            names.extend(name for name in given if name not in names)
        elif parameter.kind is not parameter.VAR_POSITIONAL and (
            parameter.default is parameter.empty or parameter.name in given
        ):
            names.append(parameter.name)
    return names


def _argument(value: object, name: str, method: str) -> ArgSpec:
    if value is int or value == "int":
        return Int()
    if isinstance(value, (Tensor, Int, Object, Tuple)):
        return value
    if isinstance(value, (list, tuple)):
        items = [_argument(item, f"{name}_{n}", method) for n, item in enumerate(value)]
        return Tuple(name, items)
    raise VerifyError(
        f"argument {name!r} of {method}: expected nn.spec.Tensor, Int, Object, Tuple, or a list of "
        f"these, got {value!r}"
    )


def _example(value: Any) -> ArgSpec:
    if isinstance(value, int):
        return Int()
    return Tensor(tuple(value.shape), str(value.dtype).rpartition(".")[2])


MethodSpecType = MethodSpec | dict[str, Any]
ModuleSpecType = ModuleSpec | dict[str, Any]
