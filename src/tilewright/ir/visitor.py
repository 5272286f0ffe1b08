"""Walking and rewriting trees of nodes.

``Visitor`` and ``Mutator`` dispatch by node class through a table that is built once per class:
define ``visit_For``, ``visit_Add``, … and call ``self.generic_visit(node)`` to enter the children.
A method for a base class (``visit_BinaryExpr``) handles all its subclasses. Mutators return the
same object when nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar, overload

from tilewright.ir.expr import Expr, Var
from tilewright.ir.node import Node, is_leaf_class

T = TypeVar("T")
N = TypeVar("N", bound=Node)


class _Dispatch:
    """Finds the ``visit_*`` method for a node class, once."""

    # Methods by class of node; each class of visitors has a table of its own.
    _table: ClassVar[dict[type, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._table = {}

    def _find(self, node_class: type) -> Callable[..., Any]:
        visitor_class = type(self)
        table = self._table
        for base in node_class.__mro__:
            method = getattr(visitor_class, "visit_" + base.__name__, None)
            if method is not None:
                table[node_class] = method
                return method  # type: ignore[no-any-return]
        method = visitor_class.generic_visit  # type: ignore[attr-defined]
        if method is Mutator.generic_visit and is_leaf_class(node_class):
            method = _same  # half of all nodes: no need to look for children
        table[node_class] = method
        return method

    def visit(self, node: Node) -> Any:
        """Dispatch on the class of ``node``."""
        method = self._table.get(type(node))
        if method is None:
            method = self._find(type(node))
        return method(self, node)


def _same(mutator: object, node: Node) -> Node:
    return node


class Visitor(_Dispatch):
    """Walks a tree; by default into all children, in order."""

    def generic_visit(self, node: Node) -> Any:
        """Visit all children."""
        for item in node.child_nodes():
            self.visit(item)


class Mutator(_Dispatch):
    """Rewrites a tree; by default rebuilds the nodes whose children changed."""

    def generic_visit(self, node: N) -> N:
        """Rewrite all children; return the same node if none changed."""
        return node.map_children(self.visit)


def post_order(node: Node) -> Iterator[Node]:
    """Yield ``node`` and all below it, children first."""
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            yield current
            continue
        stack.append((current, True))
        stack.extend((item, False) for item in reversed(current.child_nodes()))


def pre_order(node: Node, enter: Callable[[Node], bool] | None = None) -> Iterator[Node]:
    """Yield ``node`` and all below it, parents first; ``enter`` says whether to go below a node."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if enter is None or enter(current):
            below = current.child_nodes()
            if below:
                below.reverse()
                stack += below


def rewrite_bottom_up(node: Node, function: Callable[[Any], Any]) -> Any:
    """Rebuild a tree from the leaves, passing each rebuilt node to ``function``."""

    def go(current: Node) -> Any:
        return function(current.map_children(go))

    return go(node)


def rewrite_top_down(node: Node, function: Callable[[Any], Any | None]) -> Any:
    """Pass each node to ``function``; a result other than ``None`` replaces its whole subtree."""

    def go(current: Node) -> Any:
        made = function(current)
        return current.map_children(go) if made is None else made

    return go(node)


@overload
def substitute(node: Expr, mapping: Mapping[Any, object]) -> Expr: ...


@overload
def substitute(node: N, mapping: Mapping[Any, object]) -> N: ...


def substitute(node: Node, mapping: Mapping[Any, Any]) -> Node:
    """Replace uses of variables (and of buffers, if ``mapping`` has them).

    Definitions are left alone; see ``tir.renew_definitions`` for copies with fresh variables.
    Keys are compared by identity.
    """
    if not mapping:
        return node

    def go(current: Node) -> Node:
        made: Node | None = mapping.get(current)
        if made is not None:
            return made
        return current.map_children(go)

    return go(node)


def free_vars(expr: Node) -> list[Var]:
    """Return the variables used in an expression or statement, once each, in order of appearance.

    Variables that the tree itself defines are left out.
    """
    if type(expr) is Var:
        return [expr]
    found: dict[Var, None] = {}
    defined: set[Var] = set()
    for item in pre_order(expr):
        if type(item) is Var:
            found.setdefault(item)
        elif definition_fields(type(item)):
            defined.update(defined_symbols(item))
    return [var for var in found if var not in defined]


def defined_symbols(node: Node) -> list[Any]:
    """Return the variables and buffers that a node brings into scope."""
    symbols: list[Any] = []
    for name, single in definition_fields(type(node)):
        value = getattr(node, name)
        symbols.extend((value,) if single else value)
    return symbols


def definition_fields(kind: type[Node]) -> tuple[tuple[str, bool], ...]:
    """Return the fields in which a node class defines symbols, and which hold a single one."""
    found = _DEFINITIONS.get(kind)
    if found is None:
        found = _DEFINITIONS[kind] = tuple(
            (field.name, field.role == "definition")
            for field in kind.node_fields
            if field.role in ("definition", "definitions")
        )
    return found


_DEFINITIONS: dict[type, tuple[tuple[str, bool], ...]] = {}


def uses_var(node: Node, variables: Callable[[Var], bool] | Mapping[Var, Any] | set[Var]) -> bool:
    """Whether any variable for which the predicate holds (or which is in the set) is used."""
    test = variables if callable(variables) else variables.__contains__
    if type(node) is Var:
        return bool(test(node))
    stack = node.child_nodes()
    while stack:
        item = stack.pop()
        if type(item) is Var:
            if test(item):
                return True
        else:
            stack.extend(item.child_nodes())
    return False


class ExprMutator(Mutator):
    """A mutator for expressions, under the name that TVM users know."""

    def visit_Expr(self, node: Expr) -> Expr:
        """Rewrite the children of any expression without a method of its own."""
        return self.generic_visit(node)
