"""Rules for floating-point values: exact ones only, no reassociation.

``x + 0.0`` stays (it turns ``-0.0`` into ``0.0``), ``x * 0.0`` stays (NaN, infinity, signs).
"""

from __future__ import annotations

from tilewright.arith.rewrite import Rule, Table, wild
from tilewright.ir import Add, Div, FloatImm, Max, Min, Mul, Sub

x, y = wild("x", "float32"), wild("y", "float32")
ONE, ZERO, NEG_ZERO = FloatImm("float32", 1.0), FloatImm("float32", 0.0), FloatImm("float32", -0.0)

RULES = (
    Rule(Mul(x, ONE), x),
    Rule(Mul(ONE, x), x),
    Rule(Div(x, ONE), x),
    Rule(Sub(x, ZERO), x),
    Rule(Add(x, NEG_ZERO), x),
    Rule(Add(NEG_ZERO, x), x),
    Rule(Min(x, x), x),
    Rule(Max(x, x), x),
    Rule(Min(Min(x, y), y), Min(x, y)),
    Rule(Max(Max(x, y), y), Max(x, y)),
)
TABLE = Table(RULES)
