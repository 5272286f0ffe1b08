"""Visitors and mutators with the methods that TVM's users override: ``visit_for_``, ``visit_add_``.

Each class of node has a method, by default the walk into its children; what is overridden may call
it by ``super()``. ``visit_stmt`` and ``visit_expr`` are called for each statement and expression,
and dispatch. Mutators return the same node when nothing changed.

    class Doubler(StmtExprMutator):
        def visit_int_imm_(self, op):
            return tir.IntImm(op.value * 2, op.dtype)

    Doubler()(func.body)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from tilewright import ir
from tilewright.ir import Expr, Node, post_order, pre_order
from tilewright.support.naming import named
from tilewright.tir import stmt as _stmt
from tilewright.tir.buffer import BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.reduction import Reduce
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import Stmt

_EXPR_METHODS: dict[type[Node], tuple[str, ...]] = {
    ir.Var: ("visit_var_", "visit_size_var_"),
    BufferLoad: ("visit_buffer_load_",),
    ir.Let: ("visit_let_",),
    ir.Call: ("visit_call_",),
    ir.Add: ("visit_add_",),
    ir.Sub: ("visit_sub_",),
    ir.Mul: ("visit_mul_",),
    ir.Div: ("visit_div_",),
    ir.FloorDiv: ("visit_floor_div_", "visit_floordiv_"),
    ir.FloorMod: ("visit_floor_mod_", "visit_floormod_"),
    ir.Min: ("visit_min_",),
    ir.Max: ("visit_max_",),
    ir.EQ: ("visit_eq_",),
    ir.NE: ("visit_ne_",),
    ir.LT: ("visit_lt_",),
    ir.LE: ("visit_le_",),
    ir.GT: ("visit_gt_",),
    ir.GE: ("visit_ge_",),
    ir.And: ("visit_and_",),
    ir.Or: ("visit_or_",),
    ir.Not: ("visit_not_",),
    Reduce: ("visit_reduce_",),
    ir.Cast: ("visit_cast_",),
    ir.Select: ("visit_select_",),
    ir.Ramp: ("visit_ramp_",),
    ir.Broadcast: ("visit_broadcast_",),
    ir.Shuffle: ("visit_shuffle_",),
    ir.IntImm: ("visit_int_imm_",),
    ir.FloatImm: ("visit_float_imm_",),
    ir.StringImm: ("visit_string_imm_",),
}
_STMT_METHODS: dict[type[Node], tuple[str, ...]] = {
    _stmt.LetStmt: ("visit_let_stmt_", "visit_bind_"),
    _stmt.AttrStmt: ("visit_attr_stmt_", "visit_attr_"),
    _stmt.IfThenElse: ("visit_if_then_else_",),
    _stmt.For: ("visit_for_",),
    _stmt.While: ("visit_while_",),
    _stmt.Allocate: ("visit_allocate_", "visit_alloc_buffer_"),
    _stmt.DeclBuffer: ("visit_decl_buffer_",),
    _stmt.BufferStore: ("visit_buffer_store_",),
    _stmt.AssertStmt: ("visit_assert_stmt_", "visit_assert_"),
    _stmt.SeqStmt: ("visit_seq_stmt_", "visit_seqstmt_"),
    _stmt.Evaluate: ("visit_evaluate_",),
    _stmt.Block: ("visit_sblock_", "visit_block_"),
    _stmt.BlockRealize: ("visit_sblock_realize_", "visit_block_realize_"),
    BufferRegion: ("visit_buffer_region_",),
}
_METHODS = {**_EXPR_METHODS, **_STMT_METHODS}


class _Functor:
    """Dispatches on the class of a node; ``generic_visit`` is for classes without a method."""

    _table: ClassVar[dict[type, str | None]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._table = {}

    def __call__(self, node: Any) -> Any:
        """Visit a statement, an expression or a function."""
        return self.visit(node)

    def visit(self, node: Node) -> Any:
        """Visit any node."""
        if isinstance(node, Stmt):
            return self.visit_stmt(node)
        if isinstance(node, Expr):
            return self.visit_expr(node)
        return self._dispatch(node)

    def visit_stmt(self, stmt: Stmt) -> Any:
        """Visit a statement by the method for its class."""
        return self._dispatch(stmt)

    def visit_expr(self, expr: Expr) -> Any:
        """Visit an expression by the method for its class."""
        return self._dispatch(expr)

    def visit_stmt_default_(self, op: Any) -> Any:
        """Visit a statement whose method is not overridden."""
        return self.generic_visit(op)

    def visit_expr_default_(self, op: Any) -> Any:
        """Visit an expression whose method is not overridden."""
        return self.generic_visit(op)

    def generic_visit(self, node: Node) -> Any:
        """Visit the children of a node."""
        raise NotImplementedError(f"{type(self).__name__} must define generic_visit")

    def _dispatch(self, node: Node) -> Any:
        kind = type(node)
        if kind not in self._table:
            self._table[kind] = self._method_of(kind)
        name = self._table[kind]
        return self.generic_visit(node) if name is None else getattr(self, name)(node)

    @classmethod
    def _method_of(cls, kind: type) -> str | None:
        """The method for a class of nodes: the one that is overridden, of several names."""
        for base in kind.__mro__:
            names = _METHODS.get(base)
            if names is not None:
                own = [name for name in names if getattr(cls, name) is not getattr(_Functor, name)]
                return own[0] if own else names[0]
        return None


def _default(name: str, what: str) -> Callable[[_Functor, Any], Any]:
    def visit(self: _Functor, op: object) -> Any:
        return getattr(self, f"visit_{what}_default_")(op)

    return named(visit, name, "Visit a node of this class; by default, its children.")


for _what, _methods in (("expr", _EXPR_METHODS), ("stmt", _STMT_METHODS)):
    for _names in _methods.values():
        for _name in _names:
            setattr(_Functor, _name, _default(_name, _what))


class StmtExprVisitor(_Functor):
    """Walks statements and expressions, into all children, in order."""

    def generic_visit(self, node: Node) -> None:
        """Visit the children of a node."""
        for item in node.child_nodes():
            self.visit(item)


class StmtExprMutator(_Functor):
    """Rewrites statements and expressions; by default rebuilds nodes whose children changed."""

    def generic_visit(self, node: Node) -> Any:
        """Rewrite the children of a node; return the same node if none changed."""
        return node.map_children(self.visit)


class StmtVisitor(StmtExprVisitor):
    """Walks statements; override ``visit_expr`` to look at expressions."""

    def visit_expr(self, expr: Expr) -> None:
        """Do nothing."""


class ExprVisitor(StmtExprVisitor):
    """Walks expressions."""


class StmtMutator(StmtExprMutator):
    """Rewrites statements; override ``visit_expr`` to rewrite expressions."""

    def visit_expr(self, expr: Expr) -> Any:
        """Return the expression as it is."""
        return expr


class ExprMutator(StmtExprMutator):
    """Rewrites expressions."""


class StmtFunctor(_Functor):
    """A function of statements: override ``visit_stmt_default_`` and methods of classes."""

    def generic_visit(self, node: Node) -> Any:
        """Refuse a node without a method."""
        raise NotImplementedError(f"{type(self).__name__} has no method for {type(node).__name__}")


class ExprFunctor(StmtFunctor):
    """A function of expressions: override ``visit_expr_default_`` and methods of classes."""


PyStmtExprVisitor = StmtExprVisitor
PyStmtExprMutator = StmtExprMutator

C = TypeVar("C", bound=type)


def visitor(cls: C) -> C:
    """Decorate a class derived from ``PyStmtExprVisitor``, as TVM asks for; nothing is needed."""
    return cls


def mutator(cls: C) -> C:
    """Decorate a class derived from ``PyStmtExprMutator``, as TVM asks for; nothing is needed."""
    return cls


# ---- functions ----------------------------------------------------------------------------------

_PREFIXES = ("tvm.tir.", "tirx.", "tir.", "s_tir.", "ir.")


def ir_transform(
    stmt: Stmt,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> Any:
    """Rewrite a statement: ``preorder`` before the children of a node, ``postorder`` after them.

    Both take a node and return another one, or ``None`` to leave it. What ``preorder`` returns
    stands as it is, without a look at its children. ``only_enable`` names the classes of nodes that
    are passed to them (``"tir.For"`` or ``"For"``).
    """
    names = None if only_enable is None else {_class_name(name) for name in only_enable}

    def enabled(node: Node) -> bool:
        return names is None or type(node).__name__ in names

    def go(node: Node) -> Any:
        if preorder is not None and enabled(node):
            made = preorder(node)
            if made is not None:
                return made
        made = node.map_children(go)
        if postorder is not None and enabled(node):
            found = postorder(made)
            if found is not None:
                return found
        return made

    return go(stmt)


def _class_name(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return {"SBlock": "Block", "SBlockRealize": "BlockRealize"}.get(name, name)


def post_order_visit(stmt: Node, fvisit: Callable[[Any], Any]) -> None:
    """Call a function for each node below a statement, children first, each object once."""
    seen: set[int] = set()
    for node in post_order(stmt):
        if id(node) not in seen:
            seen.add(id(node))
            fvisit(node)


def pre_order_visit(stmt: Node, fvisit: Callable[[Any], bool]) -> None:
    """Call a function for each node below a statement, parents first.

    Where it returns false, the node's children are left out.
    """
    answers: dict[int, bool] = {}

    def enter(node: Node) -> bool:
        return answers.pop(id(node))

    for node in pre_order(stmt, enter):
        answers[id(node)] = bool(fvisit(node))


def substitute(node: Node, vmap: Mapping[Any, Any]) -> Any:
    """Replace variables by expressions, and buffers by buffers."""
    return ir.substitute(node, {key: _as_node(value) for key, value in vmap.items()})


def _as_node(value: object) -> Any:
    return value if isinstance(value, Node) else ir.as_expr(value)


def renew_defs(func: PrimFunc) -> PrimFunc:
    """Copy a function so that it shares no variable, buffer or block with the original."""
    made: PrimFunc = renew_definitions(func)
    return made
