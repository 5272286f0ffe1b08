"""Numbers that are known only when a graph runs: elements of tensors, roots of symbolic sizes.

PyTorch computes with them between operators. Sizes that are formulas of the inputs' extents stay
``ir`` expressions (``symbols.py``); everything else becomes 0-dimensional tensors here, of float64
or int64, as Python computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters import Context
from tilewright.relax.frontend.torch.converters.elementwise import COMPARISONS

if TYPE_CHECKING:
    import torch

# Functions of PyTorch's graphs on numbers, by name. Comparisons give bool.
_FUNCTIONS: dict[str, Callable[..., RelaxExpr]] = {
    "add": op.add,
    "sub": op.subtract,
    "mul": op.multiply,
    "truediv": op.divide,
    "floordiv": op.floor_divide,
    "mod": op.floor_mod,
    "neg": op.negative,
    "abs": op.abs,
    "pow": op.power,
    "_sym_sqrt": op.sqrt,
    "sym_sqrt": op.sqrt,
    "sym_max": op.maximum,
    "sym_min": op.minimum,
    "floor": op.floor,
    "ceil": op.ceil,
    "trunc": op.trunc,
    "sym_float": lambda x: x,
    "sym_ite": lambda test, x, y: op.where(op.astype(test, "bool"), x, y),
    **COMPARISONS,
}
_ALWAYS_FLOAT = frozenset(("truediv", "_sym_sqrt", "sym_sqrt", "sym_float", "floor", "ceil"))


def element(x: RelaxExpr) -> RelaxExpr:
    """The only element of a tensor, as Python's number."""
    made = x if not x.ndim else op.reshape(x, ())
    if made.dtype == "bool":
        return made
    return op.astype(made, "float64" if "float" in made.dtype else "int64")


def convert_number(ctx: Context, value: Callable[[Any], Any]) -> RelaxExpr | None:
    """Convert a node whose result is a number; ``value`` converts its arguments.

    ``None`` if PyTorch's graphs compute nothing with numbers by such a function.
    """
    import torch

    node: torch.fx.Node = ctx.node
    name = getattr(node.target, "__name__", "")
    function = _FUNCTIONS.get(name)
    if function is None:
        return None
    floats = name in _ALWAYS_FLOAT or any(
        isinstance(_example(arg), (float, torch.SymFloat)) for arg in node.args
    )
    dtype = "float64" if floats else "int64"
    made = function(*(ctx.tensor(value(arg), dtype) for arg in node.args))
    wanted = node.meta["val"]
    if isinstance(wanted, torch.SymInt) and made.dtype != "int64":
        made = op.astype(made, "int64")
    return made


def _example(arg: object) -> object:
    return arg.meta.get("val") if hasattr(arg, "meta") else arg
