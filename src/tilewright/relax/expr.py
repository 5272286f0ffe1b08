"""The graph IR: values, calls, bindings and functions in A-normal form.

A graph function is a sequence of bindings ``var = value`` whose operands are variables, constants
or other atoms. Every expression has struct info from construction: variables and constants carry
it, calls infer it by their operator's rule. So a rewritten call never has stale shapes, and an
ill-shaped graph can't be built.

Class names carry a ``Relax`` where ``tilewright.ir`` has a class of the same name (``RelaxVar``,
``RelaxCall``), because visitors dispatch by class name; ``tilewright.relax`` exports them as
``Var`` and ``Call``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilewright.ir import (
    GLOBAL_SYMBOL,
    BaseFunc,
    DictAttrs,
    Expr,
    GlobalVar,
    Node,
    Var,
    as_expr,
    attr,
    check_name,
    child,
    children,
    definition,
    definitions,
    derived,
    node,
    set_span,
)
from tilewright.relax.conditions import Condition, collect_conditions
from tilewright.relax.constant_data import ConstantData
from tilewright.relax.expr_operators import OPERATOR_SUGAR, WithOperators
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_struct_info,
)
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import BRANCH, CODEGEN, COMPOSITE, IMPURE, PRIMITIVE


class RelaxExpr(WithOperators):
    """Base of graph expressions; every one has a ``struct_info``."""

    __slots__ = ()
    struct_info: StructInfo

    @property
    def ty(self) -> StructInfo:
        """``struct_info``, as newer versions of TVM call it."""
        return self.struct_info

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Extents of a tensor (or of a shape value).

        Raises ``VerifyError`` if they aren't known.
        """
        info = self.struct_info
        if isinstance(info, (TensorStructInfo, ShapeStructInfo)) and info.ndim == len(info.values):
            return info.values
        raise VerifyError(f"{self!r} has no known shape: it is {info!r}")

    @property
    def dtype(self) -> str:
        """Element type of a tensor.

        Raises ``VerifyError`` if it isn't known.
        """
        info = self.struct_info
        if isinstance(info, (TensorStructInfo, PrimStructInfo)):
            return info.dtype
        raise VerifyError(f"{self!r} has no dtype: it is {info!r}")

    @property
    def ndim(self) -> int:
        """Number of dimensions of a tensor."""
        return len(self.shape)

    @property
    def as_expr(self) -> Callable[[], Expr]:
        """What makes a scalar part of an expression.

        Raises ``AttributeError`` if it is none, or nothing is known of it: only scalars have this.
        """
        info = self.struct_info
        if isinstance(info, PrimStructInfo) and info.value is not None:
            value = info.value
            return lambda: value
        raise AttributeError(f"{self!r} is no scalar with a name or value: it is {info!r}")

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.struct_info, TupleStructInfo):
            raise VerifyError(f"{self!r} is no tuple, so it can't be taken apart")
        return iter([self[index] for index in range(len(self.struct_info.fields))])

    def __getitem__(self, index: int) -> TupleGetItem:
        if isinstance(self.struct_info, TupleStructInfo):
            return TupleGetItem(self, index)
        raise VerifyError(
            f"{self!r} is no tuple; use relax.op.strided_slice or take to index a tensor"
        )


@node
class RelaxVar(RelaxExpr):
    """A graph variable. It is identified by the object; the name is only for display."""

    symbol = True

    name: str = attr()
    struct_info: StructInfo = attr(default=ObjectStructInfo())

    @other_names(struct_info="ty")
    def __init__(
        self, name: str | None = None, ty: StructInfo | None = None, *, name_hint: str | None = None
    ) -> None:
        given = name_hint if name is None else name
        if given is None or (name_hint is not None and name is not None):
            raise VerifyError("a variable has one name: Var('x', struct_info)")
        # What is no struct info may declare some: R.Tensor((n, 4), "float32") of script.
        ty = getattr(ty, "resolve", lambda: ty)()
        if not isinstance(ty, (StructInfo, NoneType)):
            raise VerifyError(f"variable {given} is described by struct info, not {ty!r}")
        object.__setattr__(self, "name", given)
        object.__setattr__(self, "struct_info", ObjectStructInfo() if ty is None else ty)
        object.__setattr__(self, "_contents", None)
        check_name(self.name, "a variable")

    @property
    def name_hint(self) -> str:
        """The name, as TVM calls it."""
        return self.name

    def __repr__(self) -> str:
        return self.name


