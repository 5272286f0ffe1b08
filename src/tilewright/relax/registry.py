"""Graph operators: definition, struct-info inference and legalisation in one declaration.

An operator is a Python function that infers its result::

    @operator("matmul", legalize=topi.matmul)
    def matmul(x1: Tensor, x2: Tensor, *, out_dtype: str | None = None) -> StructInfo:
        \"\"\"Matrix product, batch dimensions broadcast.\"\"\"
        ...

Parameters annotated ``Tensor``, ``TensorTuple``, ``Shape`` or ``Prim`` are operands, and the
function sees their struct info (a shape: its extents; a tuple: a list); all others are attributes.
The decorator returns a function that builds the call: ``matmul(x, w)`` with graph values.

``legalize`` defines the operator's computation: it takes the operands, as ``te`` tensors, by
position and the attributes by name, so it can be a function of ``topi``, and returns the ``te``
result. ``numpy`` has the operator's signature over arrays, for operators that only move elements,
which saves constant folding a compilation; operators that compute have no second formula.
``decompose(call)`` may return an expression of other operators instead. ``usual(call)`` says a call
with unusual options, such as another order of an image's axes, by calls without: passes and
gradients see these (``usual_form``). It gives ``None`` for a call that has none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.ir import (
    Expr,
    Op,
    and_,
    as_expr,
    as_int,
    const_value,
    maximum,
    minimum,
    not_,
    or_,
    register_operators,
    register_text,
)
from tilewright.relax.expr import Constant, PrimValue, RelaxCall, RelaxExpr, ShapeExpr, Tuple
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.relax.values import as_relax, shape_values
from tilewright.relax.values import const as as_constant
from tilewright.support.errors import VerifyError
from tilewright.support.registry import Registry

if TYPE_CHECKING:  # what an inference rule sees of its operands
    Tensor = TensorStructInfo
    TensorTuple = list[TensorStructInfo]
    Shape = tuple[Expr, ...]
    Prim = Expr
else:

    class Tensor:
        """Annotation of an operand that is a tensor."""

    class TensorTuple:
        """Annotation of an operand that is a tuple of tensors."""

    class Shape:
        """Annotation of an operand that is a shape."""

    class Prim:
        """Annotation of an operand that is a scalar expression."""


_KINDS = {"Tensor": Tensor, "TensorTuple": TensorTuple, "Shape": Shape, "Prim": Prim}


class RelaxOp(Op):
    """A graph operator; made by :func:`operator`.

    ``name`` is the one of TVM, such as ``relax.nn.relu``; ``key`` is the one in tables and in
    script: ``nn.relu``.
    """

    def __init__(
        self,
        key: str,
        rule: Callable[..., StructInfo],
        *,
        legalize: Callable[..., Any] | None = None,
        numpy: Callable[..., Any] | None = None,
        decompose: Callable[[RelaxCall], RelaxExpr | None] | None = None,
        usual: Callable[[RelaxCall], RelaxExpr | None] | None = None,
        prepare: Callable[..., dict[str, Any]] | None = None,
        effect: str = "pure",
    ) -> None:
        super().__init__(f"relax.{key}", None, "given", effect, inspect.getdoc(rule) or "")
        self.key = key
        self.rule = rule
        self.legalize = legalize
        self.numpy = numpy
        self.decompose = decompose
        self.usual = usual
        self.prepare = prepare
        self.signature = inspect.signature(rule)
        self.operand_kinds: dict[str, type] = {}
        self.attributes: list[str] = []
        for parameter in self.signature.parameters.values():
            kind = str(parameter.annotation).split("|")[0].strip()
            if kind in _KINDS:
                self.operand_kinds[parameter.name] = _KINDS[kind]
            else:
                self.attributes.append(parameter.name)
        self.__doc__ = rule.__doc__

    def content_key(self, ignore_ndarray: bool) -> str:
        """Operators compare and hash by name."""
        return self.key

    def __repr__(self) -> str:
        return f"RelaxOp({self.key})"

    def __reduce__(self) -> tuple[object, ...]:
        return _named, (self.key,)

    # ---- building ---------------------------------------------------------------------------

    def build(self, *args: object, **kwargs: object) -> RelaxCall:
        """Make a call from Python arguments.

        Raises ``VerifyError`` if the arguments don't fit the signature, or each other.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise VerifyError(f"{self.key}{self.signature}: {error}") from None
        bound.apply_defaults()
        values = {
            name: getattr(value, "_expr", value) if name in self.operand_kinds else value
            for name, value in bound.arguments.items()
        }
        like = next(
            (
                value
                for name, value in values.items()
                if name in self.operand_kinds and hasattr(value, "struct_info")
            ),
            None,
        )
        scalar = self._on_scalars(values)
        if scalar is not None:
            return scalar  # type: ignore[return-value]
        operands: dict[str, RelaxExpr | None] = {}
        for name, kind in self.operand_kinds.items():
            value = values[name]
            operands[name] = None if value is None else self._operand(name, kind, value, like)
        attrs = {name: _attribute_value(values[name]) for name in self.attributes}
        if self.prepare is not None:
            try:
                attrs = {**attrs, **self.prepare(**operands, **attrs)}
            except VerifyError as error:
                raise VerifyError(f"{self.key}: {error}") from None
        given = list(operands.values())
        while given and given[-1] is None:
            given.pop()
        if any(value is None for value in given):
            missing = [name for name, value in operands.items() if value is None]
            raise VerifyError(
                f"{self.key}: {', '.join(missing)} left out, but a later operand is given"
            )
        return RelaxCall(self, tuple(given), attrs)

    def _on_scalars(self, values: Mapping[str, Any]) -> PrimValue | None:
        """The result of arithmetic on scalars, which is one; ``None`` if these are none."""
        formula = SCALAR_FORMULAS.get(self.key)
        operands = [_scalar(values[name]) for name in self.operand_kinds]
        if formula is None or not any(isinstance(item, Expr) for item in operands):
            return None
        if None in operands:
            return None
        return PrimValue(formula(*operands))

    def _operand(self, name: str, kind: type, value: object, like: RelaxExpr | None) -> RelaxExpr:
        if kind is Shape:
            made = value if isinstance(value, RelaxExpr) else ShapeExpr(shape_values(value))
            extents = made.values if isinstance(made, ShapeExpr) else ()
            if any((as_int(extent) or 0) < 0 for extent in extents):
                raise VerifyError(f"{self.key}: extents must not be negative: {made!r}")
            return made
        made = as_relax(value, like)
        expected: dict[type, type[StructInfo]] = {
            Tensor: TensorStructInfo,
            TensorTuple: TupleStructInfo,
            Prim: PrimStructInfo,
        }
        if kind is Tensor and isinstance(made.struct_info, PrimStructInfo):
            return _scalar_tensor(made)
        if kind is Prim and isinstance(made, Constant) and made.data.ndim == 0:
            return PrimValue(made.data.item())
        if not isinstance(made.struct_info, expected[kind]):
            raise VerifyError(
                f"{self.key}: operand {name} must be a {kind.__name__}, "
                f"got {made!r}: {made.struct_info!r}"
            )
        return made

    # ---- meaning ----------------------------------------------------------------------------

    def infer(self, call: RelaxCall) -> StructInfo:
        """Infer the result of a call; ``VerifyError`` names the operator and its operands."""
        try:
            views = [_view(arg) for arg in call.args]
            return self.rule(**self._named(views, call.attrs))
        except VerifyError as error:
            shown = ", ".join(
                f"{name}: {arg.struct_info!r}" for name, arg in zip(self.operand_kinds, call.args)
            )
            raise VerifyError(f"{self.key}({shown}): {error}") from None

    def operands_of(self, call: RelaxCall) -> dict[str, RelaxExpr | None]:
        """Operands of a call by name; those left out are ``None``."""
        names = list(self.operand_kinds)
        padded = [*call.args, *([None] * (len(names) - len(call.args)))]
        return dict(zip(names, padded))

    def _named(self, values: Sequence[object], attrs: Mapping[str, object]) -> dict[str, Any]:
        names = list(self.operand_kinds)
        padded = [*values, *([None] * (len(names) - len(values)))]
        return {**dict(zip(names, padded)), **attrs}

    def evaluate(self, values: Sequence[object], attrs: Mapping[str, object]) -> Any:
        """Compute a call on arrays by the operator's NumPy rule, which must exist."""
        assert self.numpy is not None
        named = self._named(values, attrs)
        return self.numpy(*(named[name] for name in self.signature.parameters))


