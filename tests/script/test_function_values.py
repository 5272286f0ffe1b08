"""Index maps, reducers and free axes in annotations and attributes print and parse back."""

from __future__ import annotations

import pytest

from tilewright import script
from tilewright.ir import (
    INDEX,
    Range,
    StringImm,
    Var,
    assert_structural_equal,
    const,
    first_difference,
    node_at,
)
from tilewright.support.errors import TilewrightError
from tilewright.tir import (
    NO_OP,
    AttrStmt,
    Block,
    BlockRealize,
    Evaluate,
    For,
    IndexMap,
    IterVar,
    PrimFunc,
)
from tilewright.tir.reducer import REDUCERS


def check(node: object) -> str:
    text = script.to_text(node)
    back = script.parse(text)
    assert_structural_equal(back, node)
    assert script.to_text(back) == text
    return text


def annotated(value: object) -> PrimFunc:
    loop = For(Var("i", INDEX), const(0), const(4), "serial", NO_OP, None, {"about": value})
    block = Block((), (), (), "root", loop, None, (), (), {"more": [value, 1]})
    body = BlockRealize((), const(True, "bool"), block)
    return PrimFunc((), body, attrs={"of": {"function": value}})


def separator() -> IndexMap:
    return IndexMap.from_func(lambda i, j: (i // 16, IndexMap.AXIS_SEPARATOR, j, i % 16))


def test_index_map() -> None:
    text = check(annotated(separator()))
    assert "T.index_map(lambda i, j: [i // 16, T.AXIS_SEPARATOR, j, i % 16])" in text


def test_index_map_with_inverse() -> None:
    made = IndexMap.from_func(
        lambda i: (i // 4, i % 4), inverse_index_map=IndexMap.from_func(lambda a, b: a * 4 + b)
    )
    assert "inverse_index_map=T.index_map(lambda a, b: [a * 4 + b])" in check(annotated(made))


def test_index_map_of_nothing_and_of_other_dtypes() -> None:
    check(annotated(IndexMap((), (const(0),))))
    i = Var("i", "int32")
    assert 'dtype="int32"' in check(annotated(IndexMap((i,), (i + 1, i))))
    mixed = IndexMap((i, Var("j", "int64")), (i,))
    with pytest.raises(TilewrightError, match="several dtypes"):
        script.to_text(annotated(mixed))


@pytest.mark.parametrize("name", [name for name, _ in REDUCERS.items()])
def test_reducers(name: str) -> None:
    for dtypes in (("float32",), ("int32",), ("bool",), ("int64", "float32"), ("int32", "int32")):
        try:
            made = REDUCERS.get(name)(*dtypes)
        except TilewrightError:
            continue  # not a reducer of such tuples
        assert "T.comm_reducer(lambda" in check(annotated(made))
        return
    raise AssertionError(f"reducer {name} takes none of the dtypes tried")


def test_reducer_errors_name_the_count() -> None:
    with pytest.raises(TilewrightError, match="takes 2 parameters, not 3"):
        script.parse(
            "from tilewright.script import tir as T\n"
            "@T.prim_func\ndef main():\n"
            '    T.func_attr({"r": T.comm_reducer(lambda x, y, z: [x + y], [T.float32(0)])})\n'
            "    T.evaluate(0)\n"
        )


def test_free_axis() -> None:
    var = Var("tx", INDEX)
    axis = IterVar(Range.from_min_extent(const(0), const(32)), var, "opaque")
    stmt = AttrStmt(axis, "thread_extent", const(32), Evaluate(var + 1))
    text = check(PrimFunc((), stmt))
    assert 'T.attr(T.iter_var(tx, (0, 32), "opaque"), "thread_extent", 32)' in text


def test_text_stays_text() -> None:
    assert '"lambda i: i"' in check(annotated("lambda i: i"))
    check(annotated(StringImm("x")))


def test_paths_mark_nodes() -> None:
    func = annotated("x")
    text = script.to_text(
        func,
        underline=["<root>.body.block.body.loop_var"],
        annotate={"body.block.body": "here"},
    )
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines) if "for i in" in line)
    assert "# here" in lines[at]
    assert lines[at + 1].strip() == "^" and lines[at + 1].index("^") == lines[at].index("i in")
    with pytest.raises(TilewrightError, match=r"ends at <root>\.body: .* has no \.blok"):
        script.to_text(func, underline=["<root>.body.blok"])


def test_first_difference_is_a_path() -> None:
    a, b = annotated(["x", 1]), annotated(["x", 2])
    found = first_difference(a, b)
    assert found is not None
    path = found.split(": ")[0]
    assert (node_at(a, path), node_at(b, path)) == (1, 2)
