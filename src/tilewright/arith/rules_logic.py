"""Rules for truth values and conditional values."""

from __future__ import annotations

from tilewright.arith.rewrite import Rule, Table, wild
from tilewright.ir import (
    FALSE,
    TRUE,
    Add,
    And,
    Call,
    Max,
    Min,
    Not,
    Or,
    Select,
    Sub,
)
from tilewright.ir.op import OPS

p, q = wild("p", "bool"), wild("q", "bool")
x, y, z, w = wild("x"), wild("y"), wild("z"), wild("w")
_cond = OPS.get("if_then_else")


def _if(condition: object, then: object, other: object) -> Call:
    return Call.of_fields(_cond, (condition, then, other), "int64")


RULES = (
    Rule(Not(Not(p)), p),
    Rule(Not(TRUE), FALSE),
    Rule(Not(FALSE), TRUE),
    Rule(Not(And(p, q)), Or(Not(p), Not(q))),
    Rule(Not(Or(p, q)), And(Not(p), Not(q))),
    Rule(And(p, p), p),
    Rule(Or(p, p), p),
    Rule(And(p, TRUE), p),
    Rule(And(TRUE, p), p),
    Rule(Or(p, FALSE), p),
    Rule(Or(FALSE, p), p),
    Rule(And(p, Not(p)), FALSE),
    Rule(And(Not(p), p), FALSE),
    Rule(Or(p, Not(p)), TRUE),
    Rule(Or(Not(p), p), TRUE),
    Rule(And(p, Or(p, q)), p),
    Rule(And(p, Or(q, p)), p),
    Rule(Or(p, And(p, q)), p),
    Rule(Or(p, And(q, p)), p),
    Rule(Select(TRUE, x, y), x),
    Rule(Select(FALSE, x, y), y),
    Rule(Select(p, x, x), x),
    Rule(Select(p, TRUE, FALSE), p),
    Rule(Select(p, FALSE, TRUE), Not(p)),
    Rule(Select(Not(p), x, y), Select(p, y, x)),
    Rule(Select(p, Select(p, x, y), z), Select(p, x, z)),
    Rule(Select(p, x, Select(p, y, z)), Select(p, x, z)),
    Rule(Select(p, Select(q, x, y), y), Select(And(p, q), x, y)),
    Rule(Select(p, x, Select(q, x, y)), Select(Or(p, q), x, y)),
    Rule(_if(TRUE, x, y), x),
    Rule(_if(FALSE, x, y), y),
    Rule(_if(p, x, x), x),
    Rule(_if(Not(p), x, y), _if(p, y, x)),
    Rule(_if(p, _if(q, x, y), y), _if(And(p, q), x, y)),
    Rule(_if(p, x, _if(q, x, y)), _if(Or(p, q), x, y)),
)
TABLE = Table(RULES)

_FIRST, _SECOND = Select(p, x, y), Select(p, z, w)
CHOICES = Table(
    (
        Rule(Min(_FIRST, _SECOND), Select(p, Min(x, z), Min(y, w))),
        Rule(Max(_FIRST, _SECOND), Select(p, Max(x, z), Max(y, w))),
        Rule(Add(_FIRST, _SECOND), Select(p, Add(x, z), Add(y, w))),
        Rule(Sub(_FIRST, _SECOND), Select(p, Sub(x, z), Sub(y, w))),
    )
)
"""Two choices by one condition: one choice."""
