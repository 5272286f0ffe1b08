"""``LowerGraph``: a planned graph function becomes one tensor function that calls the kernels.

Its parameters are the graph's inputs, then its results. The body allocates the workspace once and
calls the kernels in order with pointers, computing symbolic extents in between; no interpreter is
involved. Constants are data of the compiled module, referenced by symbol; they are stored in the
module's attribute ``constants``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arith import Analyzer
from tilewright.codegen.llvm.ffi_abi import TensorArg
from tilewright.codegen.llvm.signature import Signature, make_signature
from tilewright.ir import (
    Expr,
    GlobalVar,
    IRModule,
    Pass,
    StringImm,
    Var,
    as_expr,
    as_int,
    call,
    cast,
    free_vars,
    select,
    substitute,
)
from tilewright.relax.assertion import assertion_operands
from tilewright.relax.branches import If, all_bindings
from tilewright.relax.call_packed import PACKED
from tilewright.relax.call_tir import CALL_DPS
from tilewright.relax.expr import (
    Constant,
    ConstantData,
    ExternFunc,
    Function,
    FunctionRef,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    StringValue,
    Tuple,
)
from tilewright.relax.extent_checks import extent_conditions, extent_values
from tilewright.relax.overwriting import overwritable_parameters
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    defined_vars,
    prove_equal,
    used_vars,
)
from tilewright.relax.transform.call_tir_rewrite import COPY
from tilewright.support.errors import LowerError
from tilewright.tir import (
    Allocate,
    AssertStmt,
    Buffer,
    BufferLoad,
    Evaluate,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
    renew_definitions,
    seq,
)
from tilewright.tir.attrs import APART, CONSTANTS, IS_SCHEDULED, READ_ONLY


class LowerGraph(Pass):
    """Turn graph functions into tensor functions."""

    def transform(self, mod: IRModule) -> IRModule:
        """Lower every graph function that is not a fusion group."""
        constants: dict[str, ConstantData] = dict(mod.attrs.get(CONSTANTS, {}))
        symbols: dict[ConstantData, str] = {}
        made = dict(mod.functions)
        for name, function in mod.functions.items():
            if isinstance(function, Function):
                made[name] = _GraphLowerer(mod, name, function, constants, symbols).lower()
        attrs = {**mod.attrs, CONSTANTS: constants} if constants else dict(mod.attrs)
        return IRModule(made, attrs)


class _GraphLowerer:
    def __init__(
        self,
        mod: IRModule,
        name: str,
        function: Function,
        constants: dict[str, ConstantData],
        symbols: dict[ConstantData, str],
    ) -> None:
        self.mod = mod
        self.name = name
        self.function = function
        self.constants = constants
        self.symbols = symbols
        self.names: set[str] = set()
        self.pointers: dict[RelaxVar, Expr] = {}
        self.buffers: dict[RelaxVar, Buffer] = {}
        self.offsets: dict[RelaxVar, Expr] = {}
        self.viewed: dict[RelaxExpr, RelaxExpr] = {}
        self.shapes: dict[RelaxVar, tuple[Expr, ...]] = {}
        self.extents: dict[Any, Any] = {}
        self.written: set[Expr] = set()
        self.from_outside: dict[Expr, Buffer] = {}
        """Parameters and results, by their pointers."""
        self.analyzer = Analyzer()
        """Knows what has been asserted before the current binding."""

    def lower(self) -> PrimFunc:
        params: list[Var] = []
        buffer_map: dict[Var, Buffer] = {}
        # Before the tensors, whose extents they may be.
        scalars = self.scalar_values = self.scalars()
        for param in self.function.params:
            info = param.struct_info
            if isinstance(info, TensorStructInfo) and info.has_shape:
                self.add_buffer(param, info, param.name, params, buffer_map)
            elif isinstance(info, PrimStructInfo):
                params.append(scalars[param])
            else:
                raise LowerError(
                    f"parameter {param.name} of {self.name} is {info!r}; "
                    "compiled graphs take tensors of known rank and scalars"
                )
        results = _leaves(self.function.body.body)
        roots = self.result_roots(results)
        for number, (leaf, root) in enumerate(zip(results, roots)):
            info = leaf.struct_info
            assert isinstance(info, TensorStructInfo)
            name = "out" if len(results) == 1 else f"out{number}"
            pointer = self.add_buffer(leaf, info, name, params, buffer_map)
            self.pointers[root] = pointer
        self.from_outside = {buffer.data: buffer for buffer in buffer_map.values()}
        checks = self.check_scalars(scalars)
        body = seq(*checks, self.lower_bindings(0, self.function.bindings))
        attrs = self.kept_attrs()
        attrs[READ_ONLY] = tuple(
            position
            for position, var in enumerate(params)
            if var in buffer_map and buffer_map[var].data not in self.written
        )
        first = len(params) - len(results)
        pairs = overwritable_parameters(self.mod, self.function)
        places = {first + result: source for source, result in pairs}
        attrs[APART] = tuple((n, places.get(n, n)) for n in range(first, len(params)))
        func = PrimFunc(params, body, attrs=attrs, buffer_map=buffer_map)
        renewed: PrimFunc = renew_definitions(func)
        return renewed

    def scalars(self) -> dict[RelaxVar, Var]:
        """Make the scalar parameters; the first of a symbolic value says what that is."""
        made: dict[RelaxVar, Var] = {}
        for param in self.function.params:
            info = param.struct_info
            if isinstance(info, PrimStructInfo):
                made[param] = Var(fresh_name(param.name, self.names), info.dtype)
                if isinstance(info.value, Var):
                    self.extents.setdefault(info.value, made[param])
        return made

    def check_scalars(self, scalars: dict[RelaxVar, Var]) -> list[Stmt]:
        """Check the values of scalars that something else says: a constant, formula, or scalar."""
        checks: list[Stmt] = []
        for param, scalar in scalars.items():
            info = param.struct_info
            value = info.value if isinstance(info, PrimStructInfo) else None
            if value is None or self.extents.get(value) is scalar:
                continue
            expected = substitute(value, self.extents)
            self.analyzer.assume(scalar == expected)
            message = f"{param.name} must be {value!r}, which is {{}}; got {{}}"
            checks.append(
                AssertStmt("RuntimeError", scalar == expected, message, (expected, scalar))
            )
        return checks

    def kept_attrs(self) -> dict[str, object]:
        # The body is in its final form: no schedule applies to it.
        return {**self.function.attrs, IS_SCHEDULED: True, "relax.graph": True}

    def add_buffer(
        self,
        var: RelaxVar,
        info: TensorStructInfo,
        name: str,
        params: list[Var],
        buffer_map: dict[Var, Buffer],
    ) -> Expr:
        buffer = self.buffers[var] = self.declare(info, name)
        handle = Var(f"{buffer.name}_handle", "handle")
        params.append(handle)
        buffer_map[handle] = buffer
        pointer = buffer.data
        self.pointers[var] = pointer
        return pointer

    def declare(self, info: TensorStructInfo, name: str) -> Buffer:
        shape = tuple(substitute(extent, self.extents) for extent in info.shape)
        return decl_buffer(shape, info.dtype, fresh_name(name, self.names))

    def result_roots(self, results: list[RelaxVar]) -> list[RelaxVar]:
        """The tensors whose memory the results are; also notes that of all other views."""
        source: dict[RelaxVar, RelaxVar] = {}
        for binding in all_bindings(self.function):
            value = binding.value
            if is_call_to(value, "memory.view") or isinstance(binding, MatchCast):
                inner = value.args[0] if isinstance(value, RelaxCall) else value
                if isinstance(inner, RelaxVar):
                    source[binding.var] = source.get(inner, inner)
        self.sources = source
        return [source.get(var, var) for var in results]

    # ---- statements -------------------------------------------------------------------------

    def lower_bindings(self, start: int, bindings: list[Any]) -> Stmt:
        stmts: list[Stmt] = []
        for position in range(start, len(bindings)):
            binding = bindings[position]
            value = binding.value
            if isinstance(binding, MatchCast):
                checks, definitions = self.match_cast(binding)
                stmts.extend(checks)
                if definitions:
                    rest = self.lower_bindings(position + 1, bindings)
                    for var, extent in reversed(definitions):
                        rest = LetStmt(var, extent, rest)
                    return seq(*stmts, rest)
            elif is_call_to(value, "memory.workspace"):
                size = substitute(value.args[0].value, self.extents)
                buffer = decl_buffer((size,), "uint8", fresh_name("workspace", self.names))
                self.workspace = buffer
                return seq(*stmts, Allocate(buffer, self.lower_bindings(position + 1, bindings)))
            elif is_call_to(value, "memory.alloc_tensor"):
                offset = substitute(value.args[1].value, self.extents)
                element = BufferLoad(self.workspace, (offset,))
                self.pointers[binding.var] = call("address_of", element, dtype="handle")
                self.offsets[binding.var] = offset
            elif is_call_to(value, "memory.view"):
                self.pointers.setdefault(binding.var, self.pointer(value.args[0]))
                self.viewed[binding.var] = self.viewed.get(value.args[0], value.args[0])
            elif is_call_to(value, "memory.empty"):
                if binding.var not in self.pointers and self.is_late(binding.var):
                    info = binding.var.struct_info
                    assert isinstance(info, TensorStructInfo)
                    buffer = self.declare(info, binding.var.name)
                    self.pointers[binding.var] = buffer.data
                    self.buffers[binding.var] = buffer
                    return seq(
                        *stmts, Allocate(buffer, self.lower_bindings(position + 1, bindings))
                    )
                if binding.var not in self.pointers:
                    raise LowerError(
                        f"{self.name} allocates {binding.var.name}: run StaticPlanBlockMemory first"
                    )
            elif self.is_computed_shape(value):
                extents = self.computed_shape(value)
                fresh = [Var(f"{binding.var.name}_{axis}") for axis in range(len(extents))]
                self.shapes[binding.var] = tuple(fresh)
                rest = self.lower_bindings(position + 1, bindings)
                for var, extent in reversed(list(zip(fresh, extents))):
                    rest = LetStmt(var, extent, rest)
                return seq(*stmts, rest)
            elif isinstance(value, RelaxCall) and value.op is CALL_DPS:
                stmts.append(self.call(value))
            elif isinstance(value, If):
                stmts.append(self.branches(value))
            elif is_call_to(value, "assert_op"):
                condition, values, message = assertion_operands(value)
                shown = tuple(substitute(item, self.extents) for item in values)
                holds = substitute(condition, self.extents)
                self.analyzer.assume(holds)
                stmts.append(AssertStmt("RuntimeError", holds, message, shown))
            else:
                raise LowerError(
                    f"{self.name} binds {binding.var.name} to {value!r}: run CallTIRRewrite first"
                )
        return seq(*stmts)

    @staticmethod
    def is_computed_shape(value: RelaxExpr) -> bool:
        chosen = isinstance(value, If) and isinstance(value.struct_info, ShapeStructInfo)
        return chosen or is_call_to(value, "tensor_to_shape")

    def computed_shape(self, value: RelaxExpr) -> list[Expr]:
        """Extents that are known only when the graph runs."""
        if not isinstance(value, If):
            assert isinstance(value, RelaxCall)
            return self.elements(value.args[0])
        first, second = (
            [substitute(extent, self.extents) for extent in self.extents_of_shape(branch.body)]
            for branch in value.branches
        )
        if value.taken is not None:
            return first if value.taken is value.true_branch else second
        cond = self.condition(value.cond)
        return [select(cond, a, b) for a, b in zip(first, second)]

    def branches(self, value: If) -> Stmt:
        """Both branches, which write into memory that is allocated before."""
        outer, extents = self.analyzer, self.extents
        made = []
        for branch in value.branches if value.taken is None else (value.taken,):
            # An extent that a branch defines is another one elsewhere.
            self.analyzer, self.extents = outer.copy(), dict(extents)
            made.append(self.lower_bindings(0, [b for k in branch.blocks for b in k.bindings]))
        self.analyzer, self.extents = outer, extents
        return made[0] if len(made) == 1 else IfThenElse(self.condition(value.cond), *made)

    def condition(self, value: RelaxExpr) -> Expr:
        if isinstance(value.struct_info, PrimStructInfo):
            return cast(self.scalar(value), "bool")
        assert isinstance(value, RelaxVar)
        root = self.sources.get(value, value)
        if root in self.buffers:
            indices = (0,) * len(self.buffers[root].shape)
            return BufferLoad(self.buffers[root], tuple(map(as_expr, indices)))
        if root in self.offsets:
            byte: Expr = BufferLoad(self.workspace, (self.offsets[root],))
            holds: Expr = byte != cast(as_expr(0), "uint8")
            return holds
        raise LowerError(f"{self.name}: the condition {value!r} can't be read from memory")

    def scalar(self, item: RelaxExpr) -> Expr:
        if isinstance(item, PrimValue):
            return substitute(item.value, self.extents)
        if isinstance(item, RelaxVar) and item in self.scalar_values:
            return self.scalar_values[item]
        raise LowerError(f"{self.name}: nothing says what the scalar {item!r} is")

    def is_late(self, var: RelaxVar) -> bool:
        """Whether the size of a tensor depends on what the graph computes."""
        early = set(defined_vars([param.struct_info for param in self.function.params]))
        return not early.issuperset(used_vars(var.struct_info))

    def elements(self, value: RelaxExpr) -> list[Expr]:
        """The numbers of a short int64 tensor, read where this is."""
        count = as_int(value.shape[0])
        assert count is not None
        value = self.viewed.get(value, value)
        if isinstance(value, Constant):
            return [as_expr(int(item)) for item in value.data.reshape(-1)]
        if isinstance(value, RelaxVar) and value in self.buffers:
            buffer = self.buffers[value]
            shape = [as_int(extent) for extent in buffer.shape]
            if None not in shape:
                places = np.ndindex(*shape)  # type: ignore[arg-type]  # none is unknown
                return [BufferLoad(buffer, tuple(map(as_expr, place))) for place in places]
        if isinstance(value, RelaxVar) and value in self.offsets:
            return [_int64_at(self.workspace, self.offsets[value] + 8 * i) for i in range(count)]
        raise LowerError(f"{self.name}: the extents in {value!r} can't be read from memory")

    def extents_of_shape(self, value: RelaxExpr) -> tuple[Expr, ...]:
        if isinstance(value, RelaxVar) and value in self.shapes:
            return self.shapes[value]
        info = value.struct_info
        if not isinstance(info, ShapeStructInfo) or not info.is_known:
            raise LowerError(f"{self.name}: nothing says what the shape {value!r} is")
        return info.values

    def match_cast(self, binding: MatchCast) -> tuple[list[Stmt], list[tuple[Var, Expr]]]:
        """Check known extents; return the new ones with their values."""
        have, want = binding.value.struct_info, binding.struct_info
        if isinstance(have, ShapeStructInfo) and isinstance(want, ShapeStructInfo):
            extents = self.extents_of_shape(binding.value)
            self.shapes[binding.var] = extents
            if want.ndim not in (-1, len(extents)):
                raise LowerError(f"match_cast from {have!r} to {want!r} can't hold")
            return self.match_extents(binding, extents, want.values)
        if not isinstance(have, TensorStructInfo) or not isinstance(want, TensorStructInfo):
            raise LowerError(f"match_cast of {binding.value!r}: only tensors can be cast")
        if not have.has_shape or len(have.shape) != len(want.shape) or have.dtype != want.dtype:
            raise LowerError(f"match_cast from {have!r} to {want!r} can't be checked")
        if isinstance(binding.value, RelaxVar):
            self.pointers.setdefault(binding.var, self.pointers[binding.value])
        return self.match_extents(binding, have.shape, want.shape)

    def match_extents(
        self, binding: MatchCast, have: Sequence[Expr], want: Sequence[Expr]
    ) -> tuple[list[Stmt], list[tuple[Var, Expr]]]:
        checks: list[Stmt] = []
        definitions: list[tuple[Var, Expr]] = []
        known = set(self.symbolic())
        for actual, extent in zip(have, want):
            value = substitute(actual, self.extents)
            if type(extent) is Var and extent not in known and extent not in self.extents:
                fresh = Var(extent.name)
                self.extents[extent] = fresh
                definitions.append((fresh, value))
            elif not prove_equal(actual, extent):
                checks.append(
                    AssertStmt(
                        "RuntimeError",
                        value == substitute(extent, self.extents),
                        f"match_cast of {binding.value!r}: extent {actual!r} is not {extent!r}",
                    )
                )
        return checks, definitions

    def symbolic(self) -> list[Var]:
        """Extents that the parameters define."""
        found: list[Var] = []
        for param in self.function.params:
            info = param.struct_info
            if isinstance(info, TensorStructInfo):
                found.extend(extent for extent in info.shape if type(extent) is Var)
            elif isinstance(info, PrimStructInfo) and type(info.value) is Var:
                found.append(info.value)
        return found

    def call(self, value: RelaxCall) -> Stmt:
        ref, args, outputs = value.args[:3]
        assert isinstance(ref, FunctionRef)
        assert isinstance(args, Tuple) and isinstance(outputs, Tuple)
        if isinstance(ref.callee, ExternFunc) and ref.callee.attrs.get(PACKED):
            return self.call_packed(ref.callee, args, outputs)
        tensors = [*args.fields, *outputs.fields]
        pointers = [self.pointer(item) for item in tensors]
        self.written.update(pointers[len(args.fields) :])
        scalars: list[Expr] = []
        if len(value.args) > 3:
            extra = value.args[3]
            assert isinstance(extra, ShapeExpr)
            scalars = [substitute(extent, self.extents) for extent in extra.values]
        symbols: list[Expr] = []
        checks: list[Stmt] = []
        dtype = "int32"
        if isinstance(ref.callee, GlobalVar):
            func = self.mod[ref.callee]
            signature = make_signature(ref.name, func)
            described = [arg for arg in signature.spec.args if isinstance(arg, TensorArg)]
            self.written.update(p for p, arg in zip(pointers, described) if arg.written)
            shapes = [
                tuple(substitute(extent, self.extents) for extent in item.shape) for item in tensors
            ]
            values = extent_values(func, ref.name, shapes, scalars)
            checks = [
                AssertStmt("RuntimeError", what.expr, what.message, what.values)
                for what in extent_conditions(func, ref.name, shapes, values)
                if not self.analyzer.can_prove(what.expr)
            ]
            symbols = _symbolic_arguments(func, signature, values)
            # A number that the function returns is no result of the graph.
            dtype = "int32" if signature.spec.returns is None else "void"
        target = call(
            "call_extern", StringImm(ref.name), *pointers, *scalars, *symbols, dtype=dtype
        )
        made = seq(*checks, Evaluate(target))
        if isinstance(ref.callee, GlobalVar) and COPY in self.mod[ref.callee].attrs:
            return self.unless_same(made, pointers)
        return made

    def unless_same(self, copy: Stmt, pointers: Sequence[Expr]) -> Stmt:
        """A copy, which is left out where a caller has a result in a parameter's memory."""
        buffers = [self.from_outside[item] for item in pointers if item in self.from_outside]
        if len(buffers) < 2:
            return copy
        source, result = (
            call("address_of", BufferLoad(item, (as_expr(0),) * item.ndim), dtype="handle")
            for item in buffers
        )
        return IfThenElse(source != result, copy)

    def call_packed(self, callee: ExternFunc, args: Tuple, outputs: Tuple) -> Stmt:
        """Call a global function with tensors, scalars and texts."""
        written = (*args.fields, *outputs.fields) if callee.attrs.get("writes") else outputs.fields
        self.written.update(
            self.pointer(item)
            for item in written
            if isinstance(item, RelaxVar) and isinstance(item.struct_info, TensorStructInfo)
        )
        values = [self.packed(item) for item in (*args.fields, *outputs.fields)]
        target = call("call_packed", StringImm(callee.global_symbol), *values)
        return Evaluate(target)

    def packed(self, item: RelaxExpr) -> Expr:
        """An argument of a global function."""
        info = item.struct_info
        if isinstance(item, StringValue):
            return StringImm(item.value)
        if isinstance(info, PrimStructInfo):
            return self.scalar(item)
        assert isinstance(info, TensorStructInfo)
        shape = [substitute(extent, self.extents) for extent in info.shape]
        return call("packed_tensor", self.pointer(item), StringImm(info.dtype), *shape)

    def pointer(self, expr: RelaxExpr) -> Expr:
        if isinstance(expr, Constant):
            return self.constant(expr)
        if isinstance(expr, RelaxVar) and expr in self.pointers:
            return self.pointers[expr]
        raise LowerError(f"{self.name} passes {expr!r} to a kernel, which is no tensor in memory")

    def constant(self, expr: Constant) -> Expr:
        symbol = self.symbols.get(expr.value)
        if symbol is None:
            # Not named by content: a model compiles to the same code with other weights.
            number = len(self.constants)
            while f"tw_constant_{number}" in self.constants:
                number += 1
            symbol = self.symbols[expr.value] = f"tw_constant_{number}"
            self.constants[symbol] = expr.value
        nbytes = as_expr(max(1, expr.value.nbytes))
        return call("constant_data", StringImm(symbol), nbytes, dtype="handle")


def _symbolic_arguments(
    func: PrimFunc, signature: Signature, values: dict[Var, Expr]
) -> list[Expr]:
    """Values of a kernel's symbolic extents, in the order in which the kernel takes them."""
    made = []
    for expr in signature.parameters[len(func.params) :]:
        missing = [var for var in free_vars(expr) if var not in values]
        if missing:
            raise LowerError(f"{signature.spec.name}: nothing says what {missing[0].name} is")
        made.append(substitute(expr, values))
    return made


def _leaves(result: RelaxExpr) -> list[RelaxVar]:
    if isinstance(result, Tuple):
        return [leaf for item in result.fields for leaf in _leaves(item)]
    assert isinstance(result, RelaxVar)
    return [result]


def _int64_at(memory: Buffer, offset: Expr) -> Expr:
    """The number whose bytes, the lowest first, are in memory from an offset on."""
    total: Expr = as_expr(0)
    for position in range(8):
        byte: Expr = BufferLoad(memory, (offset + position,))
        if position == 7:
            byte = call("reinterpret", byte, dtype="int8")  # has the sign
        total = total + cast(byte, "int64") * (1 << 8 * position)
    return total
