"""``BlockBuilder``: writes graph functions in A-normal form, binding by binding.

    bb = BlockBuilder()
    x = Var("x", TensorStructInfo(("n", 784)...))
    with bb.function("main", [x, w]):
        with bb.dataflow():
            lv = bb.emit(op.matmul(x, w))
            out = bb.emit_output(op.nn.relu(lv))
        bb.emit_func_output(out)
    mod = bb.get()

Operands that are themselves calls are bound to variables (``emit`` normalises). Tensor functions
added with ``add_func`` or made by ``call_te`` are shared if structurally equal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir import (
    GLOBAL_SYMBOL,
    BaseFunc,
    GlobalVar,
    IRModule,
    Var,
    structural_equal,
    structural_hash,
)
from tilewright.relax.analysis import derive_call_ret_struct_info
from tilewright.relax.assertion import assertion
from tilewright.relax.branches import If
from tilewright.relax.builder_scopes import DataflowScope as DataflowScope
from tilewright.relax.builder_scopes import FunctionScope as FunctionScope
from tilewright.relax.builder_scopes import TestingScope as TestingScope
from tilewright.relax.call_tir import call_tir, call_tir_operands, call_tir_with_grad
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    VarBinding,
    is_atom,
)
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import (
    StructInfo,
    extents_of,
)
from tilewright.relax.tensor_bridge import TensorBridge
from tilewright.relax.values import as_relax
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc, fresh_name
from tilewright.tir.attrs import IMPURE

_open = threading.local()
"""``builders``: those with a function under construction on this thread, the innermost last."""


class _Frame:
    """A function under construction."""

    def __init__(self, name: str, params: Sequence[RelaxVar], attrs: Mapping[str, object]) -> None:
        self.name = name
        self.params = tuple(params)
        self.attrs = dict(attrs)
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.in_dataflow = False
        self.taken = {param.name for param in params}
        self.output: RelaxExpr | None = None
        self.outputs: dict[RelaxExpr, RelaxVar] = {}
        """Variables of dataflow blocks that leave them, and those by which they do."""
        # An expression object used as an operand twice is computed once (within one block).
        self.shared: dict[RelaxExpr, RelaxVar] = {}

    @property
    def all_bindings(self) -> list[Binding]:
        return [item for block in self.blocks for item in block.bindings] + self.bindings

    def close_block(self, kind: type[BindingBlock]) -> None:
        self.shared.clear()
        if self.bindings:
            self.blocks.append(kind(tuple(self.bindings)))
            self.bindings = []


@dataclass(frozen=True)
class _Made:
    """A tensor function that ``call_te`` made, and the struct info of its result."""

    name: str
    function: BaseFunc
    result: StructInfo | tuple[StructInfo, ...]


class BlockBuilder:
    """Builds a module of graph functions and the tensor functions that they call."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self._functions: dict[str, BaseFunc] = dict(mod.functions) if mod is not None else {}
        self._attrs = dict(mod.attrs) if mod is not None else {}
        self._by_hash: dict[str, list[str]] = {}
        # Tensor functions by name whose hash isn't known: most passes add none to the module's.
        self._unhashed = [n for n, f in self._functions.items() if isinstance(f, PrimFunc)]
        self._made_by_key: dict[tuple[Hashable, Hashable], _Made] = {}
        self._names = set(self._functions)
        self._frames: list[_Frame] = []

    @staticmethod
    def current() -> BlockBuilder | None:
        """Return the builder that builds a function on this thread now, if there is one."""
        builders: list[BlockBuilder] = getattr(_open, "builders", [])
        return builders[-1] if builders else None

    @contextmanager
    def _building(self, frame: _Frame) -> Iterator[None]:
        """Emit into a frame."""
        builders = _open.__dict__.setdefault("builders", [])
        builders.append(self)
        self._frames.append(frame)
        try:
            yield
        finally:
            self._frames.pop()
            builders.pop()

    # ---- functions --------------------------------------------------------------------------

    @contextmanager
    def function(
        self,
        name: str,
        params: Sequence[RelaxVar] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Iterator[None]:
        """Build a function; its body must call ``emit_func_output``.

        One with effects that the world sees (``print``, ``call_packed``) must say ``pure=False``.
        Functions that others of the module call are private unless they have a ``global_symbol``.

        Raises ``VerifyError`` if ``private`` is said of one with a ``global_symbol``.
        """
        if private and GLOBAL_SYMBOL in (attrs or {}):
            raise VerifyError(f"{name!r} has a {GLOBAL_SYMBOL}, so it isn't private")
        given = (params,) if isinstance(params, RelaxVar) else params or ()
        frame = _Frame(name, given, {**(attrs or {}), **({} if pure else {IMPURE: True})})
        with self._building(frame):
            yield
        self._functions[name] = self._finish(frame)
        self._names.add(name)

    @contextmanager
    def testing_scope(self, def_vars: Sequence[Var]) -> Iterator[None]:
        """Emit without a function, as tests of single operators do; what is emitted is dropped.

        ``def_vars`` are the symbolic extents that may be used, which need no definition here.

        Raises ``VerifyError`` for others than variables.
        """
        wrong = [var for var in def_vars if not isinstance(var, Var)]
        if wrong:
            raise VerifyError(f"testing_scope takes symbolic extents, got {wrong[0]!r}")
        with self._building(_Frame("<test>", (), {})):
            yield

    def build_function(
        self,
        params: Sequence[RelaxVar],
        body: Callable[[], RelaxExpr],
        attrs: Mapping[str, object] | None = None,
    ) -> Function:
        """Build a function without adding it; ``body`` emits and returns the result."""
        frame = _Frame("<function>", params, attrs or {})
        with self._building(frame):
            frame.output = self._atom(body())
        return self._finish(frame)

    def _finish(self, frame: _Frame) -> Function:
        if frame.output is None:
            raise VerifyError(f"function {frame.name!r} has no result: call emit_func_output(...)")
        frame.close_block(BindingBlock)
        body = SeqExpr(tuple(frame.blocks), frame.output)
        return Function(frame.params, body, frame.output.struct_info, attrs=frame.attrs)

    def build_branch(self, body: Callable[[], RelaxExpr]) -> SeqExpr:
        """Build a branch of an ``If``; ``body`` emits and returns its result.

        Raises ``VerifyError`` inside of a dataflow block.
        """
        with self.branch(body) as made:
            pass
        return made[0]

    @contextmanager
    def branch(self, body: Callable[[], RelaxExpr] | None = None) -> Iterator[list[SeqExpr]]:
        """Build a branch of an ``If`` in a ``with``, which gives it in a list when it ends.

        Its result is what ``body`` gives after that, or what was bound last.

        Raises ``VerifyError`` inside of a dataflow block, and if nothing was bound.
        """
        outer = self._frame()
        if outer.in_dataflow:
            raise VerifyError(
                "branches don't belong in a dataflow block: emit them before or after"
            )
        frame = _Frame(outer.name, (), {})
        frame.taken = outer.taken
        made: list[SeqExpr] = []
        with self._building(frame):
            yield made
            if body is not None:
                output = self._atom(as_relax(body()))
            elif self.bindings:
                output = self.bindings[-1].var
            else:
                raise VerifyError("a branch of an If binds its result")
        frame.close_block(BindingBlock)
        made.append(SeqExpr(tuple(frame.blocks), output))

    def build_block(
        self, body: Callable[[], Any], kind: type[BindingBlock] = BindingBlock
    ) -> tuple[Any, BindingBlock]:
        """Return what ``body`` returns, and a block of what it emits."""
        frame = _Frame("<block>", (), {})
        frame.in_dataflow = kind is DataflowBlock
        if self._frames:
            frame.taken = self._frame().taken
        with self._building(frame):
            made = body()
        return made, kind(tuple(frame.bindings))

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """Build a dataflow block of pure bindings; only ``emit_output`` makes them visible outside.

        Raises ``VerifyError`` inside of another one.
        """
        frame = self._frame()
        if frame.in_dataflow:
            raise VerifyError("dataflow blocks do not nest")
        frame.close_block(BindingBlock)
        frame.in_dataflow = True
        yield
        frame.close_block(DataflowBlock)
        frame.in_dataflow = False

    @property
    def in_dataflow(self) -> bool:
        """Whether what is emitted now belongs to a dataflow block."""
        return self._frame().in_dataflow

    @property
    def bindings(self) -> list[Binding]:
        """What the function under construction has bound so far, in order."""
        return self._frame().all_bindings

    def current_block_is_dataflow(self) -> bool:
        """``in_dataflow``, under TVM's name."""
        return self.in_dataflow

    def get_unique_name(self, name_prefix: str) -> str:
        """Return a name that no variable of the function under construction has, and take it."""
        return fresh_name(name_prefix, self._frame().taken, "")

    def lookup_binding(self, var: RelaxVar) -> RelaxExpr | None:
        """Return what a variable is bound to in the function under construction, if it is."""
        bound = (item for frame in self._frames for item in frame.all_bindings)
        return next((item.value for item in bound if item.var is var), None)

    def emit_func_output(
        self, output: object, params: RelaxVar | Sequence[RelaxVar] | None = None
    ) -> GlobalVar:
        """Set the function's result (and its parameters, if not given before); return its name.

        Raises ``VerifyError`` inside of a dataflow block.
        """
        frame = self._frame()
        if frame.in_dataflow:
            raise VerifyError("emit_func_output belongs after the dataflow block")
        if params is not None:
            frame.params = (params,) if isinstance(params, RelaxVar) else tuple(params)
        # A variable of the block that has ended is the one it left the block by.
        left = frame.outputs.get(output) if isinstance(output, DataflowVar) else None
        frame.output = self._atom(as_relax(output if left is None else left))
        return GlobalVar(frame.name)

    def get(self) -> IRModule:
        """Return the module built so far."""
        return IRModule(dict(self._functions), dict(self._attrs))

    def finalize(self) -> IRModule:
        """Return the module built so far: ``get``."""
        return self.get()

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function under a free name based on ``func_name``; an equal one is shared."""
        for known in self._unhashed:
            self._by_hash.setdefault(structural_hash(self._functions[known]), []).append(known)
        self._unhashed = []
        key = structural_hash(func)
        for known in self._by_hash.get(key, ()):
            if structural_equal(self._functions[known], func):
                return GlobalVar(known)
        free = fresh_name(func_name, self._names)
        self._functions[free] = func
        self._by_hash.setdefault(key, []).append(free)
        return GlobalVar(free)

    def update_func(self, gv: str | GlobalVar, updated_func: BaseFunc) -> None:
        """Replace a function."""
        self._functions[gv.name if isinstance(gv, GlobalVar) else gv] = updated_func

    def remove_func(self, name: str) -> None:
        """Remove a function."""
        del self._functions[name]
        self._unhashed = [item for item in self._unhashed if item != name]
        self._by_hash = {
            key: [item for item in names if item != name] for key, names in self._by_hash.items()
        }

    def _frame(self) -> _Frame:
        if not self._frames:
            raise VerifyError("nothing can be emitted outside `with builder.function(...)`")
        return self._frames[-1]

    # ---- bindings ---------------------------------------------------------------------------

    def emit(self, expr: RelaxExpr, name_hint: str = "") -> RelaxVar:
        """Bind an expression to a new variable, its operands first."""
        return self._bind(self.normalize(as_relax(expr)), name_hint, output=False)

    def emit_if(
        self,
        cond: object,
        true_branch: Callable[[], RelaxExpr],
        false_branch: Callable[[], RelaxExpr],
        name_hint: str = "",
    ) -> RelaxVar:
        """Bind an ``If``; each branch is a function that emits bindings and returns the result.

        Raises ``VerifyError`` inside of a dataflow block.
        """
        test = self._atom(as_relax(cond))
        branches = self.build_branch(true_branch), self.build_branch(false_branch)
        return self.emit(If(test, *branches), name_hint)

    def emit_output(self, output: object, name_hint: str = "") -> RelaxVar:
        """Bind an expression to a variable that outlives the dataflow block.

        Raises ``VerifyError`` outside of a dataflow block.
        """
        if not self._frame().in_dataflow:
            raise VerifyError("emit_output belongs inside `with builder.dataflow()`")
        return self._bind(self.normalize(as_relax(output)), name_hint, output=True)

    def _bind(self, value: RelaxExpr, name_hint: str, *, output: bool) -> RelaxVar:
        frame = self._frame()
        if isinstance(value, If) and frame.in_dataflow:
            raise VerifyError("an If doesn't belong in a dataflow block: emit it before or after")
        local = frame.in_dataflow and not output
        kind = DataflowVar if local else RelaxVar
        var = kind(self._fresh(name_hint, "lv" if local else "gv"), value.struct_info)
        frame.bindings.append(VarBinding(var, value))
        if output and isinstance(value, DataflowVar):
            frame.outputs[value] = var
        return var

    def _fresh(self, hint: str, default: str) -> str:
        return fresh_name(hint or default, self._frame().taken, "")

    def emit_binding(self, binding: Binding) -> RelaxVar:
        """Add a binding unchanged."""
        frame = self._frame()
        frame.taken.add(binding.var.name)
        frame.bindings.append(binding)
        return binding.var

    def emit_normalized(self, binding: Binding) -> None:
        """Add a binding unchanged; its value is in A-normal form already.

        Raises ``VerifyError`` if it isn't.
        """
        if self.normalize(binding.value) is not binding.value:
            raise VerifyError(f"the value of {binding.var.name} is nested: {binding.value!r}")
        self.emit_binding(binding)

    @other_names(struct_info="ty")
    def match_cast(self, value: RelaxExpr, ty: StructInfo, name_hint: str = "") -> RelaxVar:
        """Bind a value to a given struct info, checked at run time."""
        atom = self._atom(as_relax(value))
        frame = self._frame()
        kind = DataflowVar if frame.in_dataflow else RelaxVar
        var = kind(self._fresh(name_hint, "lv" if frame.in_dataflow else "gv"), ty)
        frame.bindings.append(MatchCast(var, atom, ty))
        return var

    def emit_call(self, function: str | GlobalVar, *args: object) -> RelaxVar:
        """``emit(call_function(...))``."""
        return self.emit(self.call_function(function, *args))

    def call_function(self, function: str | GlobalVar, *args: object) -> RelaxCall:
        """Call a graph function of the module; its result's struct info is derived.

        Raises ``VerifyError`` if there is no such function, the arguments don't fit, or none says
        what a symbolic extent of the result is.
        """
        gvar = GlobalVar(function) if isinstance(function, str) else function
        callee = self._functions.get(gvar.name)
        if not isinstance(callee, Function):
            raise VerifyError(f"{gvar!r} is no graph function of the module")
        operands = tuple(as_relax(arg) for arg in args)
        attrs = {} if callee.is_pure else {"pure": False}
        stated = callee.ret_struct_info
        call = RelaxCall(gvar, operands, attrs, (stated,))
        result = derive_call_ret_struct_info(callee.struct_info, call, self)
        if len(extents_of(result)) < len(extents_of(stated)):
            raise VerifyError(
                f"no argument says what the result of {gvar!r} is, {stated!r}: build the call with "
                "sinfo_args"
            )
        return call.replace(sinfo_args=(result,))

    def normalize(self, expr: RelaxExpr) -> RelaxExpr:
        """Convert a value to A-normal form, emitting bindings for operands that are not atoms."""
        if is_atom(expr) or isinstance(expr, SeqExpr):
            return expr
        if isinstance(expr, If):
            made = [self._normal_branch(branch) for branch in expr.branches]
            return expr.replace(
                cond=self._atom(expr.cond), true_branch=made[0], false_branch=made[1]
            )
        return expr.map_children(
            lambda item: self._atom(item) if isinstance(item, RelaxExpr) else item
        )

    def _normal_branch(self, branch: SeqExpr) -> SeqExpr:
        if is_atom(branch.body):
            return branch

        def body() -> RelaxExpr:
            frame = self._frame()
            frame.blocks.extend(branch.blocks)
            return branch.body

        return self.build_branch(body)

    def _atom(self, expr: RelaxExpr) -> RelaxExpr:
        if is_atom(expr):
            return expr
        if isinstance(expr, Tuple):
            return Tuple(tuple(map(self._atom, expr.fields)))
        shared = self._frame().shared
        known = shared.get(expr)
        if known is None:
            known = self.emit(expr)
            op = expr.op if isinstance(expr, RelaxCall) else None
            if op is None or (isinstance(op, RelaxOp) and op.effect == "pure"):
                shared[expr] = known
        return known

    # ---- tensor expressions -----------------------------------------------------------------

    def call_te(
        self,
        func: Callable[..., Any],
        *args: object,
        primfunc_name_hint: str = "",
        primfunc_attrs: Mapping[str, Any] | None = None,
        primfunc_key: Hashable = None,
        sizes_checked: bool = False,
        merge_repeated: bool = True,
        **kwargs: object,
    ) -> RelaxCall:
        """Make a tensor function from ``te`` code, add it, and return the ``call_tir`` of it.

        Graph tensors among the arguments (also in lists) become ``te`` placeholders, shapes become
        tuples of extents, scalar constants numbers. ``primfunc_key`` identifies ``func`` and
        everything it captures: calls with one key and like arguments share one tensor function. The
        code's requirements on symbolic sizes are asserted before the call, unless the graph already
        does so (``sizes_checked``). A tensor that is given twice is one operand, unless
        ``merge_repeated`` is ``False``.
        """
        bridge = TensorBridge(self, merge_repeated)
        positional = [bridge.convert(arg) for arg in args]
        named = {key: bridge.convert(value) for key, value in kwargs.items()}
        key = None if primfunc_key is None else bridge.key(positional, named)
        known = None if key is None else self._made_by_key.get((primfunc_key, key))
        if known is not None and self._functions.get(known.name) is known.function:
            return call_tir(GlobalVar(known.name), Tuple(tuple(bridge.operands)), known.result)
        made = func(*positional, **named)
        several = isinstance(made, (list, tuple))
        outputs = list(made) if several else [made]
        hint = primfunc_name_hint or getattr(func, "__name__", "te")
        if hint == "<lambda>":
            hint = outputs[0].name
        call = bridge.finish(outputs, hint, several, primfunc_attrs or {})
        if not sizes_checked:
            for condition in te.conditions_of(outputs):
                self.emit(assertion(condition.of(hint)))
        if key is not None:
            name = call_tir_operands(call)[0].name
            result = call.sinfo_args if several else call.sinfo_args[0]
            self._made_by_key[primfunc_key, key] = _Made(name, self._functions[name], result)
        return call

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: object,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> RelaxCall:
        """``call_te`` with a gradient in ``te``, registered under a name: ``call_tir_with_grad``.

        Raises ``VerifyError`` if the code needs symbolic sizes that no argument has.
        """
        # The gradient's code has a parameter for each operand, whichever tensors these are.
        plain = self.call_te(func, *args, merge_repeated=False, **kwargs)
        function, operands, sizes = call_tir_operands(plain)
        if sizes is not None:
            raise VerifyError(f"no argument of {function.name} has its sizes {sizes.values}")
        return call_tir_with_grad(
            function.callee,  # type: ignore[arg-type]
            Tuple(operands),
            plain.sinfo_args if len(plain.sinfo_args) > 1 else plain.sinfo_args[0],
            te_grad_name,
            te_grad_kwargs,
        )

    def emit_te(
        self,
        func: Callable[..., Any],
        *args: object,
        primfunc_name_hint: str = "",
        **kwargs: Any,
    ) -> RelaxVar:
        """``emit(call_te(...))``."""
        call = self.call_te(func, *args, primfunc_name_hint=primfunc_name_hint, **kwargs)
        return self.emit(call)
