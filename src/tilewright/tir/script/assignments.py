"""The part of the parser that reads assignments and declarations: stores, lets, axes, buffers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.ir import (
    INDEX,
    Expr,
    Range,
    Var,
    as_expr,
    const,
    dtypes,
)
from tilewright.script.diagnostics import Source
from tilewright.script.evaluator import Evaluator
from tilewright.script.operators import build_arithmetic, to_value
from tilewright.script.scope import Scope
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype
from tilewright.tir.script import buffer_declarations as buffers
from tilewright.tir.script import declarations as decl
from tilewright.tir.script.frames import BlockFrame, FunctionFrame, Rest, set_name
from tilewright.tir.script.scalars import LetMarker, ScalarType
from tilewright.tir.stmt import (
    ITER_KINDS,
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    Stmt,
)


class AssignmentParser(Evaluator):
    """Reads what stands left and right of ``=``, and the declarations of ``T``."""

    def __init__(self, source: Source, scope: Scope) -> None:
        super().__init__(source, scope)
        self.function = FunctionFrame()
        self.blocks: list[BlockFrame] = [BlockFrame()]
        self.loops: dict[Var, Range] = {}
        self.copies = 0  # depth of macros and unrolled loops, whose blocks get new names

    @property
    def block(self) -> BlockFrame:
        """The innermost block."""
        return self.blocks[-1]

    # ---- assignment ----------------------------------------------------------------------

    def _target_name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            self.fail(target, "expected a name")
            raise AssertionError
        return target.id

    def _assign(self, node: ast.Assign) -> Any:
        if len(node.targets) != 1:
            self.fail(node, "one assignment at a time")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self._store(node, target, self.eval(node.value), node.value)
        if isinstance(target, ast.Attribute):
            self.fail(target, "attributes can't be assigned")
        value = self.eval(node.value)
        return self._assign_value(node, target, value)

    def _assign_value(self, node: ast.stmt, target: ast.expr, value: object) -> Any:
        if isinstance(value, decl.RemapDecl):
            value = self._remap(node, value)
        if isinstance(value, decl.BlockDecl | decl.Loops | decl.InitDecl):
            self.fail(node, "this can't be assigned; blocks stand after with, loops after for-in")
        if isinstance(target, (ast.Tuple, ast.List)):
            self._bind_tuple(node, target, value)
            return None
        if type(value) in DECLARATIONS:
            return self._declare(node, target, value)
        value = to_value(value)
        if isinstance(value, Expr) and type(value) is not Var:
            return self._let(target, Var(self._target_name(target), value.dtype), value)
        self._bind(target, value)
        return None

    def _bind_tuple(self, node: ast.stmt, target: ast.Tuple | ast.List, value: Any) -> None:
        values = list(value) if isinstance(value, (tuple, list)) else self._iterate(node, value)
        if len(values) != len(target.elts):
            self.fail(target, f"{len(target.elts)} names for {len(values)} values")
        for item, part in zip(target.elts, values):
            if type(part) in DECLARATIONS:
                made = self._declare(node, item, part)
                if made is not None:
                    self.fail(item, "this declaration needs a line of its own")
            else:
                self._bind(item, part)

    def _iterate(self, node: ast.stmt, value: Expr) -> list[Any]:
        if isinstance(value, (Expr, Buffer)) or not isinstance(value, Iterable):
            self.fail(node, "a single value can't be unpacked into several names")
        return list(self.iterate(node, value))

    def _bind(self, target: ast.expr, value: object) -> None:
        """Bind names to a value while parsing; new symbols take the name."""
        if isinstance(target, (ast.Tuple, ast.List)):
            self._bind_tuple(target, target, value)  # type: ignore[arg-type]
            return
        name = self._target_name(target)
        if isinstance(value, decl.MetaVar):
            value = value.value
        elif isinstance(value, buffers.DeferredBuffer):
            value = self._resolve(target, value)
            set_name(value, name)
        elif isinstance(value, (Var, Buffer)) and not value.name:
            set_name(value, name)
        self.scope.define(name, value)

    def _let(self, target: ast.expr, var: Var, value: Expr) -> Rest:
        self.scope.define(var.name, var)
        return Rest(lambda body: LetStmt(var, value, body))

    def _annotated(self, node: ast.AnnAssign) -> Rest | None:
        if node.value is None:
            self.fail(node, "the variable needs a value")
            return None
        kind, value = self.eval(node.annotation), to_value(self.eval(node.value))
        name = self._target_name(node.target)
        if isinstance(kind, LetMarker):
            value = self.guard(node.value, as_expr, value)
            return self._let(node.target, Var(name, value.dtype), value)
        if not isinstance(kind, ScalarType):
            self.fail(node.annotation, "expected a dtype such as T.float32, or T.let")
        if not isinstance(value, Expr):
            value = self._literal(node.value, value, kind.dtype, f"{name}: {kind.dtype}")
        elif value.dtype != kind.dtype:
            self.fail(
                node.value, f"{name} is declared {kind.dtype}, the value is {value.dtype}; "
                "convert it with T.Cast"
            )  # fmt: skip
        return self._let(node.target, Var(name, kind.dtype), value)

    def _literal(self, node: ast.expr, value: object, dtype: str, where: str) -> Expr:
        """Turn a Python number into a constant of ``dtype``, if it is one."""
        kind = dtypes.kind_of(dtype)
        fits = (
            isinstance(value, bool) if kind == "bool"
            else isinstance(value, int) and not isinstance(value, bool) if kind in ("int", "uint")
            else isinstance(value, (int, float)) and not isinstance(value, bool)
        )  # fmt: skip
        if hasattr(value, "item"):
            return self._literal(node, value.item(), dtype, where)
        if not fits:
            self.fail(node, f"{where} takes {dtype}, got {value!r}")
        made: Expr = self.guard(node, const, value, dtype)
        return made

    def _store(self, node: ast.stmt, target: ast.Subscript, value: object, at: ast.expr) -> Stmt:
        access = self.eval(target)
        if not isinstance(access, (BufferLoad, buffers.BufferSlice)):
            self.fail(target, f"`{ast.unparse(target)}` is not an element of a buffer")
        buffer = access.buffer
        indices = (
            access.indices if isinstance(access, BufferLoad) else self.guard(target, access.indices)
        )
        value = to_value(value)
        dtype = access_dtype(buffer, indices)
        if isinstance(value, Expr):
            if value.dtype != dtype:
                self.fail(
                    at, f"buffer {buffer.name} takes {dtype} here, the value is {value.dtype}; "
                    "convert it with T.Cast or .astype"
                )  # fmt: skip
        else:
            value = self._literal(at, value, dtype, f"buffer {buffer.name}")
        return BufferStore(buffer, value, indices)

    def _augmented(self, node: ast.AugAssign) -> Stmt | None:
        if not isinstance(node.target, ast.Subscript):
            self.fail(node.target, "only elements of buffers can be changed; bind a new name")
        old = to_value(self.eval(node.target))
        change = to_value(self.eval(node.value))
        op = type(node.op)
        if op not in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod):
            self.fail(node, "this operator can't be used with =")
        value = self.guard(node, build_arithmetic, op, old, change)
        assert isinstance(node.target, ast.Subscript)
        return self._store(node, node.target, value, node.value)

    # ---- declarations --------------------------------------------------------------------

    def _declare(self, node: object, target: ast.expr | None, value: object) -> Any:
        """Give a declaration its meaning; ``target`` is the name it is assigned to."""
        return DECLARATIONS[type(value)](self, node, target, value)

    def _named(self, node: ast.AST, target: ast.expr | None, what: str) -> str:
        if target is None:
            self.fail(node, f"{what} needs a name")
            raise AssertionError
        return self._target_name(target)

    def _declare_axis(self, node: Any, target: ast.expr | None, value: decl.AxisDecl) -> None:
        name = self._named(node, target, "an axis")
        frame = self.block
        if frame.declaration is None:
            self.fail(node, "T.axis stands inside a block")
            return
        if value.value is None and not frame.declaration.no_realize:
            self.fail(node, f"axis {name} needs the value that it takes: T.axis(extent, value)")
        if any(item.var.name == name for item in frame.iter_vars):
            self.fail(target or node, f"the block has two axes named {name!r}")
        var = Var(name, value.dtype)
        frame.iter_vars.append(IterVar(var, value.dom, value.kind))
        if value.value is not None:
            frame.values.append(value.value)
        self.scope.define(name, var)

    def _remap(self, node: ast.stmt, value: decl.RemapDecl) -> Any:
        made = []
        for letter, loop_var in zip(value.kinds, value.values):
            dom = self.loops.get(loop_var) if isinstance(loop_var, Var) else None
            if dom is None:
                self.fail(node, f"remap takes loop variables, got {loop_var!r}")
                raise AssertionError
            made.append(decl.AxisDecl(ITER_KINDS[letter], dom, loop_var, loop_var.dtype))
        return made[0] if len(made) == 1 else tuple(made)

    def _declare_alloc(
        self, node: Any, target: ast.expr | None, value: buffers.AllocBuffer
    ) -> None:
        if value.is_made and self.scope.budget is not None:
            self.fail(node, "only a macro of Python allocates a buffer that is made already")
        self.block.allocations.append(value.buffer)
        if value.is_made and target is None:
            return
        name = self._named(node, target, "a buffer")
        if not value.is_made:
            set_name(value.buffer, name)
        self.scope.define(name, value.buffer)

    def _declare_match(
        self, node: Any, target: ast.expr | None, value: buffers.MatchBuffer
    ) -> None:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        if isinstance(value.source, BufferRegion):
            if self.block.declaration is None:
                self.fail(node, "match_buffer of a region stands inside a block")
            match = MatchBufferRegion(value.buffer, value.source)
            mismatch = match.mismatch()
            if mismatch is not None:
                self.fail(node, mismatch)
            self.block.matches.append(match)
        elif not isinstance(value.source, Var) or value.source not in self.function.params:
            self.fail(node, "match_buffer takes a handle parameter or a region of a buffer")
        elif value.source in self.function.buffer_map:
            self.fail(node, f"parameter {value.source.name} has two buffers")
        else:
            if value.source.dtype != "handle":
                self.fail(node, f"parameter {value.source.name} is not a T.handle")
            self.function.buffer_map[value.source] = value.buffer
        self.scope.define(name, value.buffer)

    def _declare_let(self, node: Any, target: ast.expr | None, value: decl.LetDecl) -> Rest:
        name = self._named(node, target, "a let")
        made = self.guard(node, as_expr, value.value, value.dtype)
        assert target is not None
        return self._let(target, Var(name, value.dtype or made.dtype), made)

    def _declare_attr(self, node: object, target: ast.expr | None, value: decl.AttrDecl) -> Rest:
        if target is not None:
            self.fail(target, "T.attr has no name")
        return Rest(lambda body: AttrStmt(value.node, value.key, value.value, body))

    def _declare_allocate(
        self, node: Any, target: ast.expr | None, value: buffers.AllocateDecl
    ) -> Rest:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        self.scope.define(name, value.buffer)
        return Rest(lambda body: Allocate(value.buffer, body, value.annotations))

    def _declare_view(self, node: Any, target: ast.expr | None, value: buffers.BufferDecl) -> Rest:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        self.scope.define(name, value.buffer)
        return Rest(lambda body: DeclBuffer(value.buffer, body))

    def _resolve(self, node: ast.AST, value: buffers.DeferredBuffer) -> Buffer:
        """Make the buffer whose shape names symbolic variables by text."""
        shape = []
        for extent in value.shape:
            if isinstance(extent, str):
                shape.append(self._symbolic_extent(node, extent))
            else:
                shape.append(extent)
        made: Buffer = self.guard(node, buffers.buffer_type, tuple(shape), **value.options)
        return made

    def _symbolic_extent(self, node: ast.AST, text: str) -> Any:
        parsed = self.parse_text(node, text)
        for part in ast.walk(parsed):
            if isinstance(part, ast.Name):
                try:
                    self.scope.lookup(part.id)
                except KeyError:
                    self.scope.frames[0][part.id] = Var(part.id, INDEX)
        return self.eval(parsed)


DECLARATIONS: dict[type, Callable[[AssignmentParser, Any, Any, Any], Any]] = {
    decl.AxisDecl: AssignmentParser._declare_axis,
    buffers.AllocBuffer: AssignmentParser._declare_alloc,
    buffers.MatchBuffer: AssignmentParser._declare_match,
    decl.LetDecl: AssignmentParser._declare_let,
    decl.AttrDecl: AssignmentParser._declare_attr,
    buffers.AllocateDecl: AssignmentParser._declare_allocate,
    buffers.BufferDecl: AssignmentParser._declare_view,
}