@node
class DataflowVar(RelaxVar):
    """A variable that lives only inside its dataflow block."""


@node
class Constant(RelaxExpr):
    """A tensor of known values."""

    value: ConstantData = attr()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        info = TensorStructInfo(self.value.shape, self.value.dtype.name)
        object.__setattr__(self, "struct_info", info)

    @property
    def data(self) -> NDArray[Any]:
        """The values, read-only."""
        return self.value.array

    def __repr__(self) -> str:
        return f"const({self.value!r})"


@node
class PrimValue(RelaxExpr):
    """A scalar expression over symbolic variables, as an operand."""

    value: Expr = child()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", as_expr(self.value))
        object.__setattr__(self, "struct_info", PrimStructInfo(self.value.dtype, self.value))

    def __repr__(self) -> str:
        return f"prim({self.value!r})"


@node
class ShapeExpr(RelaxExpr):
    """A shape as an operand."""

    values: tuple[Expr, ...] = children()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        info = ShapeStructInfo(self.values)
        object.__setattr__(self, "values", info.values)
        object.__setattr__(self, "struct_info", info)

    def __repr__(self) -> str:
        return f"shape({', '.join(map(repr, self.values))})"


@node
class StringValue(RelaxExpr):
    """A string as an operand (name of an external function's variant, …)."""

    value: str = attr()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "struct_info", ObjectStructInfo())


@node
class Tuple(RelaxExpr):
    """Several values as one."""

    fields: tuple[RelaxExpr, ...] = children()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        info = TupleStructInfo(tuple(item.struct_info for item in self.fields))
        object.__setattr__(self, "struct_info", info)

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.fields))},)"


@node
class TupleGetItem(RelaxExpr):
    """One item of a tuple."""

    tuple_value: RelaxExpr = child()
    index: int = attr()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        info = self.tuple_value.struct_info
        if not isinstance(info, TupleStructInfo):
            raise VerifyError(f"{self.tuple_value!r} is no tuple: it is {info!r}")
        if not 0 <= self.index < len(info.fields):
            raise VerifyError(
                f"item {self.index} of {self.tuple_value!r}, which has {len(info.fields)} items"
            )
        object.__setattr__(self, "struct_info", info.fields[self.index])

    def __repr__(self) -> str:
        return f"{self.tuple_value!r}[{self.index}]"


