from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright import te
from tilewright.ir import (
    DumpIR,
    IRModule,
    PassContext,
    PassInstrument,
    PassTimingInstrument,
    Sequential,
    module_pass,
    pass_option,
    pass_options,
)
from tilewright.support.errors import TilewrightError, VerifyError
from tilewright.tir import PrimFunc


def function(extent: int = 4) -> PrimFunc:
    x = te.placeholder((extent,), name="x")
    return te.create_prim_func([x, te.compute((extent,), lambda i: x[i] + 1.0, name="y")])


@module_pass(name="Mark")
def mark(mod: IRModule) -> IRModule:
    return mod.map_functions(lambda _, func: func.with_attr("marked", 1))


@module_pass(name="Nothing")
def nothing(mod: IRModule) -> IRModule:
    return mod


def test_modules_are_values() -> None:
    mod = IRModule({"f": function()})
    more = mod.with_function("g", function(5))
    assert "g" in more and "g" not in mod
    assert len(more.without_function("f")) == 1
    assert mod.map_functions(lambda _, func: func) is mod


def test_unknown_function_names_near_matches() -> None:
    with pytest.raises(VerifyError, match="no function 'man'; did you mean 'main'"):
        IRModule({"main": function()})["man"]


def test_modules_hold_functions_only() -> None:
    with pytest.raises(VerifyError, match="dict of functions"):
        IRModule({"f": 3})  # type: ignore[dict-item]


def test_passes_compose() -> None:
    mod = Sequential([nothing, mark])(IRModule({"f": function()}))
    assert mod["f"].attrs["marked"] == 1


def test_a_function_is_taken_for_a_module() -> None:
    assert mark(function())["main"].attrs["marked"] == 1


def test_passes_take_modules() -> None:
    with pytest.raises(TilewrightError, match="Mark takes an IRModule, got str"):
        mark("module")  # type: ignore[arg-type]


def test_disabled_passes_do_not_run() -> None:
    with PassContext(disabled_pass=["Mark"]):
        assert "marked" not in mark(function())["main"].attrs


def test_instruments_see_every_pass(tmp_path: Path) -> None:
    class Log(PassInstrument):
        def __init__(self) -> None:
            self.names: list[str] = []

        def should_run(self, mod: IRModule, info: str) -> bool:
            return info != "Nothing"

        def run_before_pass(self, mod: IRModule, info: str) -> None:
            self.names.append(info)

    log, timing, dump = Log(), PassTimingInstrument(), DumpIR(tmp_path / "ir")
    with PassContext(instruments=[log, timing, dump]):
        Sequential([nothing, mark])(IRModule({"f": function()}))
    assert log.names == ["sequential", "Mark"]
    assert set(timing.seconds) == {"sequential", "Mark"} and "Mark" in timing.render()
    written = sorted(path.name for path in (tmp_path / "ir").iterdir())
    assert written == ["000_before_sequential.py", "001_Mark.py"]
    before, after = ((tmp_path / "ir" / name).read_text() for name in written)
    assert before.startswith("from tilewright.script") and before != after


def test_dumps_tell_what_came_from_elsewhere(tmp_path: Path) -> None:
    with PassContext(instruments=[DumpIR(tmp_path)]):
        made = mark(IRModule({"f": function()}))
        mark(made)
        mark(IRModule({"g": function()}))
    names = [path.name[4:-3] for path in sorted(tmp_path.iterdir())]
    assert names == ["before_Mark", "Mark", "Mark", "before_Mark", "Mark"]


def test_times_of_passes_around_one_that_failed() -> None:
    @module_pass(name="Fails")
    def fails(mod: IRModule) -> IRModule:
        raise TilewrightError("no")

    @module_pass(name="Catches")
    def catches(mod: IRModule) -> IRModule:
        with pytest.raises(TilewrightError):
            fails(mod)
        return mod

    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        catches(IRModule({"f": function()}))
    assert set(timing.seconds) == {"Catches"} and timing.calls == {"Catches": 1}


def test_contexts_nest_and_end() -> None:
    outer = PassContext.current()
    with PassContext(opt_level=3) as context:
        assert PassContext.current() is context
    assert PassContext.current().opt_level == outer.opt_level


def test_options_are_checked() -> None:
    flag = pass_option("test.flag", bool, False, "A flag.")
    assert flag.value() is False and flag.value(True) is True
    with PassContext(config={"test.flag": False}):
        assert flag.value(True) is False
    with pytest.raises(TilewrightError, match=r"'test.flag' takes bool, got 3"):
        PassContext(config={"test.flag": 3})
    with pytest.raises(TilewrightError, match=r"'tir.unswitch_limit' takes int, got True"):
        PassContext(config={"tir.unswitch_limit": True})
    with pytest.raises(TilewrightError, match=r"'test\.flga'; did you mean 'test\.flag'"):
        PassContext(config={"test.flga": True})


def test_options_of_passes_that_nobody_has_imported_are_known() -> None:
    code = (
        "import sys; from tilewright.ir import PassContext\n"
        "assert 'tilewright.relax' not in sys.modules\n"
        "PassContext(config={'relax.conv_max_error': 0.0, 'tir.cse': True})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_options_are_listed_with_what_they_mean() -> None:
    found = {option.key: option for option in pass_options()}
    assert {"tir.cse", "tir.unswitch_limit", "relax.conv_layout"} <= set(found)
    for option in found.values():
        assert option.means.endswith(".") and isinstance(option.default, option.kind)


def test_options_are_registered_where_they_are_read() -> None:
    root = Path(tilewright.__file__).parent
    keys = {option.key for option in pass_options()} - {"test.flag"}
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text())
        registers = {
            id(item.args[0])
            for item in ast.walk(tree)
            if isinstance(item, ast.Call) and ast.unparse(item.func) == "pass_option"
        }
        for item in ast.walk(tree):
            if isinstance(item, ast.Constant) and item.value in keys:
                assert id(item) in registers, f"{path}: {item.value}"
