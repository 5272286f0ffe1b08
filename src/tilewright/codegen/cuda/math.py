"""Functions of floats on NVIDIA GPUs, with the bounds of their errors.

Exact functions are those of CUDA's math library where it is as exact as the CPU's code, and that
code's formulas where it isn't. Bounds are in units in the last place; the library's are from the
appendix *Mathematical Functions* of NVIDIA's *CUDA C++ Programming Guide*.
With ``-math=fast`` some are the hardware's approximations (``ex2.approx`` and its like), whose
bounds are absolute or hold in a part of the range only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MathText:
    """A function as text of ``{0}`` …, with the bound of its error in ulp."""

    text: str
    ulp: float


def _pairs(rows: str) -> dict[tuple[str, str], MathText]:
    """Rows of operator, bounds for float32 and float64; the name is C's."""
    made = {}
    for row in rows.split("\n"):
        if row.strip():
            name, single, double, *own = row.split()
            c_name = own[0] if own else name
            args = "{0}, {1}" if name in _BINARY else "{0}"
            made[name, "float32"] = MathText(f"{c_name}f({args})", float(single))
            made[name, "float64"] = MathText(f"{c_name}({args})", float(double))
    return made


_BINARY = ("pow", "atan2", "fmod", "hypot", "copysign", "nextafter")

EXACT: Mapping[tuple[str, str], MathText] = {
    **_pairs(
        """
        exp 1 1
        expm1 1 1
        log 1 1
        log2 1 1
        log1p 1 1
        sin 2 2
        cos 2 2
        tan 4 2
        hypot 3 2
        fmod 0 0
        copysign 0 0
        nextafter 0 0
        floor 0 0
        ceil 0 0
        trunc 0 0
        nearbyint 0 0 rint
        fabs 0 0
        """
    ),
    **{
        (name, "float64"): MathText(f"{name}({{0}})", 1)
        for name in ("exp2", "exp10", "log10", "tanh", "cosh")
    },
    ("asin", "float32"): MathText("asinf({0})", 2),
    ("asin", "float64"): MathText("asin({0})", 2),
    ("acos", "float32"): MathText("acosf({0})", 2),
    ("acos", "float64"): MathText("acos({0})", 2),
    ("atan2", "float64"): MathText("atan2({0}, {1})", 2),
    ("atanh", "float64"): MathText("atanh({0})", 2),
    ("sqrt", "float32"): MathText("__fsqrt_rn({0})", 0.5),
    ("sqrt", "float64"): MathText("sqrt({0})", 0.5),
    ("rsqrt", "float32"): MathText("(1.0f / __fsqrt_rn({0}))", 1.5),
    ("rsqrt", "float64"): MathText("(1.0 / sqrt({0}))", 1.5),
    ("fma", "float32"): MathText("__fmaf_rn({0}, {1}, {2})", 0.5),
    ("fma", "float64"): MathText("fma({0}, {1}, {2})", 0.5),
}
"""By operator and dtype: CUDA's functions that are as exact as the CPU's.

All others are the CPU's own formulas (``codegen/c/formulas.py``), with the bounds of docs/math.md;
``sigmoid`` and ``silu`` are made of an exponential (``codegen/c/math_helpers.py``).
"""

FAST: Mapping[tuple[str, str], MathText] = {
    **{
        (name, "float32"): MathText(f"{name}f({{0}})", ulp)
        for name, ulp in (
            ("exp2", 2), ("exp10", 2), ("erf", 2), ("sinh", 3), ("cosh", 2), ("atan", 2),
            ("asinh", 3), ("acosh", 4), ("atanh", 3),
        )
    },
    ("atan2", "float32"): MathText("atan2f({0}, {1})", 3),
    # 2 ulp plus the error of x * log2(e): grows with |x|, to about 20 ulp at 88.
    ("exp", "float32"): MathText("__expf({0})", 20),
    ("log", "float32"): MathText("__logf({0})", 4),
    ("log2", "float32"): MathText("__log2f({0})", 4),
    ("log10", "float32"): MathText("__log10f({0})", 4),
    ("rsqrt", "float32"): MathText("rsqrtf({0})", 2),
    # Absolute errors of 2**-21.4 in [-pi, pi], larger beyond.
    ("sin", "float32"): MathText("__sinf({0})", 4),
    ("cos", "float32"): MathText("__cosf({0})", 4),
    ("pow", "float32"): MathText("__powf({0}, {1})", 16),
    ("tanh", "float32"): MathText("tw_tanh_approx_f32({0})", 11000),
}  # fmt: skip
"""What ``-math=fast`` takes instead."""


def table(fast: bool) -> dict[tuple[str, str], str]:
    """Return the texts of functions by operator and dtype."""
    rows = {**EXACT, **FAST} if fast else EXACT
    return {key: row.text for key, row in rows.items()}
