"""Struct info: what is statically known of a graph value.

Shapes are tuples of int64 expressions, so that ``("n", 784)``-like symbolic shapes are ordinary
arithmetic over ``tir`` variables. Two struct infos are compared with :func:`same_struct_info`,
which proves by arithmetic that ``n * 2`` and ``2 * n`` are the same extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from tilewright.arith import Analyzer, simplify
from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    IntImm,
    PrimType,
    TupleType,
    Type,
    Var,
    as_expr,
    as_int,
    attr,
    check_extents,
    children,
    dtypes,
    expr_equal,
    free_vars,
    node,
    set_base_check,
    structural_equal,
    substitute,
)
from tilewright.support.errors import VerifyError


class _Default(int):
    """A default that can be told from the same number, given."""


_NDIM_OF_SHAPE = _Default(-1)
"""The number of dimensions that the shape has: -1, unknown, without one."""


StructInfo = Type
PrimStructInfo = PrimType
TupleStructInfo = TupleType


@node
class ObjectStructInfo(StructInfo):
    """Anything: nothing is known."""

    def __repr__(self) -> str:
        return "Object"


@node
class ShapeStructInfo(StructInfo):
    """A shape; ``values`` are its extents if ``len(values) == ndim``, else they are unknown."""

    values: tuple[Expr, ...] = children(default=())
    ndim: int = attr(default=-1)

    def __init__(
        self, values: Sequence[ExprLike] | None = None, ndim: int | None = _NDIM_OF_SHAPE
    ) -> None:
        made, rank = _extents(values, ndim)
        object.__setattr__(self, "values", made)
        object.__setattr__(self, "ndim", rank)

    @property
    def is_known(self) -> bool:
        """Whether the extents are known."""
        return self.ndim == len(self.values)

    def __repr__(self) -> str:
        return f"Shape({_show(self)})"


@node
class TensorStructInfo(StructInfo):
    """A tensor: ``shape`` if known (``has_shape``), else only ``ndim`` (-1: unknown too)."""

    shape: tuple[Expr, ...] = children(default=())
    dtype: str = attr(default="float32")
    ndim: int = attr(default=-1)

    def __init__(
        self,
        shape: Sequence[ExprLike] | None = None,
        dtype: str = "float32",
        vdevice: None = None,
        ndim: int | None = _NDIM_OF_SHAPE,
    ) -> None:
        if vdevice is not None:
            raise VerifyError(
                f"a tensor can't be placed on {vdevice!r}: a graph runs on one device, that of its "
                "target"
            )
        dtypes.check_dtype(dtype)
        made, rank = _extents(shape, ndim)
        check_extents(made, "a tensor")
        object.__setattr__(self, "shape", made)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "ndim", rank)

    @property
    def vdevice(self) -> None:
        """``None``: a graph runs on one device, that of its target."""
        return None

    @property
    def has_shape(self) -> bool:
        """Whether all extents are known as expressions."""
        return self.ndim == len(self.shape)

    @property
    def values(self) -> tuple[Expr, ...]:
        """The extents, under the name that shapes use too."""
        return self.shape

    def __repr__(self) -> str:
        return f"Tensor({_show(self)}, {self.dtype})"


@node
class FuncStructInfo(StructInfo):
    """A function: what it takes (``None``: anything), what it gives, and whether it is pure.

    Symbolic extents of the parameters are the function's own: a call says what they are.
    """

    defining_fields = ("params",)

    params: tuple[StructInfo, ...] | None = attr(default=None)
    ret: StructInfo = attr(default=ObjectStructInfo())
    purity: bool = attr(default=True)

    def __post_init__(self) -> None:
        infos = (*(self.params or ()), self.ret)
        wrong = [info for info in infos if not isinstance(info, StructInfo)]
        if wrong:
            raise VerifyError(f"a function takes and gives struct infos, got {wrong[0]!r}")
        if self.params is not None:
            object.__setattr__(self, "params", tuple(self.params))

    @staticmethod
    def opaque_func(
        *, ret: StructInfo | None = None, derive_func: None = None, purity: bool = False
    ) -> FuncStructInfo:
        """Describe a function of which only the result is known, if anything.

        Raises ``VerifyError`` for a ``derive_func``: a call says what it gives by ``ty_args``.
        """
        if derive_func is not None:
            raise VerifyError("a call of an opaque function says what it gives by ty_args")
        return FuncStructInfo(None, ret or ObjectStructInfo(), purity)

    def is_opaque(self) -> bool:
        """Whether nothing is known of what it takes."""
        return self.params is None

    def __repr__(self) -> str:
        params = "..." if self.params is None else ", ".join(map(repr, self.params))
        return f"Callable(({params}) -> {self.ret!r}{'' if self.purity else ', impure'})"


def _simplest(extent: Expr) -> Expr:
    return extent if isinstance(extent, (Var, IntImm)) else simplify(extent)


def _extents(values: Sequence[ExprLike] | None, ndim: int | None) -> tuple[tuple[Expr, ...], int]:
    # Extents are kept in simplest form: substitution may have made `2 * 3` of `n * 3`.
    made = () if values is None else tuple(_simplest(as_expr(value, INDEX)) for value in values)
    for extent in made:
        if extent.dtype != INDEX:
            raise VerifyError(f"an extent must be {INDEX}, got {extent!r} of {extent.dtype}")
    if ndim is None or ndim is _NDIM_OF_SHAPE or (made and ndim == -1):
        return made, -1 if values is None else len(made)
    if ndim < -1:
        raise VerifyError(f"ndim is a number of dimensions, or -1 if it is unknown; got {ndim}")
    if made and len(made) != ndim:
        raise VerifyError(f"ndim is {ndim} but the shape has {len(made)} dimensions")
    return made, ndim


def _show(info: ShapeStructInfo | TensorStructInfo) -> str:
    known = info.ndim == len(info.values)
    if known:
        return f"({', '.join(map(repr, info.values))}{',' if info.ndim == 1 else ''})"
    return f"ndim={info.ndim}"


def prove_equal(a: Expr, b: Expr) -> bool:
    """Whether two extents are provably equal."""
    if a is b:
        return True
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return x == y
    return expr_equal(a, b) or bool(Analyzer().can_prove_equal(a, b))


def prove_different(a: Expr, b: Expr) -> bool:
    """Whether two extents can never be equal, as 3 and 4, or ``k`` and ``k + 1``."""
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return x != y
    return a is not b and as_int(simplify(a == b)) == 0


def static_shape(info: StructInfo) -> tuple[int, ...] | None:
    """A tensor's shape; ``None`` if an extent isn't known, and for what is no tensor."""
    if not isinstance(info, TensorStructInfo) or not info.has_shape:
        return None
    extents = [as_int(extent) for extent in info.shape]
    return None if None in extents else tuple(extent or 0 for extent in extents)


def same_shape(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether two shapes are provably equal."""
    return len(a) == len(b) and all(map(prove_equal, a, b))


