"""Rules for truth values and conditional values."""

from __future__ import annotations

from tilewright.arith.rewrite import Match, Rule, Table, wild, wild_const
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
    call,
)
from tilewright.ir.op import OPS

p, q = wild("p", "bool"), wild("q", "bool")
c1 = wild_const("c1")
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
_QUOTIENT, _OTHER = call("truncdiv", x, c1), call("truncdiv", y, c1)


def _rises(m: Match, _: object) -> bool:
    return bool(m.c1 > 0)


CHOICES = Table(
    (
        Rule(Min(_FIRST, _SECOND), Select(p, Min(x, z), Min(y, w))),
        Rule(Max(_FIRST, _SECOND), Select(p, Max(x, z), Max(y, w))),
        Rule(Add(_FIRST, _SECOND), Select(p, Add(x, z), Add(y, w))),
        Rule(Sub(_FIRST, _SECOND), Select(p, Sub(x, z), Sub(y, w))),
        Rule(Min(_QUOTIENT, _OTHER), call("truncdiv", Min(x, y), c1), _rises),
        Rule(Max(_QUOTIENT, _OTHER), call("truncdiv", Max(x, y), c1), _rises),
    )
)
"""Two choices by one condition: one choice. Two quotients by one number: one quotient."""
