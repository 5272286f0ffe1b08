"""What TVM's passes do with modules, attributes and sequences, with TVM's names and arguments."""

from __future__ import annotations

import copy
import pickle

import pytest

from tilewright import relax, te, tir, topi
from tilewright.ir import (
    Array,
    Attrs,
    DictAttrs,
    DummyGlobalInfo,
    GlobalInfo,
    GlobalVar,
    IRModule,
    Map,
    assert_structural_equal,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
    transform,
)
from tilewright.meta_schedule.database import MemoryDatabase, Workload
from tilewright.script import from_source
from tilewright.support.errors import VerifyError
from tilewright.target import Target


def function(size: int = 4) -> tir.PrimFunc:
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x, topi.negative(x)])


def module() -> IRModule:
    return IRModule({"f": function(), "g": function(8)}, {"a": 1})


def test_functions_are_replaced_in_this_object():
    mod, other = module(), function(16)
    mod.update_func(mod.get_global_var("f"), other)
    assert mod["f"] is other
    mod[mod.get_global_var("g")] = other
    mod["h"] = other
    assert mod["g"] is other and list(mod.functions) == ["f", "g", "h"]
    mod.update(IRModule({"f": function(), "i": other}))
    mod.update({GlobalVar("j"): other, "k": other})
    assert list(mod.functions) == ["f", "g", "h", "i", "j", "k"] and mod["f"] is not other
    del mod["k"]
    with pytest.raises(VerifyError, match="no function 'k'"):
        del mod["k"]
    for wrong in (3, None, mod):
        with pytest.raises(VerifyError, match="IRModule takes a dict of functions"):
            mod["f"] = wrong


def test_other_modules_stay_as_they_are():
    mod = module()
    copies = [mod.clone(), mod.with_attr("b", 1), mod.with_function("z", function())]
    sch, database = tir.Schedule(mod), MemoryDatabase()
    workload, before = database.commit_workload(mod), structural_hash(mod)
    kept = module()["f"]
    mod.update({"f": function(32)})
    mod.update_global_info("x", [DummyGlobalInfo()])
    for each in (*copies, sch.mod, workload.mod):
        assert structural_equal(each["f"], kept) and not each.global_infos
    assert not copies[0].same_as(mod) and structural_hash(mod) != before