@node
class ExternFunc(BaseFunc):
    """A function of a library, by symbol; takes pointers as compiled kernels do.

    Nothing is known of it but the name: ``ty`` may say that it is a function, and no more.
    """

    global_symbol: str = attr()
    attrs: Mapping[str, Any] = attr(default=None)

    @other_names(struct_info="ty")
    def __init__(
        self,
        global_symbol: str,
        ty: StructInfo | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(global_symbol, str):
            raise VerifyError(f"{global_symbol!r} is no symbol of a library")
        if not isinstance(ty, (FuncStructInfo, ObjectStructInfo, NoneType)):
            raise VerifyError(f"{global_symbol} is a function, it can't be {ty!r}")
        object.__setattr__(self, GLOBAL_SYMBOL, global_symbol)
        object.__setattr__(self, "attrs", DictAttrs.of(attrs))
        object.__setattr__(self, "_contents", None)

    def __repr__(self) -> str:
        return f"extern({self.global_symbol!r})"


@node
class FunctionRef(RelaxExpr):
    """A function of the module (``GlobalVar``) or of a library (``ExternFunc``), as an operand."""

    callee: GlobalVar | ExternFunc = child()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        if not isinstance(self.callee, (GlobalVar, ExternFunc)):
            raise VerifyError(
                "what is called is a GlobalVar (a function of the module) or an ExternFunc, not "
                f"{type(self.callee).__name__} {self.callee!r}"
            )
        object.__setattr__(self, "struct_info", ObjectStructInfo())

    @property
    def name(self) -> str:
        """The function's name."""
        if isinstance(self.callee, GlobalVar):
            return self.callee.name
        return self.callee.global_symbol

    def __repr__(self) -> str:
        return repr(self.callee)


@node
class RelaxCall(RelaxExpr):
    """A call of an operator (``relax.registry.RelaxOp``) or of a graph function (``GlobalVar``).

    A call of a variable that stands for a function is one of the operator ``invoke_closure``.

    ``attrs`` are the operator's attributes. ``sinfo_args`` give the result's struct info where it
    can't be inferred (``call_tir``, calls of functions); so does ``ret_ty``, which must be what is
    inferred where that is possible. ``conditions`` are inference's requirements on sizes that
    aren't known yet.
    """

    op: Any = attr()
    args: tuple[RelaxExpr, ...] = children()
    attrs: Mapping[str, Any] = attr(default=None)
    sinfo_args: tuple[StructInfo, ...] = children(default=())
    struct_info: StructInfo = derived()
    conditions: tuple[Condition, ...] = derived()

    @other_names(sinfo_args="ty_args")
    def __init__(
        self,
        op: object,
        args: Sequence[object],
        attrs: Mapping[str, Any] | None = None,
        ty_args: Sequence[StructInfo] | None = None,
        span: object = None,
        ret_ty: StructInfo | None = None,
    ) -> None:
        given = tuple(ty_args or ())
        if isinstance(op, RelaxVar):  # it stands for a function
            made: RelaxCall = OPERATOR_SUGAR["call"](op, args, given[0] if given else ret_ty)
            op, args, given = made.op, made.args, made.sinfo_args
            attrs = {**made.attrs, **(attrs or {})}
        if ret_ty is not None and not given and isinstance(op, GlobalVar):
            given = (ret_ty,)
        fields = {"op": op, "args": tuple(args), "attrs": DictAttrs.of(attrs), "sinfo_args": given}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_contents", None)
        if span is not None:
            set_span(self, span)
        self._infer()
        if ret_ty is not None and not same_struct_info(self.struct_info, ret_ty):
            raise VerifyError(f"{self.op_name} gives {self.struct_info!r}, not {ret_ty!r}")

    def _infer(self) -> None:
        if not isinstance(self.op, GlobalVar) and not hasattr(self.op, "infer"):
            raise VerifyError(
                f"{self.op!r} is no operator, and no GlobalVar of a graph function of the module"
            )
        for arg in self.args:
            if not isinstance(arg, RelaxExpr):
                raise VerifyError(
                    f"argument {arg!r} of {self.op_name} is no graph value but {type(arg).__name__}"
                )
        found: tuple[Condition, ...] = ()
        if isinstance(self.op, GlobalVar):
            if len(self.sinfo_args) != 1:
                raise VerifyError(
                    f"the call of {self.op!r} needs sinfo_args=(result,); "
                    "BlockBuilder.emit_call fills it in"
                )
            info = self.sinfo_args[0]
        else:
            info, found = collect_conditions(lambda: self.op.infer(self))
        object.__setattr__(self, "struct_info", info)
        object.__setattr__(self, "conditions", tuple(item.of(self.op_name) for item in found))

    @property
    def ty_args(self) -> tuple[StructInfo, ...]:
        """``sinfo_args``, as newer versions of TVM call them."""
        return self.sinfo_args

    @property
    def op_name(self) -> str:
        """Name of the function, or of the operator, without the ``relax.`` of ``call.op.name``."""
        return str(getattr(self.op, "key", self.op.name))

    def __repr__(self) -> str:
        return f"{self.op_name}({', '.join(map(repr, self.args))})"


class Binding(Node):
    """Base of bindings."""

    __slots__ = ()
    var: RelaxVar
    value: RelaxExpr


@node
class VarBinding(Binding):
    """``var = value``."""

    value: RelaxExpr = child()
    var: RelaxVar = definition()

    def __init__(self, var: RelaxVar, value: RelaxExpr) -> None:
        _check_binding(var, value)
        object.__setattr__(self, "var", var)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "_contents", None)


@node
class MatchCast(Binding):
    """``var = value``, checked at run time to have ``struct_info``, which may define extents."""

    defining_fields = ("struct_info",)

    value: RelaxExpr = child()
    struct_info: StructInfo = child()
    var: RelaxVar = definition()

    @other_names(struct_info="ty")
    def __init__(self, var: RelaxVar, value: RelaxExpr, ty: StructInfo) -> None:
        _check_binding(var, value)
        if not isinstance(ty, StructInfo):
            raise VerifyError(f"{var!r} is cast to struct info, not {ty!r}")
        object.__setattr__(self, "var", var)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "struct_info", ty)
        object.__setattr__(self, "_contents", None)

    @property
    def ty(self) -> StructInfo:
        """``struct_info``, as newer versions of TVM call it."""
        return self.struct_info


def _check_binding(var: object, value: object) -> None:
    if not isinstance(var, RelaxVar) or not isinstance(value, RelaxExpr):
        raise VerifyError(f"a binding has a variable and a graph value, got {var!r}, {value!r}")