def same_struct_info(a: StructInfo, b: StructInfo) -> bool:
    """Whether two struct infos are equal over the same variables."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        return (
            a.dtype == b.dtype
            and a.ndim == b.ndim
            and a.has_shape == b.has_shape
            and same_shape(a.shape, b.shape)
        )
    if isinstance(a, ShapeStructInfo) and isinstance(b, ShapeStructInfo):
        return a.ndim == b.ndim and same_shape(a.values, b.values)
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(map(same_struct_info, a.fields, b.fields))
    if isinstance(a, PrimStructInfo) and isinstance(b, PrimStructInfo):
        if a.dtype != b.dtype or (a.value is None) != (b.value is None):
            return False
        return a.value is None or prove_equal(a.value, b.value)  # type: ignore[arg-type]
    if isinstance(a, FuncStructInfo):
        return structural_equal(a, b, map_free_vars=True)
    return a == b


def extents_of(info: StructInfo) -> list[Expr]:
    """All extents (and scalar values) inside a struct info, in order."""
    if isinstance(info, (TensorStructInfo, ShapeStructInfo)):
        return list(info.values)
    if isinstance(info, TupleStructInfo):
        return [extent for field in info.fields for extent in extents_of(field)]
    if isinstance(info, PrimStructInfo) and info.value is not None:
        return [info.value]
    return []


def has_objects(info: StructInfo) -> bool:
    """Whether a value is an object, or a tuple with one."""
    if isinstance(info, TupleStructInfo):
        return any(map(has_objects, info.fields))
    return isinstance(info, ObjectStructInfo)


def defined_vars(infos: Sequence[StructInfo]) -> list[Var]:
    """Variables that parameters of these struct infos define by extents of their own, in order."""
    found: dict[Var, None] = {}
    for info in infos:
        for extent in extents_of(info):
            if type(extent) is Var:
                found.setdefault(extent)
    return list(found)


def used_vars(info: StructInfo) -> list[Var]:
    """Symbolic variables that occur in a struct info."""
    found: dict[Var, None] = {}
    for extent in extents_of(info):
        for var in free_vars(extent):
            found.setdefault(var)
    return list(found)


def substitute_info(info: StructInfo, mapping: dict[Any, Any]) -> StructInfo:
    """Replace symbolic variables in a struct info."""
    if not mapping:
        return info
    made: StructInfo = substitute(info, mapping)
    return made


def struct_info_lca(lhs: StructInfo, rhs: StructInfo) -> StructInfo:
    """Return the most specific struct info that values of both have."""
    if same_struct_info(lhs, rhs):
        return lhs
    if isinstance(lhs, PrimStructInfo) and isinstance(rhs, PrimStructInfo):
        return PrimStructInfo(lhs.dtype) if lhs.dtype == rhs.dtype else ObjectStructInfo()
    if isinstance(lhs, ShapeStructInfo) and isinstance(rhs, ShapeStructInfo):
        return ShapeStructInfo(None, lhs.ndim if lhs.ndim == rhs.ndim else -1)
    if isinstance(lhs, TensorStructInfo) and isinstance(rhs, TensorStructInfo):
        if lhs.dtype != rhs.dtype:
            return ObjectStructInfo()  # a tensor of any dtype can't be described
        return TensorStructInfo(None, lhs.dtype, ndim=lhs.ndim if lhs.ndim == rhs.ndim else -1)
    if isinstance(lhs, TupleStructInfo) and isinstance(rhs, TupleStructInfo):
        if len(lhs.fields) != len(rhs.fields):
            return ObjectStructInfo()
        return TupleStructInfo(tuple(map(struct_info_lca, lhs.fields, rhs.fields)))
    if isinstance(lhs, FuncStructInfo) and isinstance(rhs, FuncStructInfo):
        ret = struct_info_lca(lhs.ret, rhs.ret)
        return FuncStructInfo(None, ret, lhs.purity and rhs.purity)
    return ObjectStructInfo()


def erase_extents(info: StructInfo, known: dict[Var, Expr]) -> StructInfo:
    """Replace symbolic extents by their values; forget shapes that use an unknown one."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(erase_extents(field, known) for field in info.fields))
    if known.keys() >= set(used_vars(info)):
        return substitute_info(info, known)
    if isinstance(info, TensorStructInfo):
        return TensorStructInfo(None, info.dtype, ndim=info.ndim)
    if isinstance(info, ShapeStructInfo):
        return ShapeStructInfo(None, info.ndim)
    assert isinstance(info, PrimStructInfo)
    return PrimStructInfo(info.dtype)


