"""Text that isn't the user's own can't reach anything but the dialects, nor compute for long."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import types

import pytest

from tilewright import script
from tilewright.ir import Node, Op
from tilewright.relax.expr import ConstantData
from tilewright.relax.script.declarations import Dataflow
from tilewright.script import allowance
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.script.allowance import BASE_WORK, MAX_WORK, WORK_PER_NODE, Budget
from tilewright.script.diagnostics import Source
from tilewright.script.evaluator import Evaluator, Lambda
from tilewright.script.scope import DIALECTS, Scope
from tilewright.support.errors import ParseError
from tilewright.target import Target
from tilewright.tir.script.declarations import InitDecl, SeqDecl
from tilewright.tir.script.scalars import LetAnnotation

# ---- execution --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "T.evaluate(T.macro(T.serial).captured['__builtins__']['eval']('1'))",
            "T.macro can't be used",
        ),
        ("'{0.__globals__[Any].__module__}'.format(T.serial)", "has no 'format'"),
        ("T.prim_func(T.serial)", "T.prim_func can't be used"),
        ("T.prim_func.decorate(T.serial, 2)", "T.prim_func can't be used"),
        ("T.prim_func(root=False).decorate(T.serial, 1)", "T.prim_func can't be used"),
        ("I.ir_module(T.serial)", "I.ir_module can't be used"),
        ("I.ModuleReference('M', ['f']).functions", "I.ModuleReference can't be used"),
        ("T.ScalarType('float32')", "T.ScalarType can't be used"),
        ("x = T.evaluate", "may not use a function as a value"),
        ("x = T", "may not use a module as a value"),
        ("T.index_map(T.grid)", "may not use a function as a value"),
        ("sorted([1], key=T.evaluate)", "may not use a function as a value"),
        ("T.serial.__globals__", "has no '__globals__'"),
        ("T.float32.__init__.__globals__", "has no '__init__'"),
        ("(lambda: 1).__call__", "has no '__call__'"),
        ("(lambda: 1)._evaluator", "has no '_evaluator'"),
        ("T.float32(1)._contents", "has no '_contents'"),
        ("T.annotations", "T has no 'annotations'"),
        ("R.OPERATORS.register('x', 1)", "R has no 'OPERATORS'"),
        ("R.operator('x')(lambda: 1)", "R has no 'operator'"),
        ("int.from_bytes", "has no 'from_bytes'"),
        ("dict[int]", "may not use a function as a value"),
        ("type(1)", "undefined variable 'type'"),
        ("getattr(T, 'x')", "undefined variable 'getattr'"),
        ("__builtins__", "undefined variable '__builtins__'"),
        ("__import__('os')", "undefined variable '__import__'"),
        ("A = T.Buffer(('open(\"x\")',))", "open can't be called"),
        ("@T.macro(T.serial)\ndef f():\n    pass", "takes options by name"),
        ("@T.evaluate\ndef f():\n    pass", "is no decorator"),
        ("@(lambda: 1)\ndef f():\n    pass", "is no decorator"),
        ("@T.prim_func\ndef f(x: 'open(1)'):\n    pass", "undefined variable 'open'"),
        (
            "@T.macro\ndef f(x=open('y')):\n    pass\n@T.prim_func\ndef g():\n    f()",
            "undefined variable 'open'",
        ),
    ],
)
def test_what_does_not_resolve(text, message):
    with pytest.raises(ParseError) as info:
        script.parse(text)
    assert message in info.value.message
    assert "<script>:" in info.value.message


# What text may have as a value, said again here on purpose.
VALUES = (
    type(None), bool, int, float, str, bytes, type(...), list, tuple, dict, set, range, slice,
    Node, Op, Target, Lambda, LetAnnotation, InitDecl, SeqDecl, Dataflow, T.ScalarType,
    ConstantData, I.ModuleReference, types.SimpleNamespace, type(I.module_attrs({})),
)  # fmt: skip
ARGUMENTS = (
    "", "0", "4", "1.5", "'x'", "'float32'", "'add'", "[]", "(4, 4)", "{'k': 1}", "None", "x", "A",
    "A[0:2, 0:4]", "v", "v, v", "x, x", "x, 4", "4, x", "x, x, x", "A, (4, 4)", "(4, 4), 'int8'",
    "'int8', x", "lambda a: [a]", "lambda a, b: [a + b], [x]", "x, (0, 4), 'spatial'", "tensor",
    "tensor, tensor", "[tensor, tensor]", "tensor, (16,)", "tensor, 0", "M", "M.f", "'SR', [x, x]",
    "'llvm -mcpu=znver4 -num-cores=2'", "x < 4, x, x", "x, {}", "'call_extern', 'f', dtype='int32'",
    "M.f, (tensor,), R.Tensor((4, 4))", "*[x]", "**{'dtype': 'int32'}",
)  # fmt: skip


def evaluator(**names):
    return Evaluator(Source(""), scope_with(**names))


def scope_with(**names):
    scope = Scope({}, Budget())
    scope.frames[0].update(given_names(), **names)
    return scope


@functools.cache
def given_names():
    made = Evaluator(Source(""), Scope({}, Budget()))
    texts = {"x": "T.int64()", "A": "T.Buffer((4, 4))", "tensor": "R.zeros((4, 4), 'float32')"}
    found = {name: made.eval(expression(text)) for name, text in texts.items()}
    return {**found, "M": I.ModuleReference("M", ["f"])}


def expression(text):
    return ast.parse(text, mode="eval").body


def is_allowed(value):
    ours = dataclasses.is_dataclass(value) and ".script." in type(value).__module__
    if isinstance(value, (list, tuple, set)):
        return all(map(is_allowed, value))
    if isinstance(value, dict):
        return all(is_allowed(item) for pair in value.items() for item in pair)
    if isinstance(value, type):
        return value is T.axis
    return isinstance(value, VALUES) or ours


NODES = {text: ast.parse(f"v({text})", mode="eval").body for text in ARGUMENTS}


def results_of(text, value, seen):
    """What an expression about ``v`` gives, and what it gives when called."""
    names = evaluator(v=value)
    node = expression(text)
    nodes = [node]
    try:
        called = names.named(node)
    except ParseError:
        return
    if callable(called):
        # Operators share the code that makes their calls: two of them get all arguments.
        code = getattr(called, "__code__", type(called))
        seen[code] = seen.get(code, 0) + 1
        for call in [NODES[item] for item in (ARGUMENTS if seen[code] < 3 else ("x", "tensor"))]:
            nodes.append(ast.copy_location(ast.Call(node, call.args, call.keywords), call))
    for item in nodes:
        try:
            yield names.eval(item)
        except ParseError:
            continue


def test_nothing_else_is_reachable():
    """Walks everything from the dialects' names: attributes, calls, items, whatever they give."""
    todo = [("v." + name, alias) for alias, _ in DIALECTS.values() for name in names_of(alias)]
    pending = [(text, evaluator().named(expression(alias))) for text, alias in todo]
    pending += [(name, None) for name in dir(builtins)]
    seen, codes = set(), {}
    count = 0
    while pending:
        text, value = pending.pop()
        for made in results_of(text, value, codes):
            count += 1
            assert is_allowed(made), (text, value, made)
            if (key := (type(made), text if isinstance(made, Node) else "")) in seen:
                continue
            seen.add(key)
            pending += [(f"v.{name}", made) for name in dir(made)]
            pending += [("v", made), ("v[0]", made), ("v['k']", made), ("v + v", made)]
    assert count > 300