def _scalar(value: object) -> Any:
    """A scalar as an expression, or a number; ``None`` for anything else."""
    if isinstance(value, (bool, int, float, Expr)):
        return value
    info = getattr(value, "struct_info", None)
    return info.value if isinstance(info, PrimStructInfo) else None


def _scalar_tensor(value: RelaxExpr) -> RelaxExpr:
    info = value.struct_info
    assert isinstance(info, PrimStructInfo)
    number = None if info.value is None else const_value(info.value)
    if number is not None:
        return as_constant(number, info.dtype)
    return BUILDERS["scalar_to_tensor"](value)  # type: ignore[no-any-return]


SCALAR_FORMULAS: dict[str, Callable[..., Expr]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "floor_divide": lambda a, b: as_expr(a) // b,
    "floor_mod": lambda a, b: as_expr(a) % b,
    "maximum": maximum,
    "minimum": minimum,
    "negative": lambda a: -a,
    "equal": lambda a, b: as_expr(a) == b,
    "not_equal": lambda a, b: as_expr(a) != b,
    "less": lambda a, b: as_expr(a) < b,
    "less_equal": lambda a, b: as_expr(a) <= b,
    "greater": lambda a, b: as_expr(a) > b,
    "greater_equal": lambda a, b: as_expr(a) >= b,
    "logical_and": lambda a, b: and_(as_expr(a), as_expr(b)),
    "logical_or": lambda a, b: or_(as_expr(a), as_expr(b)),
    "logical_not": lambda a: not_(as_expr(a)),
}
"""What operators compute of scalars: a scalar again, so that sizes stay sizes."""


