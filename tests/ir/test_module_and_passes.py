from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

import tilewright
from tilewright import te
from tilewright.ir import (
    DumpIR,
    GlobalVar,
    IRModule,
    PassContext,
    PassInfo,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintIR,
    Sequential,
    module_pass,
    pass_instrument,
    pass_option,
    pass_options,
    structural_equal,
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
        text = path.read_text()
        if not any(key in text for key in keys):
            continue
        tree = ast.parse(text)
        registers = {
            id(item.args[0])
            for item in ast.walk(tree)
            if isinstance(item, ast.Call) and ast.unparse(item.func) == "pass_option"
        }
        for item in ast.walk(tree):
            if isinstance(item, ast.Constant) and item.value in keys:
                assert id(item) in registers, f"{path}: {item.value}"


def test_modules_take_references_and_have_attributes() -> None:
    mod = IRModule({GlobalVar("f"): function(), "g": function(5)}, {"a": 1})  # type: ignore[dict-item]
    assert [var.name_hint for var in mod.get_global_vars()] == ["f", "g"]
    assert mod[mod.get_global_var("g")] is mod["g"]
    with pytest.raises(VerifyError, match="no function 'h'"):
        mod.get_global_var("h")
    more = mod.with_attr("b", 2).with_attrs({"c": 3}).without_attr("a")
    assert (more.get_attr("b"), more.get_attr("c"), more.get_attr("a")) == (2, 3, None)
    assert structural_equal(mod.clone(), mod)
    made = IRModule.from_expr(
        expr=function().with_attrs({"global_symbol": "k"}), functions={"g": mod["g"]}
    )
    assert set(made.functions) == {"g", "k"}
    func = function().with_attr({"x": 1, "y": 2}).without_attr(attr_key="x")
    assert "x" not in func.attrs and func.attrs["y"] == 2


@module_pass(opt_level=3, name="Late")
def late(mod: IRModule, ctx: PassContext) -> IRModule:
    return mod.with_attr("level", ctx.opt_level)


@module_pass(opt_level=1)
class Named:
    """Marks a module with a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod.with_attr("text", self.text)


def test_passes_are_made_as_in_tvm() -> None:
    mod = IRModule({"f": function()})
    assert late.info.name == "Late" and late.info.opt_level == 3
    assert late(mod).attrs == {"level": 2}  # called by itself, it runs at any level
    made = Sequential([late, Named("here")], opt_level=0, name="both")
    assert made.pass_info == "both" and Named("x").info.opt_level == 1
    assert made(mod).attrs == {"text": "here"}
    with PassContext(3):
        assert made(mod).attrs == {"level": 3, "text": "here"}
    with PassContext(0, ["Late"], None, None, {}):
        assert made(mod).attrs == {"level": 0}
    with pytest.raises(ValueError, match="don't run others by name"):
        module_pass(lambda mod: mod, required=["Simplify"])
    assert PassContext.list_configs()["tir.cse"]["type"] == "bool"


def test_instruments_are_made_as_in_tvm(capsys: pytest.CaptureFixture[str]) -> None:
    @pass_instrument
    class Count:
        entered = left = 0
        seen: ClassVar[list[str]] = []

        def enter_pass_ctx(self) -> None:
            self.entered += 1

        def exit_pass_ctx(self) -> None:
            self.left += 1

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.seen.append(info.name)

    count = Count()
    with PassContext(instruments=[PrintBeforeAll()]) as context:
        mark(function())
        context.override_instruments([count])
        mark(function())
        assert (count.entered, count.left, count.seen) == (1, 0, ["Mark"])
    assert count.left == 1 and issubclass(Count, PassInstrument)
    with PassContext(instruments=[PassPrintingInstrument(["Nothing"], ["Mark"]), PrintAfterAll()]):
        Sequential([nothing, mark, PrintIR("here")])(function())
    shown = [
        line for line in capsys.readouterr().out.splitlines() if "IR" in line or "pass:" in line
    ]
    shown = [line for line in shown if "import" not in line]
    assert shown == [
        "Before running pass: Mark",
        "Print IR before: Nothing",
        "After running pass: Nothing",
        "Print IR after: Mark",
        "After running pass: Mark",
        "PrintIR(here)",
        "After running pass: PrintIR",
        "After running pass: sequential",
    ]


def test_dumps_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "007_Old.py").write_text("")
    (tmp_path / "mine.py").write_text("")
    DumpIR(dump_dir=tmp_path, refresh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