@node
class BindingBlock(Node):
    """Bindings in order."""

    bindings: tuple[Binding, ...] = children()


@node
class DataflowBlock(BindingBlock):
    """Bindings without side effects or control flow."""


@node
class SeqExpr(RelaxExpr):
    """Blocks of bindings, then the result."""

    blocks: tuple[BindingBlock, ...] = children()
    body: RelaxExpr = child()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "struct_info", self.body.struct_info)


@node
class Function(BaseFunc):
    """A graph function. Symbolic extents are defined by the parameters' shapes.

    One with effects has the attribute ``relax.impure``, which ``is_pure=False`` sets.
    """

    params: tuple[RelaxVar, ...] = definitions()
    body: SeqExpr = child()
    ret_struct_info: StructInfo = attr(default=None)
    attrs: Mapping[str, Any] = attr(default=None)

    @other_names(ret_struct_info="ret_ty")
    def __init__(
        self,
        params: Sequence[RelaxVar],
        body: RelaxExpr,
        ret_ty: StructInfo | None = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        wrong = [param for param in params if not isinstance(param, RelaxVar)]
        if wrong:
            raise VerifyError(f"a graph function's parameters are variables, got {wrong[0]!r}")
        whole = body if isinstance(body, SeqExpr) else SeqExpr((), body)
        result = whole.body.struct_info if ret_ty is None else ret_ty
        effects = {} if is_pure else {IMPURE: True}
        object.__setattr__(self, "params", tuple(params))
        object.__setattr__(self, "body", whole)
        object.__setattr__(self, "ret_struct_info", result)
        object.__setattr__(self, "attrs", DictAttrs({**(attrs or {}), **effects}))
        object.__setattr__(self, "_contents", None)

    if TYPE_CHECKING:  # `function_methods` adds them: they stand on passes

        def bind_params(self, binding_map: Mapping[Any, Any]) -> Function: ...
        def bind_symbolic_vars(self, binding_map: Mapping[str | Var, int]) -> Function: ...
        def inline_functions(
            self, function_map: Mapping[str | GlobalVar, Function]
        ) -> Function: ...
        @staticmethod
        def create_empty(
            params: Sequence[RelaxVar],
            ret_ty: StructInfo,
            is_pure: bool = True,
            attrs: Mapping[str, Any] | None = None,
            span: object = None,
        ) -> Function: ...

    @property
    def ret_ty(self) -> StructInfo:
        """``ret_struct_info``, as newer versions of TVM call it."""
        return self.ret_struct_info

    @property
    def ty(self) -> FuncStructInfo:
        """``struct_info``, as newer versions of TVM call it."""
        return self.struct_info

    @property
    def bindings(self) -> list[Binding]:
        """All bindings in order, whatever their block."""
        return [binding for block in self.body.blocks for binding in block.bindings]

    @property
    def is_primitive(self) -> bool:
        """Whether the function is a fusion group, to become one kernel."""
        return bool(self.attrs.get(PRIMITIVE, False))

    @property
    def is_partition(self) -> bool:
        """Whether the function was cut out for a pass; compiled only where it is called."""
        return any(key in self.attrs for key in (BRANCH, COMPOSITE, CODEGEN))

    @property
    def is_pure(self) -> bool:
        """Whether calls of the function have no effect that the world sees."""
        return not self.attrs.get(IMPURE, False)

    @property
    def struct_info(self) -> FuncStructInfo:
        """What the function takes and gives."""
        params = tuple(param.struct_info for param in self.params)
        return FuncStructInfo(params, self.ret_struct_info, self.is_pure)

    def __repr__(self) -> str:
        return f"Function({', '.join(param.name for param in self.params)})"


@node
class LocalFunction(RelaxExpr):
    """A function inside of a function, which may use variables that are bound before it."""

    func: Function = child()
    struct_info: StructInfo = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "struct_info", self.func.struct_info)

    def __repr__(self) -> str:
        return f"local {self.func!r}"


Atom = (RelaxVar, Constant, PrimValue, ShapeExpr, StringValue, FunctionRef)
"""What may be an operand of a call in A-normal form (tuples of these too)."""


def is_atom(expr: RelaxExpr) -> bool:
    """Whether an expression may be an operand."""
    if isinstance(expr, Tuple):
        return all(map(is_atom, expr.fields))
    return isinstance(expr, Atom)