def names_of(alias):
    module = evaluator().named(expression(alias))
    return sorted({*dir(module), *vars(module)})


def test_values_of_the_caller_are_no_way_out():
    given = {"helper": lambda: 3, "module": builtins, "items": {"run": eval}}
    assert script.parse("T.int32(helper())", given).value == 3
    for text in ("module.eval('1')", "x = module", "items['run']('1')", "x = helper"):
        with pytest.raises(ParseError):
            script.parse(text, given)


def test_functions_of_the_user_keep_what_they_capture():
    limits = types.SimpleNamespace(extent=8, name="block of {}".format)

    @T.prim_func
    def func(A: T.Buffer((limits.extent,), "float32")):
        for i in range(limits.extent):
            with T.block(limits.name("A")):
                A[T.axis.spatial(8, i) if False else 0] = 1.0

    assert "block of A" in func.script()


# ---- time and memory --------------------------------------------------------------------------

HEAD = "A = T.Buffer((64,))\nn = T.int64()\n"


@pytest.mark.parametrize(
    "text",
    [
        "x = [0 for i in range(10**12)]",
        "x = [0 for a in range(1000) for b in range(1000) for c in range(1000)]",
        "x = any(0 for i in range(10**9))",
        "x = list(range(10**12))",
        "x = tuple(range(10**30))",
        "x = pow(3, 10**8)",
        "x = 3 ** 10**8",
        "x = 1 << 10**9",
        "x = round(5, -10**9)",
        "x = 10**4000 * 10**4000",
        "x = int('9' * 5000)",
        "x = 'a' * 10**10",
        "x = 10**10 * [0]",
        "x = ['a' * 200000 for i in range(1000)]",
        "x = f'{1:>9999999999}'",
        "x = f'{1.5:.9999999999f}'",
        "x = f'{1:\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669}'",  # digits too
        "x = [pow(3, 1 << 4090, (1 << 4094) + 1) for i in range(100)]",
        "x = '%9999999999d' % 1",
        "x = {i * (2**61 - 1) for i in range(50000)}",
        "x = dict([(i * (2**61 - 1), 0) for i in range(50000)])",
        "x = sum([[0]] * 50000, [])",
        "x = 'a' in range(10**12)",
        "x = (lambda f: f(f))(lambda f: f(f))",
        "x = (lambda f: [f(f) for i in range(10)])(lambda f: [f(f) for i in range(10)])",
        "x = " + "-" * 20_000 + "1",
        "x = " + "not " * 20_000 + "1",
        "x = " + "(" * 5_000,
        "x = " + "1 + (" * 180 + "1" + ")" * 180 + " + " + "-" * 400 + "n",
        "A = T.Buffer(('" + "-" * 20_000 + "1',))",
        "x = [1]\n" + "x = [x, x]\n" * 60 + "T.evaluate(str(x))",
        "n = T.int32()\n" + "n = T.meta_var(n + n)\n" * 60 + "T.evaluate(n)",
        "for i in T.grid(*[2] * 10**9):\n    pass",
        "x = [0]\nfor i in x * 10**6:\n    T.evaluate(0)",
        "@T.macro\ndef a():\n    T.evaluate(0)\n"
        + "".join(f"@T.macro\ndef {b}():\n    {a}()\n    {a}()\n" for a, b in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu"))  # noqa: E501
        + "u()",
        "x = R.split(R.zeros((10**9,), 'float32'), 10**9)",
        "y = R.zeros((400,), 'float32')\nx = [R.split(y, 400) for i in range(10000)]",
        "y = R.zeros((4, 4), 'float32')\nx = [R.matmul(y, y) for i in range(10000)]",
        "x = [T.target('llvm') for i in range(10000)]",
        "for i in [0] * 1000:\n    T.Buffer(('(4 if 1 else [" + "n," * 5000 + "])',))",
        "\x00",
        "x = '\ud800'",
        "T.float32(1j)",
    ],
)  # fmt: skip
def test_what_costs_too_much_is_refused(text):
    with pytest.raises(ParseError) as info:
        script.parse(text)
    assert "<script>:" in info.value.message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("f'{n:>5}'", "numbers and text take a format"),
        ("f'{None:5}'", "numbers and text take a format"),
        ("f'{1:{2:{3}}}'", "not valid Python|the format '  2' doesn't fit"),  # since Python 3.12
        ("f'{1:q}'", "the format 'q' doesn't fit"),
        ("T.evaluate(**{1: 1})", "name of an argument is text"),
        ("{[1]: 1}", "a key can't change"),
        ("{(1, [2]): 1}", "a key can't change"),
        ("{i: [] for i in [[1]]}", "a key can't change"),
        ("(lambda a: a)()", "takes 1 arguments, got 0"),
        ("(lambda a: a)(a=1)", "by their places"),
        ("(lambda a=1: a)", "parameters by position"),
        ("{'a': 1}['b']", "there is no key 'b'"),
        ("[1, 2][10**30]", "there is no item"),
        ("[1, 2]['a']", "an index of a list is an integer"),
        ("[1, 2][n]", "an index of a list is an integer"),
        ("[1, 2][0:n]", "an index of a list is an integer"),
        ("range(1 << 64)[1 << 70]", "there is no item"),
        ("n[0]", "a Var has no items"),
        ("A[0][0]", "a BufferLoad has no items"),
        ("T.grid[0]", "may not use a function as a value"),
        ("(y := 1)", "NamedExpr has no meaning"),
        ("[i async for i in n]", "outside async function|not valid Python|can't be iterated"),
        ("{1, 2}", "Set has no meaning"),
        ("1e999 // 1j", "may not use a complex"),
        ("A[b'a']", "got bytes"),
        ("k" * 10**6, r"undefined variable 'kkk.* \.\.\. .*kkk'"),
        ("T." + "k" * 10**6, r"has no 'kkk.* \.\.\. "),
    ],
)
def test_errors_say_what_is_wrong_with_the_text(expression, message):
    with pytest.raises(script.ScriptError, match=message) as info:
        script.parse(f"{HEAD}x = {expression}")
    assert len(info.value.message) < 5000
    assert "Error:" not in info.value.message


