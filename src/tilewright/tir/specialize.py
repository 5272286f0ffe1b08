"""``PrimFunc.specialize``: a function with some of its parameters and sizes given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import BinaryExpr, Node, Var, as_expr, const_value, pre_order, structural_equal
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import Renewer


def specialize(func: PrimFunc, param_map: Mapping[Var, Any]) -> PrimFunc:
    """Give parameters: numbers for scalars and symbolic sizes, buffers for buffers.

    A buffer of constant shape for a parameter (a handle) makes its symbolic extents these constants
    everywhere; a scalar that gets a value is no parameter any more.

    Raises ``VerifyError`` for what is no parameter, and buffers that don't fit.
    """
    values: dict[Any, Any] = {}
    symbols = {*func.params, *func.sizes(), *func.symbolic_vars()}
    for param, given in param_map.items():
        if param in func.buffer_map:
            for var, value in _fitting(func.buffer_map[param], given).items():
                _agree(values.setdefault(var, value), value, f"the size {var.name}")
        elif param not in symbols:
            raise VerifyError(
                f"specialize gives parameters and sizes of {func!r}; {param!r} is neither"
            )
        elif isinstance(given, Buffer):
            raise VerifyError(f"the parameter {param.name} is a scalar, got {given!r}")
        else:
            value = as_expr(given, param.dtype)
            if value.dtype != param.dtype:
                raise VerifyError(f"{param.name} is of {param.dtype}, got {given!r}")
            _agree(values.setdefault(param, value), value, f"the parameter {param.name}")
    params = tuple(param for param in func.params if param not in values)
    # What values are made of stays what it is: n may become m, another size of the function.
    used = {item for value in values.values() for item in pre_order(value) if type(item) is Var}
    values.update({var: var for var in used & symbols - values.keys()})
    made: PrimFunc = _Specializer(values, func).visit(func.replace(params=params))
    return made


class _Specializer(Renewer):
    """Renews definitions, except of what is given, and folds what becomes constant."""

    def __init__(self, values: Mapping[Any, object], root: Node) -> None:
        super().__init__(values, root)
        self.given = frozenset(values)

    def define(self, symbol: Buffer | Var) -> Any:
        """A new symbol, or the value that is given for it."""
        return self.mapping[symbol] if symbol in self.given else super().define(symbol)

    def visit_BinaryExpr(self, node: BinaryExpr) -> Any:
        made = self.generic_visit(node)
        known = const_value(made.a) is not None or const_value(made.b) is not None
        return simplify(made) if made is not node and known else made


def _fitting(buffer: Buffer, given: object) -> dict[Var, Any]:
    """What the variables of a parameter's buffer become for a buffer that is to fit it."""
    if not isinstance(given, Buffer):
        raise VerifyError(f"a parameter that is a buffer gets a buffer, got {given!r}")
    if given.dtype != buffer.dtype or given.ndim != buffer.ndim:
        raise VerifyError(f"{given!r} does not fit {buffer!r}")
    values: dict[Var, Any] = {}
    pairs: list[tuple[Any, Any]] = [*zip(buffer.shape, given.shape)]
    if buffer.strides and given.strides:
        pairs += zip(buffer.strides, given.strides)
    if buffer.elem_offset is not None:
        pairs.append(
            (buffer.elem_offset, as_expr(0 if given.elem_offset is None else given.elem_offset))
        )
    for own, found in pairs:
        if type(own) is Var:
            own = values.setdefault(own, found)
        _agree(own, found, f"{given!r} for {buffer!r}")
    return values


def _agree(own: Any, found: Any, what: str) -> None:
    if const_value(own) is None and type(own) is not Var:
        return  # a formula of sizes, which are checked when the function is called
    if not structural_equal(own, found, map_free_vars=False):
        raise VerifyError(f"{what} can't be both {own!r} and {found!r}")


PrimFunc.specialize = specialize  # type: ignore[assignment, method-assign]
