"""The annotations and attributes that something reads, and what each takes.

Statements, functions and modules may carry any key: people annotate as they like. A key that a
pass, rule or kernel reads has an entry in one of the tables here; ``verify`` and the primitive
``annotate`` ask them, so that readers find what they expect. A key that is read elsewhere (in
``topi``, say) is registered where it is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.ir import BaseFunc, Expr, IntImm, IRModule, Node, as_int, dtypes
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    AUTO_STEP,
    BUFFER_DIM_ALIGN,
    PREFETCH_DISTANCE,
    STREAMING_STORES,
    Allocate,
    AttrStmt,
    Block,
    For,
)


class Annotation(NamedTuple):
    """What a key takes, in words and as a test of a value on a node."""

    expected: str
    fits: Callable[[Any, Node], bool]


_MOST = (1 << 31) - 1


# ---- kinds of values ------------------------------------------------------------------------


def integer(low: int = 0, high: int = _MOST) -> Annotation:
    """Describe an integer: a Python one or a constant."""

    def fits(value: Any, node: Node) -> bool:
        found = as_int(value)
        return found is not None and low <= found <= high

    span = f"from {low} up" if high == _MOST else f"from {low} to {high}"
    return Annotation(f"an integer {span}", fits)


def text() -> Annotation:
    """Describe a text."""
    return Annotation("a text", lambda value, node: isinstance(value, str))


def one_of(*choices: str | int | None) -> Annotation:
    """Describe a value that is one of some."""

    def fits(value: Any, node: Node) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in choices)

    return Annotation(" or ".join(map(repr, choices)), fits)


def list_of(item: Annotation, length: int | None = None) -> Annotation:
    """Describe a list of values of one kind."""

    def fits(value: Any, node: Node) -> bool:
        return (
            isinstance(value, (list, tuple))
            and length in (None, len(value))
            and all(item.fits(one, node) for one in value)
        )

    what = "a list" if length is None else f"a list of {length}"
    return Annotation(f"{what}, each entry {item.expected}", fits)


def options_of(**fields: Annotation) -> Annotation:
    """Describe a dict of plain values that has just these keys."""

    def fits(value: Any, node: Node) -> bool:
        return (
            isinstance(value, Mapping)
            and set(value) == set(fields)
            and not any(isinstance(item, Expr) for item in value.values())
            and all(field.fits(value[key], node) for key, field in fields.items())
        )

    parts = ", ".join(f"{key!r}: {field.expected}" for key, field in fields.items())
    return Annotation(f"a dict of {parts}", fits)


FLAG = Annotation("True or False", integer(0, 1).fits)

INTEGER_DTYPE = one_of(*(name for name in dtypes.ELEMENT_TYPES if dtypes.is_integer(name)))

REAL = Annotation(
    "a number",
    lambda value, node: isinstance(value, float) or (type(value) is int and abs(value) <= _MOST),
)

_COUNT = integer()


def _is_write(value: Any, node: Node) -> bool:
    return _COUNT.fits(value, node) and isinstance(node, Block) and _at(value) < len(node.writes)


def _is_buffer_param(value: Any, node: Node) -> bool:
    return (
        _COUNT.fits(value, node)
        and isinstance(node, PrimFunc)
        and _at(value) < len(node.params)
        and node.params[_at(value)] in node.buffer_map
    )


def _at(value: Any) -> int:
    found = as_int(value)
    assert found is not None
    return found


def _is_alignment(value: Any, node: Node) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        return False
    if not all(isinstance(item, int) and 0 <= item <= _MOST for item in value):
        return False
    return bool(value[3] < value[2])


_ALIGNMENT = Annotation(
    "a list of write, axis, factor and offset, where 0 <= offset < factor", _is_alignment
)
_BUFFER_PARAM = Annotation("the position of a parameter with a buffer", _is_buffer_param)


def _is_sampled(value: Any, node: Node) -> bool:
    # While a search is planned, what will be sampled is a variable.
    if isinstance(value, Expr) and not isinstance(value, IntImm):
        return dtypes.is_integer(value.dtype)
    return _COUNT.fits(value, node)


def _are_constants(value: Any, node: Node) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(symbol, str) and hasattr(data, "array") for symbol, data in value.items()
    )


_SAMPLED = Annotation(_COUNT.expected, _is_sampled)


# ---- the tables -----------------------------------------------------------------------------

ON_STATEMENTS: dict[str, Annotation] = {
    AUTO_STEP: _COUNT,
    PREFETCH_DISTANCE: _COUNT,
    STREAMING_STORES: integer(0, 2),
    "pragma_unroll_explicit": FLAG,
    "pragma_prefetch_next": integer(0, 3),
    "pragma_keep_whole": FLAG,
    "auto_copy": FLAG,
    "double_buffer_scope": Annotation("the position of one of the block's writes", _is_write),
    "permuted_layout": _COUNT,
    BUFFER_DIM_ALIGN: list_of(_ALIGNMENT),
    "software_pipeline_stage": list_of(_COUNT),
    "software_pipeline_order": list_of(_COUNT),
    "software_pipeline_async_stages": list_of(_COUNT),
    "software_pipeline_fuse": list_of(_COUNT),
    "parallel_schedule": one_of("static", "dynamic"),
    "parallel_grain": integer(1),
    "tensor_intrin": text(),
    "trusted_regions": FLAG,
    "meta_schedule.parallel": _SAMPLED,
    "meta_schedule.vectorize": _SAMPLED,
    "meta_schedule.unroll_explicit": _SAMPLED,
    "meta_schedule.tiling_structure": text(),
    "meta_schedule.layout_rewrite_preproc": FLAG,
}
"""What loops, blocks and allocations may carry."""

ON_ATTRIBUTES: dict[str, Annotation] = {
    AUTO_STEP: _COUNT,
    PREFETCH_DISTANCE: _COUNT,
    STREAMING_STORES: ON_STATEMENTS[STREAMING_STORES],
    "async_scope": _COUNT,
    "async_commit_queue_scope": _COUNT,
    "async_wait_queue_scope": _COUNT,
    "async_wait_inflight_count": _COUNT,
}
"""What ``AttrStmt`` may say."""

ON_FUNCTIONS: dict[str, Annotation] = {
    "global_symbol": text(),
    "tir.noalias": FLAG,
    "tir.is_scheduled": FLAG,
    "tir.excess_precision": FLAG,
    "tir.read_only": list_of(_BUFFER_PARAM),
    "layout_free_buffers": list_of(_BUFFER_PARAM),
}
"""What tensor functions may carry."""

ON_GRAPHS: dict[str, Annotation] = {"global_symbol": text(), "Primitive": FLAG}
"""What graph functions may carry."""

ON_MODULES: dict[str, Annotation] = {
    "constants": Annotation("a dict of arrays of numbers by their symbols", _are_constants),
}
"""What modules may carry."""


def register_annotation(key: str, takes: Annotation) -> str:
    """Add a key of loops and blocks that a rule or kernel reads; return the key."""
    ON_STATEMENTS[key] = takes
    return key


def register_function_attribute(key: str, takes: Annotation) -> str:
    """Add a key of tensor functions that something reads; return the key."""
    ON_FUNCTIONS[key] = takes
    return key


def wrong_annotation(
    node: For | Block | Allocate | AttrStmt | BaseFunc | IRModule,
) -> str | None:
    """Say in words which annotation of a node isn't what its readers take; ``None`` if all are."""
    if isinstance(node, PrimFunc):
        return _wrong(node, "attribute", node.attrs, ON_FUNCTIONS)
    if isinstance(node, AttrStmt):
        return _wrong(node, "attribute", {node.key: node.value}, ON_ATTRIBUTES)
    if isinstance(node, IRModule):
        return _wrong(node, "attribute", node.attrs, ON_MODULES)
    if isinstance(node, BaseFunc):
        return _wrong(node, "attribute", node.attrs, ON_GRAPHS)
    return _wrong(node, "annotation", node.annotations, ON_STATEMENTS)


def _wrong(
    node: Node, what: str, found: Mapping[str, Any], known: Mapping[str, Annotation]
) -> str | None:
    for key, value in found.items():
        takes = known.get(key)
        if takes is not None and not takes.fits(value, node):
            return f"{what} {key!r} takes {takes.expected}; found {_shown(value)}"
    return None


def _shown(value: Any) -> str:
    try:
        said = repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # A number of more digits than Python writes, or a deep nest.
        said = "one too long to show"
    kind = value.dtype if isinstance(value, Expr) else type(value).__name__
    return f"{said if len(said) <= 60 else said[:57] + '...'} ({kind})"


__all__ = [
    "FLAG",
    "INTEGER_DTYPE",
    "ON_ATTRIBUTES",
    "ON_FUNCTIONS",
    "ON_GRAPHS",
    "ON_MODULES",
    "ON_STATEMENTS",
    "REAL",
    "Annotation",
    "list_of",
    "integer",
    "one_of",
    "options_of",
    "register_annotation",
    "register_function_attribute",
    "text",
    "wrong_annotation",
]
