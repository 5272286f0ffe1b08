"""Annotations that something reads: what they may be, and that nothing else gets to the readers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import dlight, relax, script, te, topi
from tilewright.ir import GLOBAL_SYMBOL, IRModule, const
from tilewright.relax.analysis import verify_graph
from tilewright.relax.transform.annotate_pattern import OP_PATTERN
from tilewright.support.errors import ScheduleError, TilewrightError, VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.attrs import ON_ATTRIBUTES, ON_FUNCTIONS, ON_STATEMENTS, TABLES
from tilewright.tir.schedule import Schedule

ODD = (
    "None",
    "True",
    "1.5",
    '"x"',
    "[]",
    "[[]]",
    "{}",
    "-1",
    "3",
    "2 ** 31",
    "10 ** 30",
    "[-1]",
    "[7]",
    "[1.5]",
    "[[0, 9, 2, 1]]",
    "[[0, 0, 2, 5]]",
    '{"a": [None, {"b": 1.5}]}',
    "T.float32(1.5)",
    'T.int32(-3)',
)  # fmt: skip

OPTIONS = {
    "sort": {
        "axis": 0, "is_ascend": True, "returns": "values", "count": -1, "index_dtype": "int64",
    },
    "attention": {
        "layouts": ["BHSD"] * 4, "scale": 0.5, "causal_mask": None, "has_mask": False,
    },
    "dense_int4": {"stages": 4, "activation_bits": 0},
}  # fmt: skip

TEXT = """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    T.func_attr({function})
    for i in T.serial(8, annotations={loop}):
        for j in range(8):
            with T.block("attention"):
                T.block_attr({block})
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
"""


def program(loop: str = "{}", block: str = "{}", function: str = "{}") -> PrimFunc:
    # `format` would take the braces of the values for its own.
    made = TEXT.replace("{function}", function).replace("{loop}", loop).replace("{block}", block)
    func: Any = script.parse(made)
    return func


def is_right_or_refused(**where: str) -> bool:
    """Whether a program compiles and computes what it says; anything but a refusal is raised."""
    try:
        func = program(**where)
        verify(func)
        target = Target("native")
        with target:
            mod = dlight.default_schedule()(IRModule({"main": func}))
        for item in (func, mod):
            kernel = tilewright.compile(item, target=target)
            a = np.arange(64, dtype="float32").reshape(8, 8)
            b = np.zeros_like(a)
            kernel["main"](a, b)
            np.testing.assert_array_equal(b, a * 2)
    except TilewrightError:
        return False
    return True


def spelled(key: str, value: str) -> str:
    return f"{{{key!r}: {value}}}"


@pytest.mark.parametrize("key", sorted(ON_STATEMENTS))
def test_odd_values_on_blocks_and_loops_are_right_or_refused(key: str) -> None:
    results = [
        is_right_or_refused(**{where: spelled(key, value)})
        for value in ODD
        for where in ("block", "loop")
    ]
    assert not all(results)


@pytest.mark.parametrize("key", sorted(ON_FUNCTIONS))
def test_odd_values_on_functions_are_right_or_refused(key: str) -> None:
    results = [is_right_or_refused(function=spelled(key, value)) for value in ODD]
    assert not all(results)


@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_odd_fields_of_options_are_right_or_refused(key: str) -> None:
    right = OPTIONS[key]
    assert is_right_or_refused(block=spelled(key, repr(right)))
    for field in right:
        rest = {name: value for name, value in right.items() if name != field}
        assert not is_right_or_refused(block=spelled(key, repr(rest)))
        for value in ODD:
            odd = repr(rest)[:-1] + f", {field!r}: {value}}}"
            is_right_or_refused(block=spelled(key, odd))


def test_keys_that_nothing_reads_hold_anything() -> None:
    for value in ODD:
        assert is_right_or_refused(block=spelled("note", value), loop=spelled("note", value))


@pytest.mark.parametrize("key", sorted(ON_ATTRIBUTES))
def test_odd_values_of_attribute_statements_are_refused(key: str) -> None:
    text = "@T.prim_func\ndef main():\n    T.attr(0, {key!r}, {value})\n    T.evaluate(0)\n"
    verify(script.parse(text.format(key=key, value=1)))
    verify(script.parse(text.format(key="note", value="'far'")))
    for value in ("-1", "'x'", "1.5", "2 ** 31"):
        with pytest.raises(VerifyError, match=f"attribute '{key}' takes an integer from 0"):
            verify(script.parse(text.format(key=key, value=value)))


@pytest.mark.parametrize("value", [3, {3: 1}, {"c": 1}, [1]])
def test_constants_of_modules_are_arrays(value: Any) -> None:
    mod = IRModule({"main": program()}, {"note": value, "constants": value})
    with pytest.raises(VerifyError, match="'constants' takes a dict of arrays of numbers"):
        tilewright.compile(mod)


@pytest.mark.parametrize(("key", "value"), [("Primitive", "yes"), ("global_symbol", 3)])
def test_attributes_of_graph_functions(key: str, value: Any) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.abs(x)))
    func = builder.get()["main"]
    verify_graph(IRModule({"main": func.with_attr("note", value)}))
    with pytest.raises(VerifyError, match=f"'main': attribute '{key}' takes"):
        verify_graph(IRModule({"main": func.with_attr(key, value)}))


def test_an_error_says_what_was_expected_and_found_and_where() -> None:
    with pytest.raises(VerifyError) as caught:
        verify(program(block=spelled("sort", '{"axis": 1.5}')))
    said = str(caught.value)
    assert "block 'attention': annotation 'sort' takes a dict of 'axis': an integer from 0" in said
    assert "found {'axis': 1.5} (dict)" in said
    assert "^^^" in said


def test_annotate_refuses_what_verify_would() -> None:
    sch = Schedule(program())
    loop = sch.get_loops("attention")[0]
    with pytest.raises(ScheduleError, match="'software_pipeline_stage' takes a list, each entry"):
        sch.annotate(loop, "software_pipeline_stage", 1)
    with pytest.raises(ScheduleError, match="'double_buffer_scope' takes the position of one of"):
        sch.annotate(sch.get_block("attention"), "double_buffer_scope", 1)
    sch.annotate(sch.get_block("attention"), "double_buffer_scope", 0)


@pytest.mark.parametrize(
    "changed", [{"axis": 2}, {"axis": 1}, {"count": 9}, {"is_ascend": False}, {"returns": "both"}]
)
def test_a_sort_with_other_options_is_what_its_body_says(changed: dict[str, Any]) -> None:
    x = te.placeholder((4, 8), "float32", "x")
    func = te.create_prim_func([x, topi.sort(x, axis=0)])
    head, found, tail = script.to_text(func).partition('"sort": {')
    assert found
    mark = {**OPTIONS["sort"], **changed}
    changed_func: Any = script.parse(head + f'"sort": {mark!r}' + tail.partition("}")[2])
    with Target("native") as target:
        mod = dlight.default_schedule()(IRModule({"main": changed_func}))
    kernel = tilewright.compile(mod, target=target)
    a = np.random.default_rng(0).random((4, 8), dtype="float32")
    b = np.zeros_like(a)
    kernel["main"](a, b)
    np.testing.assert_array_equal(b, np.sort(a, axis=0))


def test_readers_of_attributes_are_in_the_table() -> None:
    assert {OP_PATTERN, "relax.reshape", "tir.kernel_abi"} <= set(ON_FUNCTIONS)
    assert {"sort", "attention", "resize", "scan", "winograd_tile", "dense_int4"} <= set(
        ON_STATEMENTS
    )
    assert const(1).dtype == "int64"


SOURCE = Path(tilewright.__file__).parent
#: Keys that are words of other things too, so that a literal is one only where attributes are.
WORDS = {
    "Primitive", "attention", "constants", "dense_int4", "resize", "scan", "sort", "tensor_intrin",
}  # fmt: skip
KEYS = {key: entry for table in TABLES.values() for key, entry in table.items()}


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Modules that have a key as a literal, as syntax trees."""
    literals = [f'"{key}"' for key in KEYS]
    texts = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    return {p: ast.parse(t) for p, t in texts.items() if any(key in t for key in literals)}


