"""Members of builders, visitors and modules of graphs that TVM's users call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random
from tilewright import relax
from tilewright.ir import IRModule, structural_equal
from tilewright.ir.transform import PassContext, PassInfo
from tilewright.relax import interpreter, op
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn import spec
from tilewright.relax.transform import (
    DataflowBlockPass,
    DecomposeOpsForTraining,
    FunctionPass,
    FusionPattern,
)
from tilewright.support.errors import BuildError, VerifyError

INFO = relax.TensorStructInfo((2,), "float32")
X = np.float32([1, 2])


def squares() -> IRModule:
    x = relax.Var("x", INFO)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        assert not builder.current_block_is_dataflow()
        with builder.dataflow():
            assert builder.current_block_is_dataflow()
            lv = relax.DataflowVar(builder.get_unique_name("lv"), INFO)
            builder.emit_normalized(relax.VarBinding(lv, op.square(x)))
            assert builder.get_unique_name("lv") != lv.name
            out = builder.emit_output(op.add(lv, x))
        builder.emit_func_output(out)
    return builder.finalize()


def test_a_builder() -> None:
    found = interpreter.run(squares(), X)
    np.testing.assert_array_equal(np.asarray(found), X * X + X)


# ---- visitors ----------------------------------------------------------------------------------


def parts(function: relax.Function) -> tuple[Any, Any, Any]:
    block = function.body.blocks[0]
    return block, block.bindings[0], block.bindings[0].var


class Seen(relax.PyExprVisitor):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_var_def_(self, var: relax.Var) -> None:
        self.seen.append("var")

    def visit_dataflow_var_def_(self, var: relax.Var) -> None:
        self.seen.append("dataflow var")

    def visit_call_(self, call: Any) -> None:
        self.seen.append(call.op.name)


def test_a_visitor_starts_anywhere() -> None:
    block, binding, var = parts(squares()["main"])
    seen = Seen()
    seen.visit_var_def(var)
    seen.visit_binding(binding)
    assert seen.seen == ["dataflow var", "relax.square", "dataflow var"]
    seen.seen.clear()
    seen.visit_binding_block(block)
    assert seen.seen == ["relax.square", "dataflow var", "relax.add", "var"]
    assert seen.visit_span(None) is None
    assert isinstance(seen, relax.ExprFunctor)
    for method in (relax.ExprFunctor.visit_binding, relax.ExprFunctor.visit_binding_block):
        assert callable(method)


class Renamed(relax.PyExprMutator):
    """Makes each variable that a call defines anew, under another name."""

    def visit_dataflow_var_def_(self, var: relax.Var) -> relax.Var:
        made = relax.DataflowVar(f"{var.name}_new", var.struct_info)
        self.set_var_remap(var, made)
        assert self.get_var_remap(var) is made
        return made


def test_a_mutator_maps_variables() -> None:
    function = squares()["main"]
    var = parts(function)[2]
    mutator = Renamed()
    assert mutator.visit_var_def(var).name == f"{var.name}_new"
    made = Renamed().visit_expr(function)
    assert parts(made)[2].name == f"{var.name}_new"
    np.testing.assert_array_equal(np.asarray(interpreter.run(made, X)), X * X + X)
    scoped = Renamed().visit_with_new_scope(function.body)
    assert scoped.blocks[0].bindings[0].var.name == f"{var.name}_new"
    assert Renamed().visit_span(None) is None


def test_a_mutator_visits_blocks() -> None:
    block, binding, var = parts(squares()["main"])
    plain = relax.PyExprMutator(squares())
    assert len(plain.visit_binding_block(block).bindings) == 2
    assert plain.get_var_remap(var) is not None
    with pytest.raises(VerifyError, match="outside"):
        plain.visit_binding(binding)


# ---- passes ------------------------------------------------------------------------------------


class Doubled(FunctionPass):
    """Each function says how often it was seen."""

    def transform_function(self, func: Any, mod: IRModule, ctx: PassContext) -> Any:
        return func.with_attr("seen", 1)


class Emptied(DataflowBlockPass):
    """Leaves blocks as they are, and counts them."""

    count = 0

    def transform_dataflowblock(self, block: Any, mod: IRModule, ctx: PassContext) -> Any:
        self.count += 1
        return block


def test_classes_of_passes() -> None:
    info = PassInfo(0, "counting", [])
    assert Doubled(info)(squares())["main"].attrs["seen"] == 1
    blocks = Emptied(info)
    blocks(squares())
    assert blocks.count == 1
    assert FunctionPass(info, lambda func, mod, ctx: func)(squares())["main"].params[0].name == "x"


def test_norms_are_taken_apart_for_training() -> None:
    x, w = relax.Var("x", relax.TensorStructInfo((2, 3), "float32")), relax.Var("w", INFO)
    g = relax.Var("g", relax.TensorStructInfo((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w, g]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.layer_norm(x, g, g, -1))
        builder.emit_func_output(out)
    made = DecomposeOpsForTraining("main")(builder.get())
    assert "layer_norm" not in made.script() and "layer_norm" in builder.get().script()


def test_what_a_fusion_pattern_is_told() -> None:
    start = relax.dpl.wildcard()
    whole = relax.dpl.is_op("relax.square")(start)
    checked: list[Any] = []

    def check(context: Any) -> bool:
        checked.append(context.annotated_expr["start"])
        return True

    pattern = FusionPattern("lib.square", whole, {"start": start}, check, lambda found: {"n": 1})
    assert dict(pattern.annotation_patterns) == {"start": start}
    assert pattern.attrs_getter is not None and pattern.attrs_getter({}) == {"n": 1}
    relax.transform.FuseOpsByPattern([pattern])(squares())
    assert [value.name for value in checked] == ["x"]


def test_the_function_of_a_rewrite() -> None:
    function = squares()["main"]
    rewrite = relax.DataflowBlockRewrite(function.body.blocks[0], function)
    assert structural_equal(rewrite.root_fn, function)
    rewrite.add(op.exp(function.params[0]), "other", True)
    for made in (rewrite.root_fn, rewrite.mutated_root_fn()):
        assert [binding.var.name for binding in made.body.blocks[0].bindings][2] == "other"


def test_whether_a_function_is_pure() -> None:
    assert relax.FuncStructInfo([INFO], INFO, purity=False).purity is False
    assert relax.FuncStructInfo([INFO], INFO).purity is True


# ---- modules -----------------------------------------------------------------------------------


def test_state_of_modules() -> None:
    builder = relax.BlockBuilder()
    for effect, name in ((nn.IOEffect(), "io"), (nn.KVCache(4, [2]), "cache")):
        with builder.function("init", []):
            with builder.dataflow():
                held = effect.emit_init(name, builder)
                out = builder.emit_output(held[0])
            builder.emit_func_output(out)
        assert isinstance(held[0].struct_info, relax.ObjectStructInfo)
        (state,) = effect.create(name)
        assert state.name.startswith(name)
        effect.set_state([held[0]])
        assert effect.finalize() == [held[0]]
        builder = relax.BlockBuilder()
    for call in (
        lambda: nn.Effect().emit_init("a", builder),
        lambda: nn.Effect().set_state([]),
        lambda: nn.Effect().finalize(),
    ):
        with pytest.raises(NotImplementedError, match="must define"):
            call()


def test_tensors_of_modules() -> None:
    assert nn.Tensor.from_const([1.0, 2.0]).shape == [2]
    assert nn.Tensor.from_scalar(1, "float16").dtype == "float16"
    assert nn.Tensor.from_ty(INFO, "named").shape == [2]
    assert nn.get_default_dtype() == "float32"
    number: nn.IntExpr = 3
    assert isinstance(number, nn.IntExpr)


class Sum(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((size,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.add(x, self.weight)


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([Sum(2), Sum(2)])
        self.named = nn.ModuleDict({"a": Sum(2)})
        self.weights = nn.ParameterList([nn.Parameter((2,), "float32")])
        self.others = nn.ParameterDict({"b": nn.Parameter((2,), "float32")})
        self.cache = nn.KVCache(4, [2])


class Counted(nn.Mutator):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_param(self, name: str, node: nn.Parameter) -> Any:
        self.seen.append(f"param {name}")
        return super().visit_param(name, node)

    def visit_effect(self, name: str, node: nn.Effect) -> Any:
        self.seen.append(f"effect {name}")
        return super().visit_effect(name, node)

    def visit_modulelist(self, name: str, node: nn.ModuleList) -> Any:
        self.seen.append(f"list {name}")
        return super().visit_modulelist(name, node)

    def visit_moduledict(self, name: str, node: nn.ModuleDict) -> Any:
        self.seen.append(f"dict {name}")
        return super().visit_moduledict(name, node)

    def visit_parameterlist(self, name: str, node: nn.ParameterList) -> Any:
        self.seen.append(f"params {name}")
        return super().visit_parameterlist(name, node)

    def visit_parameterdict(self, name: str, node: nn.ParameterDict) -> Any:
        self.seen.append(f"named params {name}")
        return super().visit_parameterdict(name, node)


def test_a_mutator_of_modules() -> None:
    counted = Counted()
    counted.visit_module("model", Parts())
    kinds = {"list", "dict", "params", "named", "effect", "param"}
    assert {line.split()[0] for line in counted.seen} == kinds
    assert sum(line.startswith("param ") for line in counted.seen) == 5


def test_specifications_of_modules() -> None:
    module, x = Sum(2), spec.Tensor((2,), "float32")
    method = spec.MethodSpec.from_raw({"x": x}, module.forward)
    assert (method.arg_names, method.arg_specs) == (["x"], [x])
    example = spec.MethodSpec.from_torch([np.zeros((2,), "float32"), 3], lambda x, n: x)
    assert [type(item) for item in example.arg_specs] == [spec.Tensor, spec.Int]
    whole = spec.ModuleSpec.from_raw({"forward": {"x": x}}, module)
    assert isinstance(whole, spec.ModuleSpec) and whole.method_names == ["forward"]
    assert whole.method_specs[0].arg_names == ["x"]
    mod, params = module.export_tvm({"forward": {"x": x}})
    found = interpreter.run(mod, X, X, name="forward")
    assert [name for name, _ in params] == ["weight"]
    np.testing.assert_array_equal(np.asarray(found), X + X)


def test_a_method_that_takes_a_size() -> None:
    class Filled(nn.Module):
        def forward(self, n: Any) -> nn.Tensor:
            return nn.op.zeros((n,))

    mod, _ = Filled().export_tvm({"forward": {"n": spec.Int()}})
    (n,) = mod["forward"].params
    assert isinstance(n.struct_info, relax.ShapeStructInfo) or n.name == "n"


class Shared(Sum):
    define_subroutine = True


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Shared(2), Shared(2)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.second(self.first(x))


def test_modules_that_share_a_function() -> None:
    assert issubclass(Shared, nn.SubroutineMixin) and not Sum.define_subroutine
    mod, _ = Twice().export_tvm({"forward": {"x": spec.Tensor((2,), "float32")}})
    assert len(mod.functions) == 2
    found = interpreter.run(mod, X, X, X + 1, name="forward")
    np.testing.assert_array_equal(np.asarray(found), X + X + X + 1)


def test_functions_from_elsewhere(tmp_path: Path) -> None:
    symbols = {"twice": lambda x: nn.Tensor.placeholder(x.shape, x.dtype)}

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.extern = nn.ExternModule(symbols)

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            named = nn.op.extern("other", [x], nn.Tensor.placeholder(x.shape, x.dtype))
            return nn.op.add(self.extern["twice"](x), named)

    mod, _ = Calls().export_tvm({"forward": {"x": spec.Tensor((2,), "float32")}})
    text = mod.script()
    assert '"twice"' in text and '"other"' in text
    with pytest.raises(BuildError, match="no file"):
        nn.ObjectModule(symbols, tmp_path / "absent.o")
    assert all(isinstance(path, Path) for path in nn.SourceModule.get_includes())


def test_nested_results() -> None:
    class Halves(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            left, right = nn.wrap_nested(op.split(x._expr, 2), "halves")
            assert isinstance(left, nn.Tensor)
            return nn.op.subtract(left, right)

    mod, _ = Halves().export_tvm({"forward": {"x": spec.Tensor((4,), "float32")}})
    found = interpreter.run(mod, random(4), name="forward")
    np.testing.assert_allclose(np.asarray(found), random(4)[:2] - random(4)[2:])


def test_a_convolution_of_lines() -> None:
    module = nn.Conv1D(2, 3, 2, 1, 1, 1, 1, False, "float32")
    mod, params = module.export_tvm({"forward": {"x": spec.Tensor((1, 2, 4), "float32")}})
    assert [tuple(map(int, item.shape)) for _, item in params] == [(3, 2, 2)]
    x, w = random(1, 2, 4), random(3, 2, 2, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = np.stack([np.einsum("bcw,ocw->bo", padded[:, :, i : i + 2], w) for i in range(5)], 2)
    found = interpreter.run(mod, x, w, name="forward")
    np.testing.assert_allclose(np.asarray(found), expected, 1e-5, 1e-6)
