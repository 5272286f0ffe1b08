"""Vocabulary of the dialect ``R`` that is not an operator: struct info, blocks, constants."""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Expr, ExprLike, GlobalVar, Var, as_expr
from tilewright.relax.call_packed import call_dps_packed as make_call_dps_packed
from tilewright.relax.call_packed import call_inplace_packed as make_call_inplace_packed
from tilewright.relax.call_packed import call_packed as make_call_packed
from tilewright.relax.call_packed import call_pure_packed as make_call_pure_packed
from tilewright.relax.call_packed import call_py_func as make_call_py_func
from tilewright.relax.call_packed import call_with_objects as make_call_with_objects
from tilewright.relax.call_tir import call_dps as make_call_dps
from tilewright.relax.call_tir import call_tir as make_call_tir
from tilewright.relax.call_tir import call_tir_inplace as make_call_tir_inplace
from tilewright.relax.call_tir import call_tir_with_grad as make_call_tir_with_grad
from tilewright.relax.closures import invoke_closure
from tilewright.relax.closures import invoke_pure_closure as make_invoke_pure_closure
from tilewright.relax.expr import DataflowVar as _DataflowVar
from tilewright.relax.expr import (
    ExternFunc,
    FunctionRef,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    StringValue,
)
from tilewright.relax.expr import Tuple as _Tuple
from tilewright.relax.registry import get_op
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.relax.values import as_relax
from tilewright.relax.values import const as const
from tilewright.script.allowance import register_price, register_values
from tilewright.support.calling import other_names
from tilewright.support.errors import ParseError

Lookup = collections.abc.Callable[[str], ExprLike]


@dataclass(frozen=True)
class Info:
    """Struct info whose extents may still be text: names or formulas of symbolic extents."""

    kind: str
    extents: tuple[ExprLike | str, ...] | None = None
    dtype: str = ""
    ndim: int | None = None
    fields: tuple[Info, ...] = ()
    known: StructInfo | None = None
    params: tuple[Info, ...] | None = None
    purity: bool = True

    @staticmethod
    def of(info: StructInfo) -> Info:
        """Wrap struct info that is known already."""
        return Info("known", known=info)

    def symbols(self) -> list[str]:
        """Names of extents that this defines: extents that are a single name."""
        own = [item for item in self.extents or () if isinstance(item, str) and item.isidentifier()]
        return own + [name for field in self.fields for name in field.symbols()]

    def resolve(self, lookup: Lookup | None = None) -> StructInfo:
        """Make the struct info; ``lookup`` gives the extents that are text."""
        extents = None if self.extents is None else [_extent(e, lookup) for e in self.extents]
        if self.kind == "known":
            assert self.known is not None
            return self.known
        if self.kind == "tensor":
            return TensorStructInfo(extents, self.dtype, ndim=self.ndim)
        if self.kind == "shape":
            return ShapeStructInfo(extents, self.ndim)
        if self.kind == "tuple":
            return TupleStructInfo(tuple(field.resolve(lookup) for field in self.fields))
        if self.kind == "function":
            params = None if self.params is None else tuple(p.resolve(lookup) for p in self.params)
            return FuncStructInfo(params, self.fields[0].resolve(lookup), self.purity)
        if self.kind == "prim":
            return PrimStructInfo(self.dtype, as_expr(extents[0]) if extents else None)
        return ObjectStructInfo()


def _extent(value: ExprLike | str, lookup: Lookup | None) -> ExprLike:
    if not isinstance(value, str):
        return value
    if lookup is None:
        raise ParseError(f"the extent {value!r} is text, which only function headers may have")
    return lookup(value)


@dataclass(eq=False)
class InfoKind:
    """A kind of struct info, as ``R.Tensor``: called it says more, bare it is any of its kind."""

    declare: collections.abc.Callable[..., Info]

    def __post_init__(self) -> None:
        self.__name__ = self.declare.__name__
        self.__doc__ = self.declare.__doc__
        self.__signature__ = inspect.signature(self.declare)

    def __call__(self, *args: Any, **named: Any) -> Info:
        """Declare struct info of this kind."""
        return self.declare(*args, **named)