class BaseCheckResult(IntEnum):
    """Whether a value of one struct info may stand where another is asked for, the worst first."""

    FAIL_L0 = 0
    """Never: they have no value in common."""
    FAIL_L1 = 1
    """Perhaps: a check of kind, dtype or number of dimensions decides when it runs."""
    FAIL_L2 = 2
    """Perhaps: a check of extents decides when it runs."""
    PASS = 3
    """Always."""


def struct_info_base_check(base: StructInfo, derived: StructInfo) -> BaseCheckResult:
    """Check whether each value of ``derived`` is one of ``base``."""
    if isinstance(base, ObjectStructInfo):
        return BaseCheckResult.PASS
    if isinstance(derived, ObjectStructInfo):
        return BaseCheckResult.FAIL_L1
    if type(base) is not type(derived):
        return BaseCheckResult.FAIL_L0
    check = _CHECKS.get(type(base), _check_equal)
    found: BaseCheckResult = check(base, derived)
    return found


def _check_equal(base: StructInfo, derived: StructInfo) -> BaseCheckResult:
    return BaseCheckResult.PASS if base == derived else BaseCheckResult.FAIL_L0


def _check_prim(base: PrimStructInfo, derived: PrimStructInfo) -> BaseCheckResult:
    if base.dtype != derived.dtype:
        return BaseCheckResult.FAIL_L0
    if base.value is None:
        return BaseCheckResult.PASS
    if derived.value is None:
        return BaseCheckResult.FAIL_L2
    return _check_extents((base.value,), (derived.value,))


