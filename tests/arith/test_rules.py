"""Every rule of every table, evaluated on both sides over small domains."""

from __future__ import annotations

import importlib
import itertools
import pkgutil

import pytest

from tests.arith.helpers import evaluate
from tilewright import arith
from tilewright.arith import Analyzer, rules_call, rules_float, rules_logic, rules_vector
from tilewright.arith.rewrite import WILD, Match, Rule, Table, match
from tilewright.ir import (
    Call,
    Cast,
    Expr,
    Mul,
    Ramp,
    Var,
    call,
    cast,
    const,
    expr_equal,
    free_vars,
    substitute,
)
from tilewright.ir.op import OPS


def values_of(var: Var) -> list[object]:
    if var.dtype == "bool":
        return [False, True]
    if WILD[var] == "const":
        return [0, 1, 3, 7, 12]
    if var.dtype == "float32":
        return [-1.5, -0.0, 0.0, 2.25, float("inf")]
    return [-7, -1, 0, 3, 8]


def instances(pattern: Expr):
    """The pattern with its constants filled in; its other wildcards stay variables."""
    variables = free_vars(pattern)
    constants = [var for var in variables if WILD[var] == "const"]
    others = [var for var in variables if WILD[var] != "const"]
    for chosen in itertools.product(*(values_of(var) for var in constants)):
        made = substitute(pattern, {v: const(c) for v, c in zip(constants, chosen)})
        yield made, others


def same(a: object, b: object) -> bool:
    return repr(a) == repr(b) if isinstance(a, float) else a == b


def declared_rules() -> dict[str, list[object]]:
    """Every rule of every ``rules_*`` module, by module, however its tables are called."""
    found: dict[str, list[object]] = {}
    for info in pkgutil.iter_modules(arith.__path__):
        if not info.name.startswith("rules_"):
            continue
        module = importlib.import_module(f"{arith.__name__}.{info.name}")
        rules = found.setdefault(info.name, [])
        for value in vars(module).values():
            items = value.rules if isinstance(value, Table) else value
            if isinstance(items, tuple):
                # A bare (pattern, result) pair is a rule as well.
                rules += [
                    item.pattern if isinstance(item, Rule) else item[0]
                    for item in items
                    if isinstance(item, (Rule, tuple))
                ]
    return found


SCALAR_TABLES = [
    pytest.param(rule, table, id=f"{name}-{index}")
    for name, table in (
        ("logic", rules_logic.TABLE),
        ("float", rules_float.TABLE),
        ("choices", rules_logic.CHOICES),
        ("call", rules_call.TABLE),
    )
    for index, rule in enumerate(table.rules)
]


@pytest.mark.parametrize("rule, table", SCALAR_TABLES)
def test_rule_keeps_the_value(rule, table):
    used = 0
    for pattern, others in instances(rule.pattern):
        for point in itertools.product(*(values_of(var) for var in others)):
            env = dict(zip(others, point))
            # Conditions ask the analyzer: let it know the sign that this point has.
            analyzer = Analyzer()
            for var, value in env.items():
                if var.dtype == "int64":
                    analyzer.bind(var, const(value))
            made = table.apply(pattern, analyzer)
            if made is None:
                continue
            used += 1
            assert same(evaluate(made, env), evaluate(pattern, env)), (pattern, made, env)
    assert used, f"{rule.pattern!r} never applied"


VECTOR_PATTERNS = [pattern for pattern, _ in rules_vector.BROADCAST_RULES]
VECTOR_PATTERNS += [pattern for pattern, _ in rules_vector.RAMP_RULES]
DIVISION_PATTERNS = [pattern for pattern, _ in rules_vector.DIVISION_RULES]
BASES = {"broadcasts": [-5, 2, 9], "divisions": [-8, -3, 0, 1, 4, 6, 12]}


def lanes_of(pattern: Expr, env) -> list[object]:
    """The value of a vector operation, computed lane by lane."""
    first, second = pattern.args if isinstance(pattern, Call) else (pattern.a, pattern.b)
    pairs = zip(evaluate(first, env), evaluate(second, env))
    if isinstance(pattern, Call):
        return [
            evaluate(Call.of_fields(pattern.op, (const(a), const(b)), "int64"), {})
            for a, b in pairs
        ]
    return [evaluate(type(pattern)(const(a), const(b)), {}) for a, b in pairs]


def applied_at(pattern: Expr, values) -> int:
    """How often a vector rule applied to one of these points; each time it must be right."""
    used = 0
    variables = free_vars(pattern)
    for point in itertools.product(values, repeat=len(variables)):
        env = dict(zip(variables, point))
        shifts = isinstance(pattern, Call) and pattern.op.name.startswith("shift")
        if shifts and not all(0 <= value < 64 for value in point):
            continue
        bound = substitute(pattern, {v: const(c) for v, c in env.items()})
        made = rules_vector.apply(bound, Analyzer())
        if made is not None:
            used += 1
            assert evaluate(made, {}) == lanes_of(pattern, env), (bound, made)
    return used


@pytest.mark.parametrize("pattern", VECTOR_PATTERNS, ids=repr)
def test_vector_rule_keeps_the_lanes(pattern):
    assert applied_at(pattern, BASES["broadcasts"])


@pytest.mark.parametrize("pattern", DIVISION_PATTERNS, ids=repr)
def test_divided_ramp_keeps_the_lanes(pattern):
    assert applied_at(pattern, BASES["divisions"])


def test_no_table_is_forgotten():
    declared = declared_rules()
    assert declared and all(declared.values()), "a rules module without a rule"
    tested = (
        [param.values[0].pattern for param in SCALAR_TABLES] + VECTOR_PATTERNS + DIVISION_PATTERNS
    )
    known = set(map(id, tested))
    for name, patterns in declared.items():
        for pattern in patterns:
            assert id(pattern) in known, f"{name}: {pattern!r} is evaluated by no test"


def test_rules_live_in_rules_modules():
    """Tables elsewhere would escape the evaluation above."""
    for info in pkgutil.iter_modules(arith.__path__):
        module = importlib.import_module(f"{arith.__name__}.{info.name}")
        tables = [name for name, value in vars(module).items() if isinstance(value, Table)]
        assert not tables or info.name.startswith("rules_"), (info.name, tables)


def test_repeated_wildcards_must_match_the_same():
    a, b = Var("a"), Var("b")
    pattern = Mul(rules_call.x, rules_call.x)
    assert match(pattern, Mul(a, a), Match())
    assert not match(pattern, Mul(a, b), Match())


def test_ramp_times_broadcast():
    a = Var("a")
    vector = Ramp(a, const(1), 8) * 4 + 2
    made = Analyzer().simplify(vector)
    assert expr_equal(made, Ramp(a * 4 + 2, const(4), 8))


def test_widening_casts_collapse():
    a = Var("a", "int8")
    made = Analyzer().simplify(Cast("int32", Cast("int16", a)))
    assert expr_equal(made, cast(a, "int32"))
    narrowing = Cast("int32", Cast("int8", Var("b", "int32")))
    assert Analyzer().simplify(narrowing) is narrowing


def test_effects_stay():
    effect = call("call_extern", "f", dtype="int64")
    a = Var("a")
    product = Mul(effect, const(0))
    assert Analyzer().simplify(product) is product
    twice = effect - effect
    assert (
        any(
            isinstance(item, Call) and item.op is OPS.get("call_extern")
            for item in Analyzer().simplify(twice + a - a).child_nodes()
        )
        or Analyzer().simplify(twice) is twice
    )
