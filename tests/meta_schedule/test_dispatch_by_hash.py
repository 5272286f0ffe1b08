"""Functions written by hand replace those of the same structural hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, graph, random, symbol, tensor
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.support.errors import TuneError
from tilewright.tir import PrimFunc, Schedule


def program(rows: Any = 8) -> IRModule:
    mod = graph(lambda x: op.exp(x), tensor((rows, 4)))
    return relax.get_pipeline("zero")(mod)


def kernel(mod: IRModule) -> tuple[str, PrimFunc]:
    ((name, func),) = [(n, f) for n, f in mod.functions.items() if isinstance(f, PrimFunc)]
    return name, func


def scheduled(func: PrimFunc) -> str:
    sch = Schedule(func)
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    sch.vectorize(sch.get_loops(block)[-1])
    return sch.mod["main"].script()


@pytest.mark.parametrize("rows", [8, "n"])
def test_a_function_of_the_same_hash_is_replaced(tmp_path: Path, rows: Any) -> None:
    mod = program(symbol("n") if rows == "n" else rows)
    name, func = kernel(mod)
    file = t.DispatchByHash.file_name(func, "exp")
    assert file.startswith("exp.") and file.endswith(".py")
    (tmp_path / file).write_text(scheduled(func))
    (tmp_path / "notes.txt").write_text("not looked at")
    (tmp_path / "other.0123.py").write_text("neither this")
    made = t.DispatchByHash(tmp_path)(mod)
    assert "vectorized" in made[name].script() and made[name].attrs["tir.is_scheduled"]
    agree(mod, made, random(8, 4))
    result = relax.build(made, "llvm")["main"](random(8, 4)).numpy()
    np.testing.assert_allclose(result, np.exp(random(8, 4)), rtol=1e-5)
    assert t.DispatchByHash(tmp_path)(made) is made


def test_other_functions_stay(tmp_path: Path) -> None:
    mod = program()
    (tmp_path / t.DispatchByHash.file_name(kernel(program(9))[1])).write_text("no program")
    assert t.DispatchByHash(tmp_path)(mod) is mod


def test_the_hash_is_that_of_the_workload() -> None:
    _, func = kernel(program())
    renamed = func.with_attr("global_symbol", "another").with_attr("op_pattern", 3)
    assert t.DispatchByHash.file_name(func) == t.DispatchByHash.file_name(renamed)


HEADER = "from tilewright.script import tir as T\n\n\n@T.prim_func\n"
WRONG = {
    "import os\nos.system('true')": "",
    "x = 1": "",
    HEADER + 'def main(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):\n'
    "    T.evaluate(0)": "takes other parameters",
    HEADER + 'def main(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):\n'
    '    T.evaluate(T.call_extern("system", x.data, dtype="int32"))': "not allowed by name",
    HEADER + 'def main(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):\n'
    '    T.evaluate(T.call_packed("ffi.load", x[0, 0]))': "not allowed by name",
    HEADER + 'def main(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):\n'
    "    for i in range(9):\n        y[i, 0] = x[i, 0]": "is outside of axis 0",
    "#" * (1 << 20) + "##": "is longer than",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_hostile_text_is_refused(tmp_path: Path, text: str) -> None:
    mod = program()
    (tmp_path / t.DispatchByHash.file_name(kernel(mod)[1])).write_text(text)
    with pytest.raises(TuneError, match=f"(?s)can.t replace .*{WRONG[text]}"):
        t.DispatchByHash(tmp_path)(mod)


def test_missing_folders_and_several_files_are_named(tmp_path: Path) -> None:
    mod = program()
    with pytest.raises(TuneError, match="there is no folder"):
        t.DispatchByHash(tmp_path / "none")(mod)
    for label in "ab":
        (tmp_path / t.DispatchByHash.file_name(kernel(mod)[1], label)).write_text("")
    with pytest.raises(TuneError, match=r"has several files: a\.\w+\.py, b\.\w+\.py"):
        t.DispatchByHash(tmp_path)(mod)
    (tmp_path / t.DispatchByHash.file_name(kernel(mod)[1], "b")).unlink()
    (tmp_path / t.DispatchByHash.file_name(kernel(mod)[1], "a")).write_bytes(b"\xff\xfe")
    with pytest.raises(TuneError, match="can't be read"):
        t.DispatchByHash(tmp_path)(mod)
