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
    cast,
    const,
    dtypes,
)
from tilewright.script.diagnostics import Source
from tilewright.script.evaluator import Evaluator
from tilewright.script.operators import to_value
from tilewright.script.scope import Scope
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype, decl_buffer
from tilewright.tir.reducer import CommReducer
from tilewright.tir.script import buffer_declarations as buffers
from tilewright.tir.script import declarations as decl
from tilewright.tir.script import threads
from tilewright.tir.script.frames import BlockFrame, FunctionFrame, Rest, set_name
from tilewright.tir.script.intrinsics import REDUCE_SCOPE, AllReduce
from tilewright.tir.script.scalars import LetAnnotation, ScalarType
from tilewright.tir.stmt import (
    ITER_KINDS,
    THREAD_BINDING,
    Allocate,
    BufferStore,
    DeclBuffer,
    For,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    Stmt,
)


class AssignmentParser(Evaluator):
    """Reads what stands left and right of ``=``, and the declarations of ``T``."""

    def __init__(
        self, source: Source, scope: Scope, mutable: frozenset[ast.stmt] = frozenset()
    ) -> None:
        super().__init__(source, scope)
        self.mutable = mutable
        """Definitions of variables that the text changes in other suites: they are memory."""
        self.changed: set[ast.stmt] = set()
        """Definitions that turned out to be such; the text must be read again with them."""
        self.lets: dict[Var, tuple[ast.stmt, dict[str, object]]] = {}
        """Where the variables in sight are defined: the statement, and the frame of its suite."""
        self.scalars: dict[Buffer, BufferLoad] = {}
        self.function = FunctionFrame()
        self.blocks: list[BlockFrame] = [BlockFrame()]
        self.loops: dict[Var, Range] = {}
        self.tags: dict[Var, str] = {}
        """Thread tags of the variables that number threads."""
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
        if isinstance(target, (ast.Tuple, ast.List)):
            self._bind_tuple(node, target, value)
            return None
        if isinstance(value, Buffer) and not value.name and self._is_pointer(value.data):
            value = buffers.BufferDecl(value)
        if type(value) in DECLARATIONS:
            return self._declare(node, target, value)
        value = to_value(value)
        self.check_value(node, value)
        if isinstance(target, ast.Name):
            scalar = self._scalar_of(target.id)
            if scalar is not None:
                return self._store_value(node, scalar, value, node)
            if isinstance(value, (Expr, int, float)):
                self._note_change(target.id)
        if isinstance(value, Expr) and (type(value) is not Var or node in self.mutable):
            var = Var(self._target_name(target), value.dtype)
            return self._define_variable(node, var, value)
        self._bind(target, value)
        return None

    def check_value(self, node: ast.AST, value: object) -> None:
        """Fail for what stands in a program by itself: it would be lost where a value stands."""
        if isinstance(value, decl.MetaVar):
            value = value.value
        if isinstance(value, (dict, list, tuple)):
            for each in value.values() if isinstance(value, dict) else value:
                self.check_value(node, each)
        elif isinstance(value, decl.BlockDecl | decl.Loops | decl.InitDecl):
            self.fail(node, "this can't be assigned; blocks stand after with, loops after for-in")
        elif isinstance(value, _WITHOUT_VALUE):
            self.fail(node, "this is a statement, which has no value: give it a line of its own")
        elif isinstance(value, Expr) and value.dtype == "void":
            self.fail(node, f"{value!r} has no value: give it a line of its own")

    def _is_pointer(self, var: Var) -> bool:
        """Whether a variable of the program, no buffer's own, points at memory."""
        return var in self.lets or var in set(self.function.params)

    # ---- variables that change -------------------------------------------------------------

    def _in_sight(self, name: str) -> object:
        """What a name stands for, if a suite of this function has defined it."""
        for frame in reversed(self.scope.frames):
            if name in frame:
                return frame[name]
        return None

    def _scalar_of(self, name: str) -> BufferLoad | None:
        """The element that holds the variable of that name, if it is memory."""
        value = self._in_sight(name)
        return value if type(value) is BufferLoad and value.buffer in self.scalars else None

    def _note_change(self, name: str) -> None:
        """Note that a variable of an outer suite is assigned again: what follows that must see it.

        In one suite a new variable of the same name does.
        """
        value = self._in_sight(name)
        if isinstance(value, Var) and value in self.lets:
            definition, frame = self.lets[value]
            if frame is not self.scope.frames[-1]:
                self.changed.add(definition)

    def _define_variable(self, node: ast.stmt, var: Var, value: Expr) -> Rest | Stmt:
        """Define a variable: a let, or memory if the text changes it later."""
        if node in self.mutable:
            element = self._define_scalar(var.name, var.dtype, "local")
            return BufferStore(element.buffer, value, element.indices)
        self.lets[var] = (node, self.scope.frames[-1])
        return self._let(var, value)

    def _define_scalar(self, name: str, dtype: str, scope: str) -> BufferLoad:
        """Memory of one element, which its name stands for."""
        buffer = decl_buffer((1,), dtype, name, scope=scope)
        self.block.allocations.append(buffer)
        self.scalars[buffer] = element = BufferLoad(buffer, (const(0),))
        self.scope.define(name, element)
        return element

    def _declare_scalar(
        self, node: ast.AST, target: ast.expr | None, value: buffers.ScalarDecl
    ) -> None:
        self._define_scalar(self._named(node, target, "a scalar"), value.dtype, value.scope)

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
        self.check_value(target, value)
        name = self._target_name(target)
        if isinstance(value, decl.MetaVar):
            value = value.value
        elif isinstance(value, buffers.DeferredBuffer):
            value = self._resolve(target, value)
            set_name(value, name)
        elif isinstance(value, (Var, Buffer)) and not value.name:
            set_name(value, name)
        self.scope.define(name, value)

    def _let(self, var: Var, value: Expr) -> Rest:
        self.scope.define(var.name, var)
        return Rest(lambda body: LetStmt(var, value, body))

    def _annotated(self, node: ast.AnnAssign) -> Rest | Stmt | None:
        kind = self.eval(node.annotation)
        name = self._target_name(node.target)
        if type(kind) is Var and not kind.name:  # T.Ptr("float32")
            kind = ScalarType(kind.dtype)
        if not isinstance(kind, (LetAnnotation, ScalarType)):
            self.fail(node.annotation, "expected a dtype such as T.float32, or T.let")
        if node.value is None:
            if isinstance(kind, LetAnnotation):
                self.fail(node, "the variable needs a value")
            self._define_scalar(name, kind.dtype, "local")
            return None
        value = to_value(self.eval(node.value))
        if isinstance(kind, LetAnnotation):
            if kind.type_spec is None:
                value = self.guard(node.value, as_expr, value)
                return self._define_variable(node, Var(name, value.dtype), value)
            kind = ScalarType(kind.as_var().dtype)
        if not isinstance(value, Expr):
            value = self._literal(node.value, value, kind.dtype, f"{name}: {kind.dtype}")
        elif value.dtype != kind.dtype:
            self.fail(
                node.value, f"{name} is declared {kind.dtype}, the value is {value.dtype}; "
                "convert it with T.Cast"
            )  # fmt: skip
        return self._define_variable(node, Var(name, kind.dtype), value)

    def _literal(self, node: ast.AST, value: object, dtype: str, where: str) -> Expr:
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
        return self._store_value(target, access, value, at)

    def _store_value(
        self, node: ast.AST, access: BufferLoad | buffers.BufferSlice, value: object, at: ast.AST
    ) -> Stmt:
        buffer = access.buffer
        indices = (
            access.indices if isinstance(access, BufferLoad) else self.guard(node, access.indices)
        )
        value = to_value(value)
        dtype = access_dtype(buffer, indices)
        if isinstance(value, Expr):
            if value.dtype != dtype:
                value = self._converted(at, value, dtype, f"buffer {buffer.name}")
        else:
            value = self._literal(at, value, dtype, f"buffer {buffer.name}")
        return BufferStore(buffer, value, indices)

    def _converted(self, node: ast.AST, value: Expr, dtype: str, where: str) -> Expr:
        """Convert what is stored; what would lose a fraction needs a cast in the text."""
        kinds = [dtypes.kind_of(item) for item in (value.dtype, dtype)]
        numbers = kinds[0] in ("int", "uint", "float") and kinds[1] in ("int", "uint", "float")
        loses = kinds[0] == "float" and kinds[1] != "float"
        same = dtypes.lanes_of(value.dtype) == dtypes.lanes_of(dtype)
        if not numbers or loses or not same:
            self.fail(
                node, f"{where} takes {dtype} here, the value is {value.dtype}; "
                "convert it with T.Cast or .astype"
            )  # fmt: skip
        return cast(value, dtype)

    def _augmented(self, node: ast.AugAssign) -> Any:
        """``x += y`` stands for ``x = x + y``."""
        target = node.target
        if not isinstance(target, (ast.Name, ast.Subscript)):
            self.fail(target, "expected a name or an element of a buffer")
        if isinstance(target, ast.Name) and not isinstance(self._in_sight(target.id), Expr):
            self.fail(target, f"{target.id} is no variable that can change")
        assert not isinstance(target, ast.Attribute)
        read = ast.copy_location(ast.BinOp(_as_read(target), node.op, node.value), node)
        return self._assign(ast.copy_location(ast.Assign([target], read), node))

    # ---- declarations --------------------------------------------------------------------

    def _declare(self, node: object, target: ast.expr | None, value: object) -> Any:
        """Give a declaration its meaning; ``target`` is the name it is assigned to."""
        return DECLARATIONS[type(value)](self, node, target, value)

    def _named(self, node: ast.AST, target: ast.expr | None, what: str) -> str:
        if target is None:
            self.fail(node, f"{what} needs a name")
            raise AssertionError
        return self._target_name(target)

    def _declare_axis(self, node: ast.AST, target: ast.expr | None, value: decl.AxisDecl) -> None:
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
        frame.iter_vars.append(IterVar(value.dom, var, value.kind))
        if value.value is not None:
            frame.values.append(value.value)
        self.scope.define(name, var)

    def _remap(self, node: ast.stmt, value: decl.RemapDecl) -> Any:
        made = []
        for letter, given in zip(value.kinds, value.values):
            loop_var = to_value(given)
            dom = self.loops.get(loop_var) if isinstance(loop_var, Var) else None
            if dom is None:
                self.fail(node, f"remap takes loop variables, got {loop_var!r}")
                raise AssertionError
            made.append(decl.AxisDecl(ITER_KINDS[letter], dom, loop_var, loop_var.dtype))
        return made[0] if len(made) == 1 else tuple(made)

    def _declare_alloc(
        self, node: ast.AST, target: ast.expr | None, value: buffers.AllocBuffer
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
        self, node: ast.AST, target: ast.expr | None, value: buffers.MatchBuffer
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

    def _declare_let(self, node: ast.AST, target: ast.expr | None, value: decl.LetDecl) -> Rest:
        made = self.guard(node, as_expr, value.value, value.dtype)
        known = value.var
        if known is not None and (target is None or known.name):
            if target is not None:
                self.scope.define(self._target_name(target), known)
            return Rest(lambda body: LetStmt(known, made, body))
        name = self._named(node, target, "a let")
        if known is not None:
            set_name(known, name)
        return self._let(known or Var(name, value.dtype or made.dtype), made)

    def _declare_attr(self, node: object, target: ast.expr | None, value: decl.AttrDecl) -> Rest:
        if target is not None:
            self.fail(target, "T.attr has no name")
        if value.said[0][0] == REDUCE_SCOPE and isinstance(value.node, CommReducer):
            self.scope.define(REDUCE_SCOPE, value.node)
            return Rest(lambda body: body)
        return Rest(value.around)

    def _define_buffer(self, node: ast.AST, target: ast.expr | None, buffer: Buffer) -> None:
        """Name a buffer as the target of an assignment says."""
        name = self._named(node, target, "a buffer")
        set_name(buffer, name)
        self.scope.define(name, buffer)

    def _declare_allocate(
        self, node: ast.AST, target: ast.expr | None, value: buffers.AllocateDecl
    ) -> Rest:
        self._define_buffer(node, target, value.buffer)
        return Rest(lambda body: Allocate(value.buffer, body, value.annotations))

    def _declare_view(
        self, node: ast.AST, target: ast.expr | None, value: buffers.BufferDecl
    ) -> Rest:
        self._define_buffer(node, target, value.buffer)
        return Rest(lambda body: DeclBuffer(value.buffer, body))

    def _declare_thread(
        self, node: ast.AST, target: ast.expr | None, value: threads.EnvThread
    ) -> None:
        name = self._named(node, target, "a thread")
        set_name(value.var, name)
        self.scope.define(name, value)

    def _declare_launch(
        self, node: ast.AST, target: ast.expr | None, value: threads.LaunchThread
    ) -> Rest:
        """Threads of a tag that run what follows: a loop over them."""
        var = value.var
        if target is not None or var is None:
            name = value.tag.replace(".", "_") if target is None else self._target_name(target)
            if var is None:
                var = Var(name, value.extent.dtype)
            elif not var.name:
                set_name(var, name)
            self.scope.define(name, var)
        if var in self.loops:
            self.fail(node, f"{value.tag} is launched already")
        self.loops[var] = Range.from_min_extent(const(0, value.extent.dtype), value.extent)
        self.tags[var] = value.tag
        loop, launched = var, value
        return Rest(
            lambda body: For(
                loop, const(0, launched.extent.dtype), launched.extent, THREAD_BINDING, body,
                launched.tag,
            )
        )  # fmt: skip

    def _declare_allreduce(self, node: Any, target: ast.expr | None, value: AllReduce) -> Stmt:
        """Join values of threads, by the reducer of the ``T.attr`` around it."""
        if target is not None:
            self.fail(target, "tvm_thread_allreduce gives nothing: it writes the results")
        made: Stmt = self.guard(node, value.joined, self._in_sight(REDUCE_SCOPE), self.tags)
        return made

    def _resolve(self, node: ast.AST, value: buffers.DeferredBuffer) -> Buffer:
        """Make the buffer whose shape names symbolic variables by text."""
        shape = []
        for extent in value.shape:
            if isinstance(extent, str):
                shape.append(self._symbolic_extent(node, extent))
            else:
                shape.append(extent)
        made: Buffer = self.guard(
            node, buffers.buffer_type, tuple(shape), value.dtype, **value.layout
        )
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
    buffers.ScalarDecl: AssignmentParser._declare_scalar,
    threads.EnvThread: AssignmentParser._declare_thread,
    threads.LaunchThread: AssignmentParser._declare_launch,
    AllReduce: AssignmentParser._declare_allreduce,
}


_WITHOUT_VALUE = (
    Stmt,
    decl.Accesses,
    decl.AssertFrame,
    decl.Attributes,
    decl.BranchFrame,
    decl.IfFrame,
    decl.SeqDecl,
    decl.Where,
    decl.WhileFrame,
)


def _as_read(target: ast.Name | ast.Subscript) -> ast.expr:
    """The expression that reads what a target writes."""
    made: ast.expr = (
        ast.Name(target.id, ast.Load())
        if isinstance(target, ast.Name)
        else ast.Subscript(target.value, target.slice, ast.Load())
    )
    return ast.copy_location(made, target)