def test_items_of_plain_containers():
    for expression, value in {
        "[1, 2, 3][-1]": 3, "[1, 2, 3][1:][0]": 2, "(5, 6)[True + 0]": 6, "range(9)[::4][1]": 4,
        "{'a': 7}['a']": 7, "{(1, 'x'): 8}[1, 'x']": 8,
    }.items():  # fmt: skip
        assert script.parse(f"T.evaluate({expression})").value.value == value


def test_short_modular_powers_are_computed():
    assert script.parse("T.evaluate(pow(3, 200, 1000))").value.value == pow(3, 200, 1000)
    with pytest.raises(ParseError, match="takes integers"):
        script.parse("T.evaluate(pow(T.int32(3), 2, 7))")


@pytest.mark.parametrize("header", ["(T.serial)", "(metaclass=T.serial)", "(1, x=2)"])
def test_modules_take_no_bases_and_no_options(header):
    with pytest.raises(ParseError, match="no base classes"):
        script.parse(f"@I.ir_module\nclass M{header}:\n    pass")


@pytest.mark.parametrize("key", ["n", "(n,)", "n + 1"])
def test_symbols_are_no_keys_of_attributes(key):
    """They would print as another program: an attribute defines no symbol."""
    text = f"""
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    T.func_attr({{"sizes": {{{key}: 1}}}})
    T.evaluate(0)
"""
    with pytest.raises(ParseError, match="the attribute 'sizes' can't hold"):
        script.parse(text)


