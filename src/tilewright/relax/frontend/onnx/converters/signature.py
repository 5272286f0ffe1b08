"""What a converter's signature says of the inputs and attributes of its nodes."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

Converter = Callable[..., Any]


@dataclass(frozen=True)
class Parameter:
    """An input or attribute: a parameter of a converter, or a field of one that is a dataclass."""

    name: str
    """The attribute's name in models, or what messages call an input."""
    kind: str
    required: bool
    keyword: str
    """The name by which the function or dataclass takes it."""


@dataclass(frozen=True)
class _Slot:
    """A parameter of a function, made of one value or, if it is a dataclass, of several."""

    keyword: str
    group: Callable[..., object] | None
    members: tuple[Parameter, ...]

    def input(self, values: Iterator[object]) -> object:
        """The argument, of the next values of a node's inputs."""
        if self.group is None:
            return next(values)
        return self.group(*(next(values) for _ in self.members))

    def attributes(self, given: Mapping[str, object]) -> dict[str, object]:
        """The argument by its name; nothing if it is one attribute that the node doesn't have."""
        found = {item.keyword: given[item.name] for item in self.members if item.name in given}
        return found if self.group is None else {self.keyword: self.group(**found)}


class Entry:
    """A converter, and the inputs and attributes of its operator."""

    def __init__(self, name: str, function: Converter) -> None:
        self.name = name
        self.function = function
        self.variadic: str | None = None
        """The form of further inputs, if there may be any number."""
        self._inputs: list[_Slot] = []
        self._attributes: list[_Slot] = []
        classes = getattr(function, "__globals__", {})
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.variadic = _kind(parameter.annotation)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self._attributes.append(_slot(parameter, classes, _attribute))
            else:
                self._inputs.append(_slot(parameter, classes, _input))
        counts = Counter(item.name for slot in self._inputs for item in slot.members)
        self.inputs = [
            replace(item, name=f"{slot.keyword}.{item.name}") if counts[item.name] > 1 else item
            for slot in self._inputs
            for item in slot.members
        ]
        self.attributes = {item.name: item for slot in self._attributes for item in slot.members}

    def run(
        self, ctx: object, inputs: Sequence[object], attributes: Mapping[str, object]
    ) -> Any:  # what a converter may return is the importer's business
        """Call the converter: with all its inputs, in order, and the attributes that there are."""
        values = iter(inputs)
        args = [slot.input(values) for slot in self._inputs]
        options: dict[str, object] = {}
        for slot in self._attributes:
            options.update(slot.attributes(attributes))
        return self.function(ctx, *args, *values, **options)


def _slot(
    parameter: inspect.Parameter,
    classes: Mapping[str, object],
    read: Callable[[inspect.Parameter], Parameter],
) -> _Slot:
    written = parameter.annotation
    group = classes.get(written) if isinstance(written, str) else written
    if not (isinstance(group, type) and is_dataclass(group)):
        return _Slot(parameter.name, None, (read(parameter),))
    fields = inspect.signature(group).parameters.values()
    return _Slot(parameter.name, group, tuple(read(field) for field in fields))


def _input(parameter: inspect.Parameter) -> Parameter:
    optional = parameter.default is not parameter.empty or "None" in _words(parameter.annotation)
    return Parameter(parameter.name, _kind(parameter.annotation), not optional, parameter.name)


def _attribute(parameter: inspect.Parameter) -> Parameter:
    required = parameter.default is parameter.empty
    name = parameter.name.rstrip("_")
    return Parameter(name, _kind(parameter.annotation), required, parameter.name)


def _words(annotation: object) -> list[str]:
    """The parts of a union; an annotation may be a text or a class."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return [word.strip() for word in str(text).split("|")]


def _kind(annotation: object) -> str:
    """The word that stands for an annotation."""
    if annotation is inspect.Parameter.empty:
        return "Tensor"
    word = _words(annotation)[0]
    return "Tensor" if word.rpartition(".")[2] in ("Expr", "RelaxExpr") else word
