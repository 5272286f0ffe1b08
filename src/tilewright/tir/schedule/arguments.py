"""Arguments of primitives: checked and converted by what the parameters' annotations say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import Any

from tilewright.ir import Expr
from tilewright.tir.schedule.handles import BlockRV, ExprRV, Formula, LoopRV

CONVERTERS: dict[str, Callable[[Any], Any]] = {}
"""How an argument becomes what its annotation (the key, as written) says; may raise TypeError."""


def _named(value: object) -> str:
    return f"{type(value).__name__} {value!r}"


def as_block(value: object) -> BlockRV:
    """Check that a value is a block; ``TypeError`` if not."""
    if type(value) is not BlockRV:
        raise TypeError(f"expected a BlockRV or a block's name, got {_named(value)}")
    return value


def _loop(value: object) -> LoopRV:
    if type(value) is not LoopRV:
        raise TypeError(f"expected a LoopRV (from get_loops, split, ...), got {_named(value)}")
    return value


def as_block_or_loop(value: object) -> BlockRV | LoopRV:
    """Check that a value is a block or a loop; ``TypeError`` if not."""
    if type(value) is not LoopRV and type(value) is not BlockRV:
        raise TypeError(f"expected a BlockRV or a LoopRV, got {_named(value)}")
    return value


def _loops(value: object) -> list[LoopRV]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list of LoopRV, got {_named(value)}")
    return [_loop(item) for item in value]


def as_blocks(value: object) -> list[BlockRV]:
    """Check that a value is a list of blocks; ``TypeError`` if not."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list of BlockRV, got {_named(value)}")
    return [as_block(item) for item in value]


def _int(value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected an integer, got {_named(value)}")
    number: int = value.__index__()
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("the integer does not fit 64 bits")
    return number


def _float(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's are, too
    if not is_number or not isfinite(value):
        raise TypeError(f"expected a finite number, got {_named(value)}")
    return float(value)


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: object) -> Any:
        if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
            raise TypeError(f"expected a list, got {_named(value)}")
        return [convert(item) for item in value]

    return converted


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected True or False, got {_named(value)}")
    return value


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {_named(value)}")
    return value


def _int_or_handle(value: object) -> int | ExprRV:
    return value if type(value) is ExprRV else _int(value)


def has_formula(value: object) -> bool:
    """Whether a value holds a formula that is still to be calculated."""
    if type(value) is list or type(value) is tuple:
        return any(map(has_formula, value))
    return type(value) is Formula


def calculated(sch: Any, value: Any) -> Any:
    """Return a value with what ``calculate`` gives in the place of formulas."""
    if isinstance(value, (list, tuple)):
        return type(value)(calculated(sch, item) for item in value)
    if type(value) is not Formula:
        return value
    return sch.calculate(value.symbol, calculated(sch, value.a), calculated(sch, value.b))


def annotation_value(value: object) -> Any:
    """Copy an annotation value as JSON data; handles and expressions are kept.

    Raises ``TypeError`` for values that a trace can't hold.
    """
    if value is None or isinstance(value, (bool, int, float, str, Expr)) or type(value) is ExprRV:
        return value
    if isinstance(value, (list, tuple)):
        return [annotation_value(item) for item in value]
    if isinstance(value, dict):
        for key in value:
            _str(key)
        return {key: annotation_value(item) for key, item in value.items()}
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()  # a NumPy scalar
    raise TypeError(f"expected numbers, text, lists or dicts of them, got {_named(value)}")


def _factors(value: object) -> Any:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list of factors, got {_named(value)}")
    return [
        item if item is None or isinstance(item, Expr) else _int_or_handle(item) for item in value
    ]


CONVERTERS.update(
    {
        "BlockRV": as_block,
        "LoopRV": _loop,
        "BlockRV | LoopRV": as_block_or_loop,
        "Sequence[BlockRV]": as_blocks,
        "Sequence[LoopRV]": _loops,
        "list[LoopRV]": _loops,
        "int": _int,
        "bool": _bool,
        "str": _str,
        "int | ExprRV": _int_or_handle,
        "int | str": lambda value: value if isinstance(value, str) else _int(value),
        "Sequence[Factor]": _factors,
        "Annotation": annotation_value,
        "Sequence[int]": _list_of(_int),
        "Sequence[str]": _list_of(_str),
        "Sequence[float]": _list_of(_float),
    }
)


NO_HANDLE, ONE_HANDLE, MANY_HANDLES = range(3)
_HANDLES = frozenset(
    ("BlockRV", "LoopRV", "BlockRV | LoopRV", "int | ExprRV", "ExprRV", "Annotation")
)
_MANY_HANDLES = frozenset(
    ("Sequence[BlockRV]", "Sequence[LoopRV]", "list[LoopRV]", "Sequence[Factor]")
)


def how_many_handles(annotation: str, variadic: bool) -> int:
    """Return whether a parameter takes no handle, one, or many."""
    annotation = annotation.removesuffix(" | None")
    if annotation in _MANY_HANDLES or (variadic and annotation in _HANDLES):
        return MANY_HANDLES
    return ONE_HANDLE if annotation in _HANDLES else NO_HANDLE


def converter(annotation: str, variadic: bool) -> Callable[[Any], Any] | None:
    """Return what checks and converts arguments of an annotation; ``None`` for any value."""
    annotation = annotation.removesuffix(" | None")
    if variadic:
        return CONVERTERS.get(f"Sequence[{annotation}]")
    return CONVERTERS.get(annotation)