def info_or_none(value: object) -> Info | None:
    """Return what a value declares; ``None`` if it is no declaration."""
    if isinstance(value, InfoKind):
        return value()
    if isinstance(value, StructInfo):
        return Info.of(value)
    return value if isinstance(value, Info) else None


def _as_info(value: object) -> Info:
    info = info_or_none(value)
    if info is not None:
        return info
    raise ParseError(f"expected R.Tensor(...) or the like, got {type(value).__name__}")


def as_struct_info(value: object) -> StructInfo:
    """Turn a declaration without text into struct info."""
    return _as_info(value).resolve()


@InfoKind
def Tensor(
    shape: object = None,
    dtype: str | None = None,
    vdevice: str | None = None,
    ndim: int | None = -1,
) -> Info:
    """Declare a tensor: ``R.Tensor((n, 4), "float32")``, ``R.Tensor("float32", ndim=2)``.

    Raises ``ParseError`` for a ``vdevice``: a graph runs on one device, that of its target.
    """
    if vdevice is not None:
        raise ParseError(
            f"a graph runs on one device, that of its target: R.Tensor takes no {vdevice=}"
        )
    ndim = None if ndim == -1 else ndim
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    extents = getattr(shape, "values", shape)
    if extents is not None and not isinstance(extents, (tuple, list)):
        raise ParseError(f"the shape of a tensor is a tuple of extents, got {shape!r}")
    return Info("tensor", None if extents is None else tuple(extents), dtype or "float32", ndim)


@InfoKind
def Shape(values: Sequence[ExprLike | str] | None = None, ndim: int | None = -1) -> Info:
    """Declare a shape."""
    ndim = None if ndim == -1 else ndim
    if values is not None and not isinstance(values, (tuple, list)):
        raise ParseError(f"a shape is a list of extents, got {values!r}")
    return Info("shape", None if values is None else tuple(values), ndim=ndim)


@InfoKind
def Tuple(*fields: object) -> Info:
    """Declare a tuple."""
    return Info("tuple", fields=tuple(map(_as_info, fields)))


@InfoKind
def Prim(dtype: str = "int64", value: ExprLike | str | None = None) -> Info:
    """Declare a scalar; ``value`` names it as a symbolic extent."""
    return Info("prim", None if value is None else (value,), dtype)


@InfoKind
def Object() -> Info:
    """Declare a value of unknown structure."""
    return Info("object")


@InfoKind
def Callable(params: object = None, ret: object = None, purity: bool = True) -> Info:
    """Declare a function: ``R.Callable((R.Tensor((4,)),), R.Tensor((4,)))``; without params, any.

    Its extents are expressions, not text.
    """
    given = params if isinstance(params, (tuple, list)) else (params,)
    return Info(
        "function",
        fields=(_as_info(Object() if ret is None else ret),),
        params=None if params is None else tuple(map(_as_info, given)),
        purity=purity,
    )


class Dataflow:
    """The result of ``R.dataflow()``."""

    def __enter__(self) -> Dataflow:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def dataflow() -> Dataflow:
    """Open a dataflow block: ``with R.dataflow():``."""
    return Dataflow()


@dataclass(frozen=True)
class Output:
    """The result of ``R.output(...)``."""

    variables: tuple[RelaxExpr, ...]


def output(*variables: RelaxExpr) -> Output:
    """Declare which variables outlive the dataflow block."""
    return Output(variables)


@dataclass(frozen=True)
class FunctionAttrs:
    """The result of ``R.func_attr(...)``."""

    attrs: Mapping[str, Any]


def func_attr(attrs: Mapping[str, object]) -> FunctionAttrs:
    """Declare attributes of the function."""
    if not isinstance(attrs, Mapping):
        raise ParseError(f"func_attr takes a dict, got {type(attrs).__name__}")
    return FunctionAttrs(dict(attrs))


@dataclass(frozen=True)
class MatchCastDecl:
    """The result of ``R.match_cast(...)``."""

    value: RelaxExpr
    info: Info


def match_cast(value: RelaxExpr, ty: object) -> MatchCastDecl:
    """Declare a value's struct info, checked at run time; new extents are given as text."""
    return MatchCastDecl(value, _as_info(ty))