CHANGES = {
    "set": lambda each: each.__setitem__("z", 1),
    "delete": lambda each: each.__delitem__("a"),
    "update": lambda each: each.update({"z": 1}),
    "or": lambda each: each.__ior__({"z": 1}),
    "pop": lambda each: each.pop("a"),
    "popitem": lambda each: each.popitem(),
    "setdefault": lambda each: each.setdefault("z", 1),
    "clear": lambda each: each.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_module_holds_is_not_changed_behind_it(change):
    # As in TVM 0.27.
    mod = IRModule({"a": function().with_attr("a", 1)}, {"a": 1})
    for each in (mod.functions, mod.attrs, mod["a"].attrs):
        before = dict(each)
        with pytest.raises(TypeError, match="is never changed: use"):
            CHANGES[change](each)
        assert dict(each) == before


def test_what_a_module_holds_is_copied_as_it_is():
    mod = IRModule({"a": function().with_attr("a", 1)}, {"a": 1})
    for how in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        for each in (mod.functions, mod.attrs):
            made = how(each)
            assert type(made) is type(each) and list(made) == list(each)
        assert structural_equal(how(mod), mod)
    assert next(iter(pickle.loads(pickle.dumps(mod.functions)))).name_hint == "a"


def test_workloads_keep_the_program_of_their_hash():
    mod, given = module(), module()
    workload, text = Workload(mod), Workload.from_json(Workload(given).as_json())
    assert not text.is_written_as(mod.with_attr("b", 1)) and text.is_written_as(given)
    assert text.is_written_as(given) and text.is_written_as(given.clone())
    mod["f"] = given["g"] = function(32)
    for each in (workload, text):
        each.mod["f"] = function(64)
        each.mod.update_global_info("x", [DummyGlobalInfo()])
        assert structural_equal(each.mod, module()) and structural_hash(each.mod) == each.hash
    assert not text.is_written_as(given)


def test_a_pass_of_tvms_form():
    @transform.module_pass(opt_level=0)
    def Double(mod: IRModule, ctx: transform.PassContext) -> IRModule:
        made = mod.clone()
        for gv, func in mod.functions.items():
            made.update_func(gv, func.with_attr("name_of", gv.name_hint))
            assert mod.functions[mod.get_global_var(gv.name_hint)] is func and gv in mod.functions
        return made

    mod = module()
    after = Double(mod)
    assert [func.attrs["name_of"] for func in after.functions.values()] == ["f", "g"]
    assert "name_of" not in mod["f"].attrs


def test_schedules_keep_their_program_when_its_module_changes():
    sch = tir.Schedule(function())
    kept, other = sch.mod["main"], sch.copy()
    assert sch.mod is sch.mod
    sch.mod["main"] = function(32)
    sch.mod.update_global_info("rest", [relax.DummyGlobalInfo()])
    for each in (sch, other):
        assert each.mod["main"] is kept and not each.mod.global_infos
    with pytest.raises(VerifyError, match="takes an IRModule or a dict of functions"):
        sch.mod.update([kept])


def test_global_infos():
    devices = [relax.VDevice("llvm"), relax.VDevice({"kind": "c"}, 1, "local")]
    mod = IRModule({"f": function()}, {"a": 1}, {"vdevice": devices})
    assert mod.global_infos["vdevice"] == tuple(devices) and devices[0].target == Target("llvm")
    assert devices[0] == relax.VDevice(Target("llvm"), 0, "global") != devices[1]
    assert isinstance(devices[0], GlobalInfo) and devices[0].same_as(devices[0])
    assert relax.VDevice().target is None and relax.VDevice().memory_scope == "global"
    mod.update_global_info("rest", [relax.DummyGlobalInfo()])
    for again in (from_source(mod.script()), load_json(save_json(mod))):
        assert_structural_equal(again, mod)
        assert again.global_infos["vdevice"] == tuple(devices)
    mod.update_global_info("vdevice", devices[:1])
    assert len(mod.global_infos["vdevice"]) == 1 and len(mod.global_infos) == 2
    for wrong in ([3], relax.VDevice(), "llvm"):
        with pytest.raises(VerifyError, match=r"global_infos\['x'\] is a list of GlobalInfo"):
            mod.update_global_info("x", wrong)
    with pytest.raises(VerifyError, match="a number from 0"):
        relax.VDevice("llvm", -1)


def test_attributes():
    func = function().with_attrs({"k": 1, "s": "text", "l": [1, 2]})
    softmax = relax.op.nn.softmax(relax.Var("x", relax.TensorType((2, 3))), axis=1)
    for attrs in (func.attrs, module().attrs, softmax.attrs, IRModule().attrs):
        assert isinstance(attrs, (Attrs, Map)) and isinstance(attrs, DictAttrs)
    attrs = func.attrs
    assert attrs.k == attrs["k"] == attrs.get("k") == attrs.get_int("k") == 1 and "k" in attrs
    assert attrs.get("z") is None and attrs.get("z", 3) == 3 and not hasattr(attrs, "z")
    assert attrs.get_str("s") == "text" and attrs.get_int_tuple("l") == (1, 2)
    assert dict(attrs.items()).keys() == attrs.keys() and softmax.attrs.axis == 1
    with pytest.raises(AttributeError, match="no attribute 'z', but"):
        attrs.get_int("z")
    assert_structural_equal(load_json(save_json(func)), func)


def test_sequences_and_dicts():
    made = Array([1, 2])
    assert made == [1, 2] and made == (1, 2) and made != [1]
    assert made.__add__([3]) == [1, 2, 3] and made.__radd__([0]) == [0, 1, 2]
    assert made.same_as(made) and not made.same_as(Array([1, 2]))
    mapped = Map({"a": 1})
    assert mapped.get("a") == 1 and mapped.get("b", 4) == 4 and dict(mapped.items()) == {"a": 1}
    assert list(mapped.keys()) == ["a"] and list(mapped.values()) == [1] and mapped.same_as(mapped)
    func = function()
    for each in (func.params, func.buffers[0].shape, [], made):
        assert isinstance(each, Array)
    for each in (func.buffer_map, func.attrs, module().functions, mapped):
        assert isinstance(each, Map)
    assert not isinstance("ab", Array) and not isinstance(made, Map)


def test_free_variables_are_equal_if_they_are_the_same():
    x, y = tir.Var("x", "int32"), tir.Var("x", "int32")
    assert_structural_equal(x + 1, x + 1)
    assert_structural_equal(x + 1, y + 1, True)
    assert_structural_equal(lhs=x, rhs=y, map_free_vars=True)
    with pytest.raises(VerifyError, match="free variables x and x are not the same"):
        assert_structural_equal(x, y)
