"""Functions as values: parameters that are functions, and functions inside of functions.

``invoke_closure`` calls a function that a variable stands for; where it is known which one that is,
``InlineFunctions`` and ``LambdaLift`` make an ordinary call of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.relax.analysis import derive_call_ret_struct_info
from tilewright.relax.call_tir import raw_op
from tilewright.relax.expr import RelaxCall, RelaxExpr, Tuple
from tilewright.relax.expr_operators import OPERATOR_SUGAR
from tilewright.relax.registry import builder
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    StructInfo,
    TupleStructInfo,
)
from tilewright.relax.values import as_relax
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError


def _infer(call: RelaxCall) -> StructInfo:
    if len(call.sinfo_args) != 1:
        raise VerifyError("invoke_closure needs the struct info of its result")
    return call.sinfo_args[0]


INVOKE_CLOSURE = raw_op("invoke_closure", _infer)


@builder("invoke_closure")
@other_names(sinfo_args="ty_args")
def invoke_closure(
    closure: RelaxExpr, args: object, ty_args: StructInfo | None = None
) -> RelaxCall:
    """Call a function that a variable stands for.

    What it gives is derived from its struct info unless ``ty_args`` says so.

    Raises ``VerifyError`` if the variable is no function, or the arguments don't fit.
    """
    info = closure.struct_info
    if not isinstance(info, (FuncStructInfo, ObjectStructInfo)):
        raise VerifyError(f"{closure!r} is no function: it is {info!r}")
    given = args.fields if isinstance(args, Tuple) else args
    items = tuple(map(as_relax, given if isinstance(given, (tuple, list)) else (given,)))
    pure = not isinstance(info, FuncStructInfo) or info.purity
    attrs = {} if pure else {"pure": False}
    made = RelaxCall(INVOKE_CLOSURE, (closure, *items), attrs, (ty_args or ObjectStructInfo(),))
    if isinstance(info, FuncStructInfo):
        derived = derive_call_ret_struct_info(info, made)
        made = made.replace(sinfo_args=(ty_args or derived,))
    return made


OPERATOR_SUGAR["call"] = invoke_closure


@builder("invoke_pure_closure")
@other_names(sinfo_args="ty_args")
def invoke_pure_closure(
    closure: RelaxExpr, args: object, ty_args: StructInfo | Sequence[StructInfo]
) -> RelaxCall:
    """Call a function that a variable stands for, and promise that the call has no effects.

    So it may be moved, and removed if nothing uses what it gives.

    Raises ``VerifyError`` as ``invoke_closure`` does.
    """
    if not isinstance(ty_args, StructInfo):
        ty_args = ty_args[0] if len(ty_args) == 1 else TupleStructInfo(tuple(ty_args))
    made = invoke_closure(closure, args, ty_args)
    return made.replace(attrs={})


def is_invocation(value: object) -> bool:
    """Whether a value calls a function that a variable stands for."""
    return isinstance(value, RelaxCall) and value.op is INVOKE_CLOSURE