def test_products_of_sums_stay_as_they_are_written():
    index = " * ".join(["(n + a + b + c + 1)"] * 20)
    head = "".join(f"{name} = T.int64()\n" for name in "nabc") + "A = T.Buffer((64,))\n"
    made = script.parse(f"{head}with T.block('b'):\n    T.reads(A[{index}:5])\n    T.evaluate(0)")
    assert script.to_text(made).count("n + a + b + c + 1") >= 20


def test_a_program_of_any_length_may_be_parsed():
    lines = "".join(f"    A[{k}] = T.float32({k}) + B[{k}] * T.float32(2)\n" for k in range(3000))
    head = "@T.prim_func\ndef main(A: T.Buffer((3000,)), B: T.Buffer((3000,))):\n"
    assert len(script.parse(head + lines).body.stmts) == 3000


def steps_of(text):
    """How many steps a text may take, by what the refusal says."""
    with pytest.raises(ParseError, match="takes more than") as info:
        script.parse(text + "x = [0 for i in range(10**12)]")
    return int(info.value.message.split("more than ")[1].split()[0])


def test_the_bound_grows_with_syntax_only():
    least = steps_of("")
    assert least - BASE_WORK < 20 * WORK_PER_NODE
    assert steps_of("a = 1\n" * 100) == least + 300 * WORK_PER_NODE
    for padding in ("# " + "n " * 100_000, "'" + "n " * 100_000 + "'", "\n" * 100_000):
        assert steps_of(padding + "\n") <= least + 2 * WORK_PER_NODE


def test_the_bound_has_an_end():
    budget = Budget(lambda: MAX_WORK)
    with pytest.raises(ParseError, match=f"takes more than {MAX_WORK} steps"):
        budget.spend(MAX_WORK + 1)


def test_text_that_makes_a_huge_tree_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(allowance, "MAX_SIGNS", 1000)
    text = "# " + "n" * 2000 + " " * 2000 + "\nT.evaluate(1)"
    assert script.parse(text).value.value == 1  # long, and yet of few signs
    monkeypatch.setattr(ast, "parse", lambda *_, **__: pytest.fail("was read"))
    for text in ("x\n" * 501, "[" * 1001, "# a b" * 500):
        with pytest.raises(script.ScriptError, match="1000 words and signs, not more"):
            script.parse(text)


def test_items_of_a_long_list_cost_one_step_each():
    constants = {str(k): k for k in range(20_000)}
    lines = "".join(f"    T.evaluate(metadata['{k}'])\n" for k in range(1000))
    head = "@T.prim_func\ndef main():\n"
    assert len(script.parse(head + lines, {"metadata": constants}).body.stmts) == 1000


def test_errors_name_lines_as_python_counts_them():
    with pytest.raises(script.ScriptError) as info:
        script.parse("x = 1\rT.foo")
    assert (info.value.line, info.value.column) == (2, 2)
