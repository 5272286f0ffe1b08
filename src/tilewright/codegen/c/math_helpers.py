"""Functions of neural networks, made of those that every math library has."""

from __future__ import annotations

from tilewright.codegen.c.dialect import Dialect, Helper
from tilewright.codegen.c.helpers import fill, helper
from tilewright.support.errors import CodegenError


def _call(dialect: Dialect, name: str, element: str, *args: str) -> str:
    text = dialect.math.get((name, element))
    if text is None:
        raise CodegenError(f"{dialect.name} has no {name} of {element}")
    return text.format(*args)


def _suffix(element: str) -> str:
    return "f" if element == "float32" else ""


@helper("sigmoid")
def _sigmoid(dialect: Dialect, element: str) -> Helper:
    """By the exponential of what is not positive, so that nothing overflows."""
    text = """
$fn $T tw_sigmoid_$s($T x) {
  $T e = $exp;
  return (x >= 0 ? 1.0$f : e) / (1.0$f + e);
}"""
    size = _call(dialect, "fabs", element, "x")
    exp = _call(dialect, "exp", element, f"-{size}")
    return Helper(fill(dialect, element, text, exp=exp, f=_suffix(element)))


@helper("silu")
def _silu(dialect: Dialect, element: str) -> Helper:
    text = "$fn $T tw_silu_$s($T x) { return x == -$inf ? -0.0$f : x * tw_sigmoid_$s(x); }"
    made = fill(dialect, element, text, inf=_infinity(dialect, element), f=_suffix(element))
    return Helper(made, (("sigmoid", element),))


def _infinity(dialect: Dialect, element: str) -> str:
    return dialect.infinity["inf" if element == "float32" else "inf64"]


@helper("gelu")
def _gelu(dialect: Dialect, element: str) -> Helper:
    """By ``erfc``, so that nothing cancels on the left."""
    f = _suffix(element)
    erfc = _call(dialect, "erfc", element, f"x * -0.70710678118654752{f}")
    text = "$fn $T tw_gelu_$s($T x) { return x == -$inf ? -0.0$f : 0.5$f * x * $erfc; }"
    return Helper(fill(dialect, element, text, inf=_infinity(dialect, element), erfc=erfc, f=f))


@helper("gelu_tanh")
def _gelu_tanh(dialect: Dialect, element: str) -> Helper:
    text = """
$fn $T tw_gelu_tanh_$s($T x) {
  $T inner = 1.5957691216057308$f * (x + 0.044715$f * x * x * x);
  return x == -$inf ? -0.0$f : x * tw_sigmoid_$s(inner);
}"""
    made = fill(dialect, element, text, inf=_infinity(dialect, element), f=_suffix(element))
    return Helper(made, (("sigmoid", element),))
