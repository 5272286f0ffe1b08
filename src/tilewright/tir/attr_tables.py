"""The tables of attributes and annotations that something reads, and the test of nodes by them.

Statements, functions and modules may carry any key: people annotate as they like. A key that a
pass, rule or kernel reads has an entry in one of the tables here (``attrs``), and whoever writes or
reads it takes the constant; ``verify`` and the primitive ``annotate`` ask the tables, so that
readers find what they expect. A key of one operator or one pass is registered where it is defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilewright.ir import BaseFunc, Expr, IRModule, Node
from tilewright.tir.attr_values import Annotation
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, AttrStmt, Block, For


class Key(NamedTuple):
    """An entry of a table: what a key takes, the modules that read it, and what it means."""

    takes: Annotation
    read_by: tuple[str, ...]
    means: str


ON_STATEMENTS: dict[str, Key] = {}
"""What loops, blocks and allocations may carry."""

ON_ATTRIBUTES: dict[str, Key] = {}
"""What ``AttrStmt`` may say."""

ON_FUNCTIONS: dict[str, Key] = {}
"""What tensor functions may carry."""

ON_GRAPHS: dict[str, Key] = {}
"""What graph functions may carry."""

ON_MODULES: dict[str, Key] = {}
"""What modules may carry."""

TABLES = {
    "annotations of loops, blocks and allocations": ON_STATEMENTS,
    "keys of AttrStmt": ON_ATTRIBUTES,
    "attributes of tensor functions": ON_FUNCTIONS,
    "attributes of graph functions": ON_GRAPHS,
    "attributes of modules": ON_MODULES,
}
"""All tables, by what they hold."""


def register_annotation(key: str, takes: Annotation, *, means: str, read_by: Sequence[str]) -> str:
    """Add a key of loops, blocks and allocations that modules read; return the key."""
    ON_STATEMENTS[key] = Key(takes, tuple(read_by), means)
    return key


def register_function_attribute(
    key: str, takes: Annotation, *, means: str, read_by: Sequence[str]
) -> str:
    """Add a key of tensor functions that modules read; return the key."""
    ON_FUNCTIONS[key] = Key(takes, tuple(read_by), means)
    return key


def on_attribute(key: str, takes: Annotation, *, means: str, read_by: Sequence[str]) -> str:
    """Add what ``AttrStmt`` may say; return the key."""
    ON_ATTRIBUTES[key] = Key(takes, tuple(read_by), means)
    return key


def on_graph(key: str, takes: Annotation, *, means: str, read_by: Sequence[str]) -> str:
    """Add a key of graph functions; return the key."""
    ON_GRAPHS[key] = Key(takes, tuple(read_by), means)
    return key


def on_module(key: str, takes: Annotation, *, means: str, read_by: Sequence[str]) -> str:
    """Add a key of modules; return the key."""
    ON_MODULES[key] = Key(takes, tuple(read_by), means)
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
    node: Node, what: str, found: Mapping[str, object], known: Mapping[str, Key]
) -> str | None:
    for key, value in found.items():
        entry = known.get(key)
        if entry is not None and not entry.takes.fits(value, node):
            return f"{what} {key!r} takes {entry.takes.expected}; found {_shown(value)}"
    return None


def _shown(value: object) -> str:
    try:
        said = repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # A number of more digits than Python writes, or a deep nest.
        said = "one too long to show"
    kind = value.dtype if isinstance(value, Expr) else type(value).__name__
    return f"{said if len(said) <= 60 else said[:57] + '...'} ({kind})"
