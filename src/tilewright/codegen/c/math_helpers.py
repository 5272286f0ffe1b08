"""Functions of neural networks that are made of one exponential; more are in ``formulas``."""

from __future__ import annotations

from tilewright.codegen.c.dialect import Dialect, Helper
from tilewright.codegen.c.formulas import formula
from tilewright.codegen.c.helpers import fill, helper


def _suffix(element: str) -> str:
    return "f" if element == "float32" else ""


@helper("sigmoid")
def _sigmoid(dialect: Dialect, element: str) -> Helper:
    """By the exponential of what is not positive, so that nothing overflows."""
    own = dialect.math.get(("exp", element))
    if own is None:
        return formula("sigmoid")(dialect, element)
    text = """
$fn $T tw_sigmoid_$s($T x) {
  $T e = $exp;
  return (x >= 0 ? 1.0$f : e) / (1.0$f + e);
}"""
    exp = own.format(f"-{dialect.math['fabs', element].format('x')}")
    return Helper(fill(dialect, element, text, exp=exp, f=_suffix(element)))


@helper("silu")
def _silu(dialect: Dialect, element: str) -> Helper:
    text = "$fn $T tw_silu_$s($T x) { return x * tw_sigmoid_$s(x); }"
    return Helper(fill(dialect, element, text), (("sigmoid", element),))
