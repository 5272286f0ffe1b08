"""Members of types, modules, passes and instruments that TVM's users touch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tilewright import DataType
from tilewright.ir import IRModule, Op, PointerType, PrimType, instrument
from tilewright.ir.transform import PassContext, PassInfo, module_pass
from tilewright.runtime import DataTypeCode
from tilewright.script import tirx as T


@T.prim_func
def nothing(A: T.Buffer((1,), "float32")) -> None:
    T.evaluate(0)


CODES = {
    DataTypeCode.INT: 0, DataTypeCode.UINT: 1, DataTypeCode.FLOAT: 2, DataTypeCode.HANDLE: 3,
    DataTypeCode.BFLOAT: 4, DataTypeCode.Float8E3M4: 7, DataTypeCode.Float8E4M3: 8,
    DataTypeCode.Float8E4M3B11FNUZ: 9, DataTypeCode.Float8E4M3FN: 10,
    DataTypeCode.Float8E4M3FNUZ: 11, DataTypeCode.Float8E5M2: 12, DataTypeCode.Float8E5M2FNUZ: 13,
    DataTypeCode.Float8E8M0FNU: 14, DataTypeCode.Float6E2M3FN: 15, DataTypeCode.Float6E3M2FN: 16,
    DataTypeCode.Float4E2M1FN: 17,
}  # fmt: skip


def test_codes_of_types() -> None:
    assert {code: int(code) for code in CODES} == CODES
    assert tilewright.DataTypeCode is DataTypeCode


def test_questions_to_a_dtype() -> None:
    assert DataType("bool").is_bool and not DataType("int8").is_bool
    assert DataType("handle").is_handle and not DataType("int64").is_handle
    assert DataType("float32").with_lanes(4) == "float32x4"
    assert DataType.from_dlpack_data_type((2, 32, 4)) == "float32x4"
    assert DataType.is_dtype("uint8x2") and not DataType.is_dtype("number")


def test_functions_of_a_module_by_name() -> None:
    mod = IRModule({"b": nothing, "a": nothing})
    items = mod.functions_items()
    assert {var.name_hint: func for var, func in items} == {"a": nothing, "b": nothing}


def test_attributes_of_an_operator() -> None:
    op = Op.get("tirx.exp")
    op.set_attr("test.cost", 3)
    assert op.get_attr("test.cost") == 3
    op.reset_attr("test.cost")
    assert op.get_attr("test.cost") is None


def test_what_a_pointer_points_to() -> None:
    assert PointerType(PrimType("float16"), "shared").element_type.dtype == "float16"


class Recorded(instrument.PassInstrument):
    """Writes down what happens, and skips passes that it doesn't like."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def enter_pass_ctx(self) -> None:
        self.seen.append("enter")

    def exit_pass_ctx(self) -> None:
        self.seen.append("exit")

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        return info.name != "skipped"

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.seen.append(f"before {info.name}")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.seen.append(f"after {info.name}")


def test_an_instrument_sees_contexts_and_passes() -> None:
    recorded = Recorded()
    passes = [module_pass(lambda mod, _: mod, 0, name) for name in ("one", "skipped")]
    with PassContext(opt_level=2, instruments=[recorded]) as context:
        assert context.instruments == [recorded] and context.opt_level == 2
        for each in passes:
            each(IRModule({"main": nothing}))
    assert recorded.seen == ["enter", "before one", "after one", "exit"]


def test_an_instrument_of_nothing() -> None:
    plain, info, mod = instrument.PassInstrument(), PassInfo(0, "p", []), IRModule({})
    assert plain.enter_pass_ctx() is None and plain.exit_pass_ctx() is None
    assert plain.should_run(mod, info)
    assert plain.run_before_pass(mod, info) is None and plain.run_after_pass(mod, info) is None


def test_instruments_that_print(capsys: Any, tmp_path: Any) -> None:
    info, mod = PassInfo(0, "some", []), IRModule({"main": nothing})
    instrument.PrintBeforeAll().run_before_pass(mod, info)
    instrument.PrintAfterAll().run_after_pass(mod, info)
    shown = capsys.readouterr().out
    assert shown.count("some") == 2 and shown.count("prim_func") == 2
    printing = instrument.PassPrintingInstrument(["some"], ["other"])
    printing.run_before_pass(mod, info)
    printing.run_after_pass(mod, info)
    assert capsys.readouterr().out.count("prim_func") == 1
    instrument.DumpIR(str(tmp_path)).run_after_pass(mod, info)
    (written,) = tmp_path.iterdir()
    assert "some" in written.name and "prim_func" in written.read_text()


def test_what_a_context_and_a_pass_are_told() -> None:
    context = PassContext(opt_level=1, required_pass=["a"], disabled_pass=["b"])
    assert list(context.required_pass) == ["a"] and list(context.disabled_pass) == ["b"]
    info = PassInfo(2, "name", [], True)
    assert list(info.required) == [] and info.traceable
    with pytest.raises(ValueError, match="requires"):
        PassInfo(2, "name", ["another"])
