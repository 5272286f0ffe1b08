"""What functions return: calls of ``ret`` end them, with a value or with 0 for none."""

from __future__ import annotations

from tilewright.ir import (
    Call,
    Expr,
    IRModule,
    as_int,
    cast,
    content_mask,
    contents,
    dtypes,
    pre_order,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.function import PrimFunc


def returned_values(func: PrimFunc) -> list[Expr]:
    """List the values that a function returns, in the order of the program."""
    if not contents(func.body) & content_mask(Call):
        return []
    return [
        item.args[0]
        for item in pre_order(func.body)
        if isinstance(item, Call) and item.op.name == "ret" and as_int(item.args[0]) != 0
    ]


def returned_dtype(func: PrimFunc) -> str:
    """Return the dtype of a function's value: as it says, or that of its first one; or void."""
    if func.ret_dtype != "void":
        return func.ret_dtype
    values = returned_values(func)
    return values[0].dtype if values else "void"


def as_returned(value: Expr, dtype: str) -> Expr:
    """Convert a value to what the function returns; ``VerifyError`` if it is no such number."""
    if value.dtype == dtype:
        return value
    if "handle" in (value.dtype, dtype) or dtypes.lanes_of(value.dtype) > 1:
        raise VerifyError(f"the function returns {dtype}, which {value!r} is not: {value.dtype}")
    return cast(value, dtype)


def with_stated_returns(mod: IRModule) -> IRModule:
    """Have functions say what they return, before values that turn out to be 0 look like none."""
    for name, func in mod.functions.items():
        if isinstance(func, PrimFunc) and returned_dtype(func) != func.ret_dtype:
            mod = mod.with_function(name, func.replace(ret_dtype=returned_dtype(func)))
    return mod