def _attribute_value(value: object) -> Any:
    """Attributes are Python values: lists become tuples, scalars Python numbers."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_attribute_value, value))
    if hasattr(value, "item") and not isinstance(value, (Expr, RelaxExpr)):
        return value.item()
    if isinstance(value, PrimValue) and const_value(value.value) is not None:
        return const_value(value.value)
    if isinstance(value, RelaxExpr):
        raise VerifyError(f"an attribute must be a Python value, got the graph value {value!r}")
    return value


def _view(arg: RelaxExpr) -> Any:
    """An operand as inference rules receive it."""
    info = arg.struct_info
    if isinstance(info, ShapeStructInfo):
        return info.values
    if isinstance(info, TupleStructInfo):
        return list(info.fields)
    if isinstance(info, PrimStructInfo):
        return info.value
    return info


OPERATORS: Registry[RelaxOp] = Registry("relax operator")
"""All graph operators by key, such as ``matmul`` or ``nn.relu``."""

register_operators("relax", OPERATORS)

Builder = Callable[..., RelaxCall]
BUILDERS: dict[str, Callable[..., Any]] = {}
"""What ``relax.op`` has, by name: what builds a call of each operator, or several calls."""


def _named(name: str) -> RelaxOp:
    return OPERATORS.get(name)


register_text("relax_op", RelaxOp, lambda op: str(op.key), _named)


def builders_in(space: str = "") -> dict[str, Callable[..., Any]]:
    """Return the builders of ``relax.op``, or of a namespace such as ``nn``, by their last name."""
    split = ((*name.rpartition("."), found) for name, found in BUILDERS.items())
    return {name: found for before, _, name, found in split if before == space}


Function = TypeVar("Function", bound=Callable[..., Any])


def builder(name: str) -> Callable[[Function], Function]:
    """Register a function that builds calls in ``relax.op``, in place of an operator's own."""

    def declare(function: Function) -> Function:
        BUILDERS[name] = function
        return function

    return declare


