"""Prints graph functions as ``@R.function``; importing this registers all printers of ``R``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import Expr, GlobalVar, Var, structural_equal
from tilewright.relax.branches import If
from tilewright.relax.call_packed import (
    ASSERT_TENSOR,
    CALL_DPS_PACKED,
    CALL_INPLACE_PACKED,
    CALLS,
    PRINT,
)
from tilewright.relax.call_tir import CALL_DPS, CALL_TIR, CALL_TIR_INPLACE, CALL_TIR_WITH_GRAD
from tilewright.relax.closures import INVOKE_CLOSURE
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    ConstantData,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    FunctionRef,
    LocalFunction,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxVar,
    SeqExpr,
    ShapeExpr,
    StringValue,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_atom,
)
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    defined_vars,
    extents_of,
)
from tilewright.script.printer import ATOM, Printer, quote, register, register_lines
from tilewright.tir.attrs import IMPURE

# ---- struct info ------------------------------------------------------------------------------


def info_text(p: Printer, info: StructInfo, *, quoted: bool = False) -> str:
    """Return the text of a struct info; extents are ``quoted`` in function headers."""
    p.use("relax")

    outer = p.context.get("outer extents", ())

    def extent(value: Expr) -> str:
        text = p.expr(value)
        plain = text.lstrip("-").isdigit() or value in outer
        return quote(text) if quoted and not plain else text

    if isinstance(info, TensorStructInfo):
        if info.has_shape:
            return f"R.Tensor({p.tuple(map(extent, info.shape))}, {quote(info.dtype)})"
        rank = "" if info.ndim < 0 else f", ndim={info.ndim}"
        return f"R.Tensor(None, {quote(info.dtype)}{rank})"
    if isinstance(info, ShapeStructInfo):
        if info.is_known:
            return f"R.Shape([{', '.join(map(extent, info.values))}])"
        return "R.Shape()" if info.ndim < 0 else f"R.Shape(ndim={info.ndim})"
    if isinstance(info, TupleStructInfo):
        parts = (info_text(p, field, quoted=quoted) for field in info.fields)
        return f"R.Tuple({', '.join(parts)})"
    if isinstance(info, PrimStructInfo):
        value = "" if info.value is None else f", {extent(info.value)}"
        return f"R.Prim({quote(info.dtype)}{value})"
    if isinstance(info, FuncStructInfo):
        given = [] if info.params is None else [p.tuple(info_text(p, i) for i in info.params)]
        opaque = isinstance(info.ret, ObjectStructInfo)
        given += [] if opaque else [("" if given else "ret=") + info_text(p, info.ret)]
        given += [] if info.purity else ["purity=False"]
        return f"R.Callable({', '.join(given)})"
    assert isinstance(info, ObjectStructInfo)
    return "R.Object()"


@register(
    TensorStructInfo, ShapeStructInfo, TupleStructInfo, PrimStructInfo, ObjectStructInfo,
    FuncStructInfo,
)  # fmt: skip
def _info(p: Printer, node: StructInfo, precedence: int) -> str:
    return info_text(p, node)


# ---- values -----------------------------------------------------------------------------------


@register(RelaxVar, DataflowVar)
def _var(p: Printer, node: RelaxVar, precedence: int) -> str:
    if node not in p.names:
        p.use("relax")
        name = p.names[node] = p.fresh(node.name)
        kind = "DataflowVar" if isinstance(node, DataflowVar) else "Var"
        p.prelude.append(f"{name} = R.{kind}({quote(name)}, {info_text(p, node.struct_info)})")
    return p.name(node)


def constant_key(data: ConstantData) -> str:
    """Key under which a constant that is too large for the text is looked up in ``metadata``."""
    kind, _, digest = data.content_key(False).partition(":")
    return f"{kind}:{digest[:16]}"


@register(Constant)
def _constant(p: Printer, node: Constant, precedence: int) -> str:
    p.use("relax")
    if node.data.ndim == 0:
        value = node.data.item()
        if isinstance(value, float) and not math.isfinite(value):
            text = f'float("{value}")'
        else:
            text = repr(value)
        return f"R.const({text}, {quote(node.dtype)})"
    return f"metadata[{quote(constant_key(node.value))}]"


@register(ConstantData)
def _data(p: Printer, node: ConstantData, precedence: int) -> str:
    return f"metadata[{quote(constant_key(node))}]"


@register(PrimValue)
def _prim(p: Printer, node: PrimValue, precedence: int) -> str:
    p.use("relax")
    return f"R.prim_value({p.expr(node.value)})"


@register(ShapeExpr)
def _shape(p: Printer, node: ShapeExpr, precedence: int) -> str:
    p.use("relax")
    return f"R.shape([{', '.join(map(p.expr, node.values))}])"


@register(StringValue)
def _string(p: Printer, node: StringValue, precedence: int) -> str:
    p.use("relax")
    return f"R.string({quote(node.value)})"


@register(Tuple)
def _tuple(p: Printer, node: Tuple, precedence: int) -> str:
    return p.tuple(p.expr(item) for item in node.fields)


@register(TupleGetItem)
def _item(p: Printer, node: TupleGetItem, precedence: int) -> str:
    whole = node.tuple_value
    if not isinstance(whole, Tuple):
        return f"{p.expr(whole, ATOM)}[{node.index}]"
    p.use("relax")  # an element of a Python tuple would be read as that element itself
    return f"R.tuple({', '.join(map(p.expr, whole.fields))})[{node.index}]"


@register(FunctionRef)
def _reference(p: Printer, node: FunctionRef, precedence: int) -> str:
    return callee_text(p, node.callee)


def callee_text(p: Printer, callee: GlobalVar | ExternFunc) -> str:
    """Return how a function of the module, or of a library, is named."""
    if isinstance(callee, ExternFunc):
        p.use("relax")
        options = "".join(f", {key}={p.value(value)}" for key, value in callee.attrs.items())
        return f"R.extern({quote(callee.global_symbol)}{options})"
    if p.context.get("in module") and callee.name.isidentifier():
        return f"cls.{callee.name}"
    return p.expr(callee)


@register(RelaxCall)
def _call(p: Printer, node: RelaxCall, precedence: int) -> str:
    p.use("relax")
    if node.op in (CALL_TIR, CALL_TIR_INPLACE, CALL_TIR_WITH_GRAD):
        return _call_tir(p, node)
    if node.op is CALL_DPS:
        return f"R.call_dps({', '.join(map(p.expr, node.args))})"
    if node.op is INVOKE_CLOSURE:
        callee, *rest = map(p.expr, node.args)
        return f"R.call({callee}, {p.tuple(rest)}, out_sinfo={info_text(p, node.sinfo_args[0])})"
    if node.op in (*CALLS, CALL_INPLACE_PACKED):
        return _call_packed(p, node)
    if isinstance(node.op, GlobalVar):
        args = p.tuple(map(p.expr, node.args))
        result = info_text(p, node.sinfo_args[0])
        pure = "" if node.attrs.get("pure", True) else ", pure=False"
        return f"R.call({callee_text(p, node.op)}, {args}, out_sinfo={result}{pure})"
    op: RelaxOp = node.op
    parts = [p.expr(arg) for arg in node.args]
    for name in op.attributes:
        value = node.attrs[name]
        default = op.signature.parameters[name].default
        if type(value) is not type(default) or value != default:
            parts.append(f"{name}={p.value(value)}")
    return f"R.{op.key}({', '.join(parts)})"


def _call_packed(p: Printer, node: RelaxCall) -> str:
    """Calls of global functions, which are given by name."""
    if node.op in (PRINT, ASSERT_TENSOR):
        form = next(arg for arg in node.args if isinstance(arg, StringValue))
        parts = [p.expr(arg) for arg in node.args if arg is not form]
        if node.op is ASSERT_TENSOR:
            parts[1:] = [p.tuple(parts[1:])] if parts[1:] else []
        parts += [f"format={quote(form.value)}"] if form.value else []
        return f"R.{'print' if node.op is PRINT else 'assert_op'}({', '.join(parts)})"
    reference, *rest = node.args
    name = reference.name if isinstance(reference, FunctionRef) else None
    first = p.expr(reference) if name is None else quote(name)
    parts = [first, *map(p.expr, rest)]
    if node.op is CALL_INPLACE_PACKED:
        parts.append(f"inplace_indices={p.value(node.attrs['inplace_indices'])}")
    dps = node.op is CALL_DPS_PACKED
    parts.append(f"{'out_sinfo' if dps else 'sinfo_args'}={_infos(p, node)}")
    return f"R.{node.op.key}({', '.join(parts)})"


def _infos(p: Printer, node: RelaxCall) -> str:
    infos = [info_text(p, info) for info in node.sinfo_args]
    return infos[0] if len(infos) == 1 else f"[{', '.join(infos)}]"


def _call_tir(p: Printer, node: RelaxCall) -> str:
    parts = [p.expr(node.args[0]), p.expr(node.args[1])]
    if node.op is CALL_TIR_INPLACE:
        parts.append(f"inplace_indices={p.value(node.attrs['inplace_indices'])}")
    parts.append(f"out_sinfo={_infos(p, node)}")
    if len(node.args) > 2:
        parts.append(f"tir_vars={p.expr(node.args[2])}")
    if node.op is CALL_TIR_WITH_GRAD:
        parts.append(f"te_grad_name={quote(node.attrs['te_grad_name'])}")
        options = dict(node.attrs["te_grad_kwargs"])
        parts += [f"te_grad_kwargs={p.value(options)}"] if options else []
    return f"R.{node.op.key}({', '.join(parts)})"


# ---- functions --------------------------------------------------------------------------------


@register_lines(Function)
def _function(p: Printer, node: Function) -> None:
    # Inside a class, functions of the module are reached by `cls`.
    p.context["in module"] = bool(p.pad)
    p.context["branch extents"] = {}
    _write_function(p, node, "main" if p.option_name is None else p.option_name)


def _write_function(p: Printer, node: Function, name: str) -> None:
    p.use("relax")
    for var in defined_vars([param.struct_info for param in node.params]):
        if var not in p.context.get("outer extents", ()):
            p.define(var)
    params = [
        f"{p.define(param)}: {info_text(p, param.struct_info, quoted=True)}"
        for param in node.params
    ]
    safe = Printer().fresh(name)
    options = [] if safe == name else [f"name={quote(name)}"]
    options += [] if node.is_pure else ["pure=False"]
    p.line(f"@R.function({', '.join(options)})" if options else "@R.function")
    pad = p.pad
    with p.captured() as lines, p.indented():
        attrs = {key: value for key, value in node.attrs.items() if key != IMPURE}
        if attrs:
            p.line(f"R.func_attr({p.value(attrs)})")
        _body(p, node.body.blocks)
        p.line(f"return {p.expr(node.body.body)}")
        # The result may use extents that the body defines; then it is not stated.
        declared = not any(isinstance(binding, MatchCast) for binding in node.bindings)
        inferred = structural_equal(
            node.ret_struct_info, node.body.struct_info, map_free_vars=False
        )
        result = info_text(p, node.ret_struct_info, quoted=True)
    returns = f" -> {result}" if declared or not inferred else ""
    p.signature(f"def {safe}", params, f"{returns}:")
    inner = pad + "    "
    p.lines.extend(inner + text for text in (*p.prelude, *p.late_prelude))
    p.lines.extend(lines)


def _local_function(p: Printer, var: RelaxVar, node: Function) -> None:
    """A function inside of another one, whose extents it sees."""
    outer, prelude = p.context.get("outer extents", ()), (p.prelude, p.late_prelude)
    seen = {item for item in p.names if type(item) is Var}
    name = p.define(var)
    token = p.enter()
    p.context["outer extents"], p.prelude, p.late_prelude = seen, [], []
    _write_function(p, node, name)
    p.leave(token, suite=True)
    p.context["outer extents"], (p.prelude, p.late_prelude) = outer, prelude


def _body(p: Printer, blocks: Sequence[BindingBlock]) -> None:
    for block in blocks:
        if isinstance(block, DataflowBlock):
            _dataflow(p, block)
        else:
            for binding in block.bindings:
                _binding(p, binding)


def _if(p: Printer, binding: Binding, node: If, name: str) -> None:
    """Both branches, which bind what they give to the name of the result."""
    known, pad = set(p.names), p.pad
    for start, branch in zip((f"if {p.expr(node.cond)}:", "else:"), node.branches):
        p.line(start)
        if branch is node.true_branch:
            p.mark(binding, len(p.lines) - 1)
        p.pad += "    "
        _branch(p, branch, name)
        p.pad = pad
        # What a branch defines may be defined again elsewhere, by the same name.
        for var in [var for var in p.names if type(var) is Var and var not in known]:
            p.context.setdefault("branch extents", {})[var] = p.names.pop(var)


def _branch(p: Printer, branch: SeqExpr, name: str) -> None:
    *blocks, last = branch.blocks or (BindingBlock(()),)
    final = last.bindings[-1] if last.bindings else None
    if (
        not isinstance(final, VarBinding)
        or final.var is not branch.body
        or isinstance(last, DataflowBlock)
        or isinstance(final.value, LocalFunction)
        or is_atom(final.value)
    ):
        _body(p, branch.blocks)
        p.line(f"{name}: {info_text(p, branch.struct_info)} = {p.expr(branch.body)}")
        return
    _body(p, [*blocks, last.replace(bindings=last.bindings[:-1])])
    p.names[final.var] = name
    if isinstance(final.value, If):
        _if(p, final, final.value, name)
    else:
        _binding(p, final, name)


def _dataflow(p: Printer, block: DataflowBlock) -> None:
    p.line("with R.dataflow():")
    outputs = []
    pad = p.pad
    p.pad += "    "
    for binding in block.bindings:
        _binding(p, binding)
        if not isinstance(binding.var, DataflowVar):
            outputs.append(p.name(binding.var))
    p.line(f"R.output({', '.join(outputs)})")
    p.pad = pad


def _binding(p: Printer, binding: Binding, name: str | None = None) -> None:
    """A binding, of a variable that may have its name already."""
    if isinstance(binding.value, LocalFunction):
        _local_function(p, binding.var, binding.value.func)
        return
    if isinstance(binding.value, If):
        _if(p, binding, binding.value, p.define(binding.var))
        return
    if isinstance(binding, MatchCast):
        value = p.expr(binding.value)
        new = [
            extent
            for extent in extents_of(binding.struct_info)
            if type(extent) is Var and extent not in p.names
        ]
        again = p.context.get("branch extents", {})
        for var in dict.fromkeys(new):
            if var in again:
                p.alias(var, again[var])
            else:
                p.define(var)
        info = info_text(p, binding.struct_info, quoted=bool(new))
        line = f"{p.define(binding.var)} = R.match_cast({value}, {info})"
        same = structural_equal(binding.var.struct_info, binding.struct_info, map_free_vars=False)
        assert same, "the variable of a match_cast has the struct info that is cast to"
    else:
        value = p.expr(binding.value)
        info = info_text(p, binding.var.struct_info)
        line = f"{name or p.define(binding.var)}: {info} = {value}"
    p.line(line)
    p.mark(binding, len(p.lines) - 1)
