"""Methods of graph functions, executables and visitors under TVM's names and with its arguments."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.relax.helpers import tensor
from tilewright import cpu, relax, runtime
from tilewright.ir import (
    GlobalVar,
    IRModule,
    SourceName,
    Var,
    assert_structural_equal,
    load_json,
    save_json,
)
from tilewright.relax import interpreter, op, transform
from tilewright.relax.frontend import nn
from tilewright.relax.training import Trainer
from tilewright.runtime.beside import beside_checksum
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import BuildError, RunError, VerifyError


@I.ir_module
class Module:
    @R.function(private=True)
    def twice(x: R.Tensor(("n", 4), "float32")):
        y = R.add(x, x)
        return y

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):
        y = Module.twice(x)
        z = R.multiply(y, w)
        return z


MAIN = Module["main"]
ONES = np.ones((2, 4), "float32")
W = np.arange(4, dtype="float32")


def text(function: relax.Function) -> str:
    return str(function.script())


def test_parameters_are_bound() -> None:
    bound = MAIN.bind_params({"w": W, MAIN.params[0]: ONES})
    assert not bound.params
    assert "Tensor((2, 4)" in text(bound)
    other = relax.Var("v", relax.TensorType((4,), "float32"))
    free = MAIN.bind_params({"w": other})
    assert relax.analysis.free_vars(free) == [other]
    for key, value, says in (
        ("q", W, "no parameter 'q'"),
        ("w", np.ones(5, "float32"), "got shape"),
        ("w", relax.Var("v", relax.TensorType((5,), "float32")), "parameter w is"),
    ):
        with pytest.raises(VerifyError, match=says):
            MAIN.bind_params({key: value})


def test_scalars_are_bound_with_the_extents_that_they_are() -> None:
    n = Var("n")
    length = relax.Var("length", relax.PrimStructInfo("int64", n))
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    function = relax.Function([x, length], x)
    assert "Tensor((3, 4)" in text(function.bind_params({"length": 3}))
    with pytest.raises(VerifyError, match="n is 2"):
        function.bind_params({"x": ONES, "length": 3})


def test_extents_are_bound() -> None:
    assert "Tensor((3, 4)" in text(MAIN.bind_symbolic_vars({"n": 3}))
    with pytest.raises(VerifyError, match="no symbolic extent 'm'"):
        MAIN.bind_symbolic_vars({"m": 3})


@pytest.mark.parametrize("key", ["twice", GlobalVar("twice")])
def test_functions_are_inlined(key: str | GlobalVar) -> None:
    made = MAIN.inline_functions({key: Module["twice"]})
    assert "R.add(x, x)" in text(made)
    assert "twice" not in text(made)
    assert "twice" in text(MAIN.inline_functions({}))
    ran = interpreter.run(IRModule({"main": made}), ONES, W)
    np.testing.assert_array_equal(np.asarray(ran), 2 * ONES * W)
    with pytest.raises(VerifyError, match="no graph function"):
        MAIN.inline_functions({"twice": op.add})  # type: ignore[dict-item]


@pytest.mark.parametrize("pure", [True, False])
def test_empty_functions_have_parameters_and_a_result(pure: bool) -> None:
    made = relax.Function.create_empty([MAIN.params[1]], tensor((2,)), pure, {"a": 1})
    assert made.is_pure is pure
    assert made.attrs["a"] == 1
    assert "_dummy_function" in text(made)
    assert repr(made.ret_ty) == repr(tensor((2,)))


def test_calls_take_a_span_and_their_type_by_position() -> None:
    x = relax.Var("x", tensor((2,)))
    span = relax.Span(SourceName("a.py"), 1, 1, 0, 4)
    call = relax.Call(op.exp(x).op, [x], None, None, span, tensor((2,)))
    assert call.span is span
    with pytest.raises(VerifyError, match="not"):
        relax.Call(op.exp(x).op, [x], None, None, None, tensor((3,)))

    class Places(relax.PyExprVisitor):
        def __init__(self) -> None:
            self.seen: list[relax.Span] = []

        def visit_span(self, span: relax.Span) -> None:
            self.seen.append(span)

    places = Places()
    places.visit_expr(call)
    assert places.seen == [span]


def test_operators_are_legalised_by_a_map_but_for_those_skipped() -> None:
    x = relax.Var("x", tensor((2,)))
    body = relax.SeqExpr(
        (
            relax.BindingBlock(
                (
                    relax.VarBinding(y := relax.Var("y", tensor((2,))), op.exp(x)),
                    relax.VarBinding(z := relax.Var("z", tensor((2,))), op.sin(y)),
                )
            ),
        ),
        z,
    )
    mod = IRModule({"main": relax.Function([x], body)})
    rules = {"relax.exp": lambda bb, call: op.negative(call.args[0])}
    made = transform.LegalizeOps(rules, ["relax.sin"], True)(mod)
    assert "R.negative(x)" in made.script()
    assert "R.sin(y)" in made.script()


def test_operators_without_a_rule_are_warned_of() -> None:
    x = relax.Var("x", tensor((2,)))
    kept = op.print(x, format="{}")
    made = relax.Var("y", kept.struct_info)
    body = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(made, kept),)),), x)
    mod = IRModule({"main": relax.Function([x], body, is_pure=False)})
    with pytest.warns(UserWarning, match="no rule legalises relax.print"):
        transform.LegalizeOps(enable_warning=True)(mod)


def test_executables_tell_what_they_run(tmp_path: Path) -> None:
    ex = relax.build(Module, "llvm", {"w": W})
    assert isinstance(ex, runtime.Executable)
    assert ex.jit() is ex
    assert "Function main (# " in ex.stats()
    assert "kernel;" in ex.as_text()
    assert "T.prim_func" in ex.as_python()
    library = runtime.load_module(ex.export_library(file_name=tmp_path / "m.so"))
    loaded = relax.VMExecutable(mod=library)
    with pytest.raises(RunError, match="not after it was loaded"):
        loaded.as_text()
    assert library.implements_function("stats")
    again = pickle.loads(pickle.dumps(ex))
    for told in (library["stats"](), loaded.stats(), relax.load_executable(library.path).stats(),
                 pickle.loads(pickle.dumps(loaded)).stats(), again.stats(),
                 ex.jit(force_recompile=True).stats()):  # fmt: skip
        assert told == ex.stats()
    for given in (library, loaded, ex.jit(force_recompile=True)):
        vm = relax.VirtualMachine(given, cpu(), memory_cfg={cpu(): "pooled"})
        np.testing.assert_array_equal(vm["main"](ONES).numpy(), 2 * ONES * W)
    with pytest.raises(BuildError, match="only a library that an executable was exported to"):
        relax.VMExecutable(ex.mod)


@pytest.mark.parametrize(
    "told", [3, ["a"], {"a": 1}, "a\x1b[2J", "\ud800", "x" * ((4 << 20) + 1), True]
)
def test_statistics_of_strangers_are_plain_texts(tmp_path: Path, told: object) -> None:
    path = relax.build(Module, "llvm", {"w": W}).export_library(tmp_path / "m.so")
    rewrite_beside(path, {"statistics": told})
    library = runtime.load_module(path)
    for read in (
        lambda: library["stats"],
        lambda: library.implements_function("stats"),
        lambda: relax.load_executable(path),
        lambda: relax.VMExecutable(library),
    ):
        with pytest.raises(BuildError, match="its statistics are no plain text"):
            read()
    assert library.implements_function("main")


def test_libraries_without_statistics(tmp_path: Path) -> None:
    ex = relax.build(Module, "llvm", {"w": W})
    path = ex.export_library(tmp_path / "m.so")
    rewrite_beside(path, {"statistics": None})
    with pytest.raises(RunError, match="without statistics: export the model again"):
        relax.load_executable(path).stats()
    alone = runtime.load_module(ex.mod.export_library(tmp_path / "alone.so"))
    for library in (runtime.load_module(path), alone):
        assert not library.implements_function("stats")
        with pytest.raises(RunError, match="has no function 'stats'"):
            library["stats"]
    Path(f"{path}.json").write_text("[" * 100_000)
    with pytest.raises(BuildError, match="is damaged"):
        runtime.load_module(path)["stats"]


def test_statistics_of_another_library_are_refused(tmp_path: Path) -> None:
    paths = [
        relax.build(Module, "llvm", {"w": W * k}).export_library(tmp_path / f"{k}.so")
        for k in (1, 2)
    ]
    Path(f"{paths[0]}.json").write_text(Path(f"{paths[1]}.json").read_text())
    with pytest.raises(BuildError, match="belongs to another library"):
        runtime.load_module(paths[0])["stats"]


def test_a_graph_may_be_named_stats(tmp_path: Path) -> None:
    mod = IRModule({"stats": Module["twice"]})
    path = relax.build(mod).export_library(tmp_path / "m.so")
    out = np.zeros_like(ONES)
    runtime.load_module(path)["stats"](ONES, out)
    np.testing.assert_array_equal(out, 2 * ONES)


def rewrite_beside(path: Path, parts: dict[str, object]) -> None:
    data = {**json.loads(Path(f"{path}.json").read_text()), **parts}
    data["checksum"] = beside_checksum(data, runtime.stored_checksum(path))
    Path(f"{path}.json").write_text(json.dumps(data))


def test_scopes_of_builders_are_objects() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", tensor((2,)))
    with relax.block_builder.FunctionScope(builder, "main", [x], {"a": 1}, is_pure=True):
        with relax.block_builder.DataflowScope(builder):
            out = builder.emit_output(op.exp(x))
        builder.emit_func_output(out)
    made = builder.get()["main"]
    assert isinstance(made.body.blocks[0], relax.DataflowBlock)
    assert made.attrs["a"] == 1
    n = Var("n")
    with relax.block_builder.TestingScope(builder, def_vars=[n]):
        emitted = builder.emit(op.exp(relax.Var("y", tensor((n,)))))
    assert emitted.ndim == 1


def test_names_of_constants_and_containers() -> None:
    assert (relax.VirtualMachine.NAIVE_ALLOCATOR, relax.VirtualMachine.POOLED_ALLOCATOR) == (1, 2)
    names = "ADJOINT_FUNC BACKBONE_FUNC BACKBONE_LOSS_FUNC OPTIMIZER_FUNC".split()
    assert [getattr(Trainer, name) for name in names] == [
        "backbone_loss_adjoint", "backbone", "backbone_loss", "optimizer",
    ]  # fmt: skip
    linear, param = nn.Linear(2, 3), nn.Parameter((2,))
    modules, params = nn.ModuleList([]), nn.ParameterList()
    modules.append(module=linear)
    params.append(param=param)
    assert (modules[0], params[0]) == (linear, param)
    by_name, params_by_name = nn.ModuleDict(), nn.ParameterDict()
    by_name.update(modules={"a": linear})
    params_by_name.update(params={"a": param})
    assert (by_name["a"], params_by_name["a"]) == (linear, param)


def test_functions_are_pickled_and_written_as_json() -> None:
    for again in (pickle.loads(pickle.dumps(Module)), load_json(save_json(Module))):
        assert_structural_equal(again, Module)
        assert again["main"].bindings[1].value.op is MAIN.bindings[1].value.op