def renamed(function: Callable[..., Any], **names: str) -> Callable[..., Any]:
    """Let a function of ``topi`` be called with an operator's names of attributes.

    ``renamed(topi.tile, repeats="reps")`` takes the attribute ``repeats`` as ``reps``.
    """
    operator_names = {own: name for name, own in names.items()}
    taken = inspect.signature(function)

    def call(*operands: object, **attributes: object) -> Any:
        return function(*operands, **{names.get(n, n): value for n, value in attributes.items()})

    call.__signature__ = taken.replace(  # type: ignore[attr-defined]
        parameters=[
            item.replace(name=operator_names.get(item.name, item.name))
            for item in taken.parameters.values()
        ]
    )
    return call


def in_usual_form(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Let a function of ``topi`` be called with attributes that say nothing in the usual form."""
    taken = inspect.signature(function)

    def call(*operands: object, **attributes: object) -> Any:
        return function(*operands, **{n: v for n, v in attributes.items() if n not in names})

    own = list(taken.parameters.values())
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = taken.replace(parameters=own + more)  # type: ignore[attr-defined]
    return call


def operator(
    name: str,
    *,
    legalize: Callable[..., Any] | None = None,
    numpy: Callable[..., Any] | None = None,
    decompose: Callable[[RelaxCall], RelaxExpr | None] | None = None,
    usual: Callable[[RelaxCall], RelaxExpr | None] | None = None,
    prepare: Callable[..., dict[str, Any]] | None = None,
    effect: str = "pure",
) -> Callable[[Callable[..., StructInfo]], Builder]:
    """Declare an operator by its inference rule; see the module's docstring.

    ``prepare(operands and attributes)`` may complete attributes when a call is built. One with an
    ``effect`` is never removed, merged or folded: ``"update"`` if it is about memory or a check of
    the graph itself, ``"opaque"`` if the world sees it, which needs a function that is stated to be
    impure.
    """

    def declare(rule: Callable[..., StructInfo]) -> Builder:
        op = OPERATORS.register(
            name,
            RelaxOp(
                name,
                rule,
                legalize=legalize,
                numpy=numpy,
                decompose=decompose,
                usual=usual,
                prepare=prepare,
                effect=effect,
            ),
        )

        def build(*args: object, **kwargs: object) -> RelaxCall:
            return op.build(*args, **kwargs)

        build.__name__ = build.__qualname__ = name.rpartition(".")[2]
        build.__doc__ = rule.__doc__
        build.__module__ = rule.__module__
        build.__signature__ = op.signature  # type: ignore[attr-defined]
        build.op = op  # type: ignore[attr-defined]
        BUILDERS[name] = build
        return build

    return declare


def usual_form(call: RelaxCall) -> RelaxExpr | None:
    """Return what computes a call without unusual options; ``None`` if it has none."""
    usual = call.op.usual if isinstance(call.op, RelaxOp) else None
    made = None if usual is None else usual(call)
    return None if made is None else _without_options(made)


def _without_options(expr: RelaxExpr) -> RelaxExpr:
    """An expression whose calls, however deep, are in their usual form."""
    if not isinstance(expr, (RelaxCall, Tuple)):
        return expr
    made = expr.map_children(
        lambda item: _without_options(item) if isinstance(item, RelaxExpr) else item
    )
    found = usual_form(made) if isinstance(made, RelaxCall) else None
    return made if found is None else found


def get_op(name: str) -> RelaxOp:
    """Return an operator by name (with or without the prefix ``relax.``)."""
    return OPERATORS.get(name.removeprefix("relax."))


def is_call_to(expr: object, name: str) -> bool:
    """Whether an expression is a call of the operator of that key."""
    return isinstance(expr, RelaxCall) and isinstance(expr.op, RelaxOp) and expr.op.key == name


def tuple_items(expr: RelaxExpr) -> tuple[RelaxExpr, ...]:
    """Items of a literal tuple.

    Raises ``VerifyError`` for anything else.
    """
    if not isinstance(expr, Tuple):
        raise VerifyError(f"expected a tuple written out, got {expr!r}")
    return expr.fields