@other_names(out_sinfo="out_ty", callee="gvar")
def call_tir(gvar: GlobalVar, args: object, out_ty: object, tir_vars: object = ()) -> RelaxCall:
    """Call a tensor function: ``R.call_tir(cls.f, (x, y), out_sinfo=R.Tensor(...))``.

    ``out_sinfo`` is the older name of ``out_ty``.
    """
    operands = args if isinstance(args, (tuple, list)) else as_relax(args)
    return make_call_tir(gvar, operands, _results(out_ty), tir_vars or ())


@other_names(out_sinfo="out_ty", callee="gvar")
def call_tir_inplace(
    gvar: GlobalVar,
    args: object,
    inplace_indices: int | Sequence[int],
    out_ty: object,
    tir_vars: object = (),
) -> RelaxCall:
    """Call a tensor function that writes outputs into its arguments."""
    operands = args if isinstance(args, (tuple, list)) else as_relax(args)
    return make_call_tir_inplace(gvar, operands, inplace_indices, _results(out_ty), tir_vars or ())


@other_names(out_sinfo="out_ty")
def call_tir_with_grad(
    gvar: GlobalVar,
    args: object,
    out_ty: object,
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
) -> RelaxCall:
    """Call a tensor function whose gradient is ``te`` code, registered under a name."""
    operands = args if isinstance(args, (tuple, list)) else as_relax(args)
    return make_call_tir_with_grad(gvar, operands, _results(out_ty), te_grad_name, te_grad_kwargs)


@other_names(sinfo_args="ty_args")
def invoke_pure_closure(closure: RelaxExpr, args: object, ty_args: object) -> RelaxCall:
    """Call a function that a variable stands for, and promise that the call has no effects."""
    return make_invoke_pure_closure(closure, args, _results(ty_args))


@other_names(out_sinfo="out_ty")
def call_py_func(py_func_name: str, *args: object, out_ty: object) -> RelaxCall:
    """Call a function of Python by its name: ``R.call_py_func("f", x, out_ty=R.Tensor(...))``.

    In TVM's form the arguments may be one tuple.
    """
    given = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    return make_call_py_func(py_func_name, given, _results(out_ty))


def call_dps(
    callee: GlobalVar, args: Sequence[object], outputs: Sequence[object],
    tir_vars: ShapeExpr | None = None,
) -> RelaxCall:  # fmt: skip
    """Call a tensor function that writes into ``outputs``."""
    made_args, made_outputs = as_relax(tuple(args)), as_relax(tuple(outputs))
    assert isinstance(made_args, _Tuple) and isinstance(made_outputs, _Tuple)
    return make_call_dps(FunctionRef(callee), made_args, made_outputs, tir_vars)


def call(
    callee: GlobalVar | RelaxExpr,
    args: Sequence[object],
    out_sinfo: object = None,
    *,
    pure: bool = True,
) -> RelaxCall:
    """Call a graph function of the module; of an impure one the call says so too.

    Of a function that a variable stands for, the result needs no struct info.
    """
    if isinstance(callee, RelaxExpr):
        info = None if out_sinfo is None else as_struct_info(out_sinfo)
        return invoke_closure(callee, args, info)
    if out_sinfo is None:
        raise ParseError(f"the call of {callee!r} needs out_sinfo=")
    operands = tuple(as_relax(arg) for arg in args)
    attrs = {} if pure else {"pure": False}
    return RelaxCall(callee, operands, attrs, (as_struct_info(out_sinfo),))


def shape(value: Sequence[Expr]) -> ShapeExpr:
    """A shape as an operand."""
    return ShapeExpr(tuple(value))


def prim_value(value: Expr) -> PrimValue:
    """A scalar as an operand."""
    return PrimValue(value)


def tuple_value(*fields: object) -> RelaxExpr:
    """A tuple as an operand: ``R.tuple(x, y)``, as ``(x, y)``."""
    return as_relax(fields)


def string(value: str) -> StringValue:
    """A string as an operand."""
    return StringValue(value)


@other_names(out_sinfo="out_ty")
def call_dps_packed(func: str | ExternFunc, args: object, out_ty: object) -> RelaxCall:
    """Call a global function that writes fresh outputs: ``R.call_dps_packed("f", (x,), ...)``."""
    return make_call_dps_packed(func, args, _results(out_ty))