def keys_written_out(tree: ast.AST) -> set[str]:
    """Keys that a module writes as literals, but where it registers them or names a constant."""
    allowed, found = set(), set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Call) and ast.unparse(item.func).startswith(("register_", "on_")):
            allowed.update(map(id, item.args[:1]))
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "GLOBAL_SYMBOL":
            allowed.add(id(item.value))
    for item in ast.walk(tree):
        near: list[ast.AST] = [item]
        if isinstance(item, ast.Subscript) and _holds_attributes(item.value):
            near = [item.slice]
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
            if _holds_attributes(item.func.value) or item.func.attr in ("annotate", "with_attr"):
                near = list(item.args)
        elif isinstance(item, ast.Compare) and _holds_attributes(item.comparators[0]):
            near = [item.left]
        for one in near:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                key = one.value
                if key in KEYS and id(one) not in allowed and (key not in WORDS or one is not item):
                    found.add(key)
    return found


def _holds_attributes(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("attrs", "annotations")


@pytest.mark.parametrize(
    "text", ['x.get("auto_copy")', 'f.attrs["constants"]', '"scan" in b.annotations']
)
def test_a_key_written_out_is_found(text: str) -> None:
    assert keys_written_out(ast.parse(text))


def test_keys_are_written_out_only_where_they_are_defined(trees: dict[Path, ast.Module]) -> None:
    found = {
        str(path.relative_to(SOURCE)): keys
        for path, tree in trees.items()
        if (keys := keys_written_out(tree))
    }
    assert found == {}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_key_says_who_reads_it_and_what_it_means(key: str, trees: dict[Path, ast.Module]) -> None:
    entry = KEYS[key]
    assert entry.means.endswith(".") and entry.takes.expected
    (constant,) = {
        target.id
        for tree in trees.values()
        for item in ast.iter_child_nodes(tree)
        if isinstance(item, ast.Assign)
        and isinstance(target := item.targets[0], ast.Name)
        and _defines(item.value, key)
    }
    assert entry.read_by
    for module in entry.read_by:
        file = SOURCE.joinpath(*module.split("."))
        path = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        tree = trees.get(path) or ast.parse(path.read_text())
        used = {item.id for item in ast.walk(tree) if isinstance(item, ast.Name)}
        assert constant in used, f"{module} doesn't read {constant}"


def _defines(value: ast.AST, key: str) -> bool:
    if isinstance(value, ast.Call) and ast.unparse(value.func).startswith(("register_", "on_")):
        value = value.args[0]
    elif key != GLOBAL_SYMBOL:
        return False
    return isinstance(value, ast.Constant) and value.value == key