def _check_shape(base: TensorStructInfo, derived: TensorStructInfo) -> BaseCheckResult:
    """Compare ranks, then extents, of two shapes or tensors."""
    if base.ndim == -1:
        return BaseCheckResult.PASS
    if derived.ndim == -1:
        return BaseCheckResult.FAIL_L1
    if base.ndim != derived.ndim:
        return BaseCheckResult.FAIL_L0
    if len(base.values) != base.ndim:
        return BaseCheckResult.PASS
    if len(derived.values) != derived.ndim:
        return BaseCheckResult.FAIL_L2
    return _check_extents(base.values, derived.values)


def _check_tensor(base: TensorStructInfo, derived: TensorStructInfo) -> BaseCheckResult:
    return _check_shape(base, derived) if base.dtype == derived.dtype else BaseCheckResult.FAIL_L0


def _check_tuple(base: TupleStructInfo, derived: TupleStructInfo) -> BaseCheckResult:
    return _check_all(base.fields, derived.fields)


def _check_function(base: FuncStructInfo, derived: FuncStructInfo) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return BaseCheckResult.FAIL_L0
    found = struct_info_base_check(base.ret, derived.ret)
    if base.params is None:
        return found
    if derived.params is None:
        return min(found, BaseCheckResult.FAIL_L1)
    # What is asked to take much must not take less: parameters are compared the other way round.
    return min(found, _check_all(derived.params, base.params))


def _check_all(bases: Sequence[StructInfo], derived: Sequence[StructInfo]) -> BaseCheckResult:
    if len(bases) != len(derived):
        return BaseCheckResult.FAIL_L0
    return min(map(struct_info_base_check, bases, derived), default=BaseCheckResult.PASS)


def _check_extents(base: Sequence[Expr], derived: Sequence[Expr]) -> BaseCheckResult:
    if any(map(prove_different, base, derived)):
        return BaseCheckResult.FAIL_L0
    return BaseCheckResult.PASS if all(map(prove_equal, base, derived)) else BaseCheckResult.FAIL_L2


_CHECKS: dict[type[StructInfo], Any] = {
    PrimStructInfo: _check_prim,
    ShapeStructInfo: _check_shape,
    TensorStructInfo: _check_tensor,
    TupleStructInfo: _check_tuple,
    FuncStructInfo: _check_function,
}
set_base_check(lambda base, derived: struct_info_base_check(base, derived) is BaseCheckResult.PASS)