@other_names(sinfo_args="ty_args")
def call_packed(func: str | ExternFunc, *args: object, ty_args: object = None) -> RelaxCall:
    """Call a global function for its effects: ``R.call_packed("f", x, sinfo_args=...)``.

    ``sinfo_args`` is the older name of ``ty_args``.
    """
    return make_call_packed(func, *args, ty_args=_results(() if ty_args is None else ty_args))


@other_names(sinfo_args="ty_args")
def call_pure_packed(func: str | ExternFunc, *args: object, ty_args: object = None) -> RelaxCall:
    """Call a global function without effects for what it returns."""
    return make_call_pure_packed(func, *args, ty_args=_results(() if ty_args is None else ty_args))


@other_names(annotate_struct_info="annotate_ty")
def emit(value: object, annotate_ty: object = None) -> RelaxExpr | MatchCastDecl:
    """The value itself: an assignment binds it, as one without ``R.emit`` does."""
    made = as_relax(value)
    return made if annotate_ty is None else match_cast(made, annotate_ty)


@other_names(sinfo_args="ty_args")
def emit_with_ty(op: str, args: object, ty_args: object = None) -> RelaxCall:
    """Call an operator by its name, with operands alone; ``ty_args`` states its result.

    Its attributes are the defaults.
    """
    found = get_op(op)
    items = getattr(args, "fields", args)
    operands = tuple(map(as_relax, items if isinstance(items, (tuple, list)) else (items,)))
    if ty_args is None:
        return found.build(*operands)
    infos = _results(ty_args)
    return RelaxCall(found, operands, {}, (infos,) if isinstance(infos, StructInfo) else infos)


@dataclass(frozen=True)
class EmitTE:
    """The result of ``R.emit_te(...)``, or of ``R.call_te(...)``."""

    function: collections.abc.Callable[..., object]
    args: tuple[object, ...]
    options: Mapping[str, object]


def emit_te(func: collections.abc.Callable[..., object], *args: object, **kwargs: object) -> EmitTE:
    """Call what a function of ``te`` computes: ``y = R.emit_te(topi.add, x, x)``.

    The tensor function goes into the module; ``primfunc_name_hint`` names it.
    """
    if not callable(func):
        raise ParseError(f"emit_te takes a function of te tensors, got {func!r}")
    return EmitTE(func, args, kwargs)


@other_names(sinfo_args="ty_args")
def call_inplace_packed(
    func: str | ExternFunc,
    *args: object,
    inplace_indices: int | Sequence[int],
    ty_args: object,
) -> RelaxCall:
    """Call a global function that changes some of its arguments."""
    results = _results(ty_args)
    return make_call_inplace_packed(func, *args, inplace_indices=inplace_indices, ty_args=results)


def call_with_objects(name: Any, form: Any, *args: object, sinfo_args: object) -> RelaxCall:
    """Call a global function with objects that are known by numbers."""
    texts = (getattr(text, "value", text) for text in (name, form))
    return make_call_with_objects(*texts, *args, sinfo_args=as_struct_info(sinfo_args))


def _results(infos: object) -> StructInfo | list[StructInfo]:
    if isinstance(infos, (list, tuple)):
        return [as_struct_info(item) for item in infos]
    return as_struct_info(infos)


def extern(name: str, **attrs: object) -> ExternFunc:
    """A function of a library by symbol, or with ``packed=True`` a global function."""
    return ExternFunc(name, attrs=attrs)


def Var_(name: str, info: object) -> RelaxVar:
    """A variable that nothing in the text binds."""
    return RelaxVar(name, as_struct_info(info))


def DataflowVar(name: str, info: object) -> RelaxVar:
    """A dataflow variable that nothing in the text binds."""
    return _DataflowVar(name, as_struct_info(info))


def is_symbol_declaration(value: object) -> bool:
    """Whether a value is a result of ``T.int64()``: a fresh variable."""
    return type(value) is Var


register_values(Info, InfoKind, EmitTE, Dataflow, Output, FunctionAttrs, MatchCastDecl)
register_values(RelaxExpr, StructInfo, attributes="shape dtype ndim struct_info")
register_price(RelaxCall, 30, lambda call: call.struct_info)  # inference takes its time
