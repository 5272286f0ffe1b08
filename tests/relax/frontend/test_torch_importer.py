"""Importing whole exported programs: parameters, symbolic sizes, errors, files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relax
from tilewright.ir import IRModule, Var
from tilewright.relax.interpreter import run
from tilewright.support.errors import ImportModelError, MissingExtraError

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch import (  # noqa: E402
    ExportedProgramImporter,
    from_exported_program,
    load_exported_program,
)

nn = torch.nn
Dim = torch.export.Dim


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
        self.offset = torch.full((3,), 0.5)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.fc(x)) * self.scale + self.offset


def lambda_module(function: Any) -> Any:
    class Wrapped(nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    return Wrapped().eval()


def export(function: Any, *inputs: Any, **options: Any) -> Any:
    return torch.export.export(lambda_module(function), inputs, **options)


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


# ---- parameters and results -------------------------------------------------------------------


def test_parameters_become_constants() -> None:
    model, x = Small().eval(), torch.randn(2, 4)
    mod = from_exported_program(torch.export.export(model, (x,)))
    relax.verify_graph(mod)
    assert [param.name for param in mod["main"].params] == ["x"]
    (found,) = run(mod, x.numpy())
    agree(found, model(x))


def test_parameters_as_inputs() -> None:
    model, x = Small().eval(), torch.randn(2, 4)
    exported = torch.export.export(model, (x,))
    kept = from_exported_program(exported, keep_params_as_input=True)
    names = [param.name for param in kept["main"].params]
    assert names == ["x", "p_fc_weight", "p_fc_bias", "b_scale"]
    assert kept["main"].attrs["num_input"] == 1
    mod, params = relax.frontend.detach_params(kept)
    assert "params" in kept["main"].attrs and "params" not in mod["main"].attrs
    (found,) = run(mod, x.numpy(), *params["main"])
    agree(found, model(x))
    assert all(isinstance(param, tilewright.runtime.Tensor) for param in params["main"])
    agree(relax.VirtualMachine(relax.build(mod))["main"](x, *params["main"])[0].numpy(), model(x))
    bound = relax.transform.BindParams("main", dict(zip(names[1:], params["main"])))(mod)
    agree(run(bound, x.numpy())[0], model(x))


def test_constants_do_not_follow_the_model() -> None:
    model, x = Small().eval(), torch.randn(2, 4)
    expected = model(x)
    mod = from_exported_program(torch.export.export(model, (x,)))
    with torch.no_grad():
        model.fc.weight.zero_()
    agree(run(mod, x.numpy())[0], expected)


def test_single_result_unwrapped() -> None:
    exported = export(lambda x: x + 1, torch.ones(3))
    mod = from_exported_program(exported, unwrap_unit_return_tuple=True)
    agree(run(mod, np.ones(3, "float32")), torch.full((3,), 2.0))


def test_results_that_are_inputs_and_views() -> None:
    x = torch.randn(2, 3)
    mod = from_exported_program(export(lambda x: (x, x.contiguous(), x * 2, x * 2), x))
    relax.verify_graph(mod)
    found = run(mod, x.numpy())
    for got, want in zip(found, (x, x, x * 2, x * 2)):
        agree(got, want)


def test_inputs_fixed_by_the_export_are_left_out() -> None:
    exported = export(lambda x, mask, n: x * n if mask is None else x, torch.ones(2), None, 3)
    mod = from_exported_program(exported)
    assert len(mod["main"].params) == 1
    agree(run(mod, np.ones(2, "float32"))[0], torch.full((2,), 3.0))


def test_bfloat16_parameters() -> None:
    weight = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    mod = from_exported_program(export(lambda x: x * weight.float(), torch.ones(2)))
    agree(run(mod, np.ones(2, "float32"))[0], weight.float())


def test_writes_into_intermediate_tensors() -> None:
    def model(x: Any) -> Any:
        y = x * 2
        y[0] = 0
        y[:, 1:] += 1
        return y.relu_()

    x = torch.randn(3, 4)
    mod = from_exported_program(export(model, x))
    agree(run(mod, x.numpy())[0], model(x))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.sum() > 0, lambda a: a.relu(), lambda a: a.sin(), (x,))

        def first(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return inner(self.linear(x), y), x.sum() + x.shape[0]

        def second(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.sin(), y.mean()

        a, b = torch.cond(x.sum() > 0, first, second, (x, y))
        return a + 1, b


def test_branches_are_computed_as_they_are_taken() -> None:
    model = Branches().eval()
    x, y = torch.rand(3, 4), torch.rand(5)
    exported = torch.export.export(
        model, (x, y), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}, "y": None}
    )
    mod = from_exported_program(exported)
    assert mod.script().count("if ") == 2
    executable = relax.build(mod, "llvm")
    for a in (x, -x):
        for b in (y, -y):
            for found, expected in zip(executable["main"](a, b), model(a, b), strict=True):
                agree(found, expected)


def test_no_grad_inside_the_model() -> None:
    def model(x: Any) -> Any:
        with torch.no_grad():
            y = x.sin()
        return y + 1

    x = torch.randn(3)
    agree(run(from_exported_program(export(model, x)), x.numpy())[0], model(x))


# ---- symbolic sizes ---------------------------------------------------------------------------


def test_symbolic_sizes_keep_their_names() -> None:
    def model(x: Any) -> Any:
        heads = x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2)
        made = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return torch.cat([made, made], 0).mean(-1) + torch.arange(x.shape[1]) * x.shape[0]

    sizes = {"inputs": ({0: Dim("batch", min=2, max=64), 1: Dim("tokens", min=2, max=64)},)}
    exported = export(model, torch.randn(2, 5, 8), dynamic_shapes=sizes)
    mod = from_exported_program(exported)
    relax.verify_graph(mod)
    shape = mod["main"].params[0].shape
    assert [extent.name for extent in shape if isinstance(extent, Var)] == ["batch", "tokens"]
    for batch, tokens in ((2, 5), (3, 7)):
        x = torch.randn(batch, tokens, 8)
        agree(run(mod, x.numpy())[0], model(x))


def test_symbolic_slices_and_sizes_as_results() -> None:
    def model(x: Any) -> Any:
        last = x.shape[0] - 2
        return x[:last], x[last:], x[-1], x.var(0), x.shape[0] * 2

    sizes = {"inputs": ({0: Dim("n", min=4, max=64)},)}
    mod = from_exported_program(export(model, torch.randn(6, 3), dynamic_shapes=sizes))
    x = torch.randn(9, 3)
    found = run(mod, x.numpy())
    for got, want in zip(found[:4], model(x)):
        agree(got, want)
    assert found[4] == 18 and found[4].dtype == "int64"


def test_sizes_that_only_data_tell_are_not_returned() -> None:
    exported = export(lambda x: torch.nonzero(x) * 2, torch.ones(3))
    with pytest.raises(ImportModelError, match=r"output 0 has the shape .*only data.*static"):
        from_exported_program(exported)


# ---- errors -----------------------------------------------------------------------------------


def test_all_unknown_operators_are_named_with_their_place() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            y = torch.special.airy_ai(x[:, :3])
            return self.inner(y) + torch.randperm(3)

    class Inner(nn.Module):
        def forward(self, y: Any) -> Any:
            z = torch.special.i0e(y)
            return z + torch.special.i0e(z)

    with pytest.raises(ImportModelError) as caught:
        from_exported_program(torch.export.export(Model().eval(), (torch.randn(4, 4),)))
    text = str(caught.value)
    for name in ("special_airy_ai", "special_i0e", "randperm"):
        assert f"aten.{name}.default" in text
    assert "draws random numbers" in text
    assert f"{Path(__file__).name}:" in text
    assert "z = torch.special.i0e(y)" in text and "in layer 'inner'" in text
    assert "custom_convert_map" in text


def test_near_matches_of_unknown_operators() -> None:
    with torch.library._scoped_library("aten_like", "DEF") as library:
        library.define("softmaxx(Tensor x, int dim) -> Tensor")
        library.impl("softmaxx", lambda x, dim: x.softmax(dim), "CompositeExplicitAutograd")
        library.impl("softmaxx", lambda x, dim: torch.empty_like(x), "Meta")
        exported = export(lambda x: torch.ops.aten_like.softmaxx(x, 0), torch.randn(3))
        with pytest.raises(ImportModelError, match=r"near: .*softmax") as caught:
            from_exported_program(exported)
        assert "aten_like.softmaxx.default: node 'softmaxx'" in str(caught.value)

        def convert(node: torch.fx.Node, importer: ExportedProgramImporter) -> Any:
            x, dim = importer.retrieve_args(node)
            assert importer.env[node.args[0]] is x
            return importer.block_builder.emit(relax.op.nn.softmax(x, dim))

        x = torch.randn(3)
        for name in ("aten_like.softmaxx.default", "softmaxx.default"):
            mod = from_exported_program(exported, custom_convert_map={name: convert})
            agree(run(mod, x.numpy())[0], x.softmax(0))


def test_wrong_converter_is_caught() -> None:
    converters = {
        "aten.sin.default": lambda node, importer: relax.op.sum(*importer.retrieve_args(node))
    }
    with pytest.raises(ImportModelError, match=r"converted to Tensor.*PyTorch has Tensor"):
        from_exported_program(
            export(lambda x: x.sin(), torch.ones(3)), custom_convert_map=converters
        )


def test_training_mode_updates_running_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).train()
    x = torch.randn(2, 1, 3, 3)
    made = tilewright.compile(torch.export.export(model, (x,)))
    for _ in range(2):
        torch.testing.assert_close(made(x), model(x))
    running = made._calling._state["1.running_var"]
    torch.testing.assert_close(running, model[1].running_var)


def test_active_dropout_is_refused() -> None:
    exported = torch.export.export(nn.Dropout(0.5).train(), (torch.randn(2),))
    with pytest.raises(ImportModelError, match=r"model\.eval\(\)"):
        from_exported_program(exported)


def test_dropout_at_rest_keeps_everything_and_says_so() -> None:
    class Kept(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.native_dropout(x, 0.5, False)

    x = torch.randn(2, 3)
    made = tilewright.compile(torch.export.export(Kept(), (x,)))
    for found, expected in zip(made(x), Kept()(x), strict=True):
        torch.testing.assert_close(found, expected)


class Cache(nn.Module):
    """Writes into a buffer and into an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 2))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Any, seen: Any) -> Any:
        self.rows[1:2] = x
        self.count += 1
        seen.add_(x)
        return {"rows": self.rows * 2, "none": None, "three": 3}, self.count + 0


def test_buffers_and_inputs_are_written() -> None:
    made = tilewright.compile(Cache(), example_inputs=(torch.ones(1, 2), torch.zeros(1, 2)))
    for seen in (torch.zeros(1, 2), torch.zeros(2, 2).T[:1], np.zeros((1, 2), "float32")):
        model = Cache()
        expected_seen = torch.zeros(1, 2)
        x = torch.randn(1, 2)
        expected, _ = model(x, expected_seen)
        found, count = made(x, seen)
        torch.testing.assert_close(found["rows"], expected["rows"])
        assert found["none"] is None and found["three"] == 3
        torch.testing.assert_close(torch.as_tensor(seen), expected_seen)
    assert int(count) == 3


def test_written_buffers_are_parameters_and_results() -> None:
    exported = torch.export.export(Cache().eval(), (torch.ones(1, 2), torch.zeros(1, 2)))
    main = from_exported_program(exported)["main"]
    assert [param.name for param in main.params] == ["x", "seen", "b_rows", "b_count"]
    # In the order of PyTorch's signature: buffers, inputs, outputs that are tensors.
    results = run(IRModule({"main": main}), *[np.ones((1, 2), "float32")] * 2,
                  np.zeros((3, 2), "float32"), np.array(0))  # fmt: skip
    assert [result.ndim for result in results] == [2, 0, 2, 2, 0]


def test_numbers_from_tensors() -> None:
    def scaled(x: Any, y: Any) -> Any:
        value = y.item()
        return x * value, value / 2

    made = tilewright.compile(export(scaled, torch.ones(2), torch.tensor(1.5)))
    found, half = made(torch.ones(2), torch.tensor(2.5))
    assert found.tolist() == [2.5, 2.5] and float(half) == 1.25


def test_bags_of_symbolic_size() -> None:
    table = torch.nn.EmbeddingBag(9, 5, mode="mean")
    batch, length = Dim("batch", min=2), Dim("length", min=2)
    sizes = ({0: batch, 1: length},)
    made = tilewright.compile(
        table, example_inputs=(torch.randint(0, 9, (3, 4)),), dynamic_shapes=sizes
    )
    for shape in ((3, 4), (2, 7)):
        rows = torch.randint(0, 9, shape)
        agree(made(rows), table(rows))


def test_ranges_by_a_symbolic_step() -> None:
    def model(x: Any) -> Any:
        return torch.arange(0, x.shape[0] * x.shape[1], x.shape[1])

    sizes = {"inputs": ({0: Dim("n", min=2), 1: Dim("m", min=2)},)}
    made = tilewright.compile(export(model, torch.ones(3, 4), dynamic_shapes=sizes))
    assert made(torch.ones(2, 5)).tolist() == [0, 5]


def test_roots_of_symbolic_sizes() -> None:
    exported = export(
        lambda x: x / x.shape[0] ** 0.5, torch.ones(4), dynamic_shapes=(({0: Dim("n")},),)
    )
    assert tilewright.compile(exported)(torch.ones(16)).tolist() == [0.25] * 16


def test_something_else_is_refused() -> None:
    with pytest.raises(ImportModelError, match=r"got Linear; make one with torch\.export\.export"):
        from_exported_program(nn.Linear(1, 1))


# ---- guards -----------------------------------------------------------------------------------


def _of_rows(decide: Any, rows: int, **dim: int) -> Any:
    class Deciding(nn.Module):
        def forward(self, given: Any) -> Any:
            return decide(given["x"])

    size = torch.export.Dim("rows", **dim) if dim else torch.export.Dim.AUTO
    example = ({"x": torch.randn(rows, 3)},)
    return torch.export.export(Deciding(), example, dynamic_shapes=({"x": {0: size}},))


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "decide, rows, wrong",
    [
        (lambda x: x * 2 if x.shape[0] > 5 else x + 1, 8, 5),
        (lambda x: x * 2 if x.shape[0] > 5 else x + 1, 4, 6),
        (lambda x: x if x.shape[0] % 3 == 0 else -x, 9, 4),
        (lambda x: x if x.shape[0] // 2 != 4 else -x, 6, 8),
        (lambda x: x if x.shape[0] % 2 else -x, 5, 4),
        (lambda x: x if x.shape[0] / 2 > 3.2 else -x, 9, 4),
        (lambda x: x if max(x.shape[0], 5) > 6 else -x, 9, 4),
        (lambda x: x if min(x.shape[0], 9) < 4 else -x, 3, 7),
        (lambda x: x if abs(x.shape[0] - 8) < 3 else -x, 9, 2),
        (lambda x: x if round(x.shape[0] / 3) == 3 else -x, 9, 4),
        (lambda x: x if int(x.shape[0] * 1.5) > 12 else -x, 9, 8),
        (lambda x: x if int(x.shape[0] ** 0.5) == 3 else -x, 9, 16),
        (lambda x: x if x.shape[0] & 1 == 0 else -x, 8, 7),
        (lambda x: x if x.shape[0] ** 3 > 100 else -x, 8, 4),
        (lambda x: x if 2 ** x.shape[0] > 100 else -x, 8, 4),
        (lambda x: x if (x.shape[0] * 1.5) % 2 > 0.4 else -x, 9, 8),
        (lambda x: x if max(x.shape[0], 4.5) > 5 else -x, 9, 4),
        (lambda x: x if x.shape[0] | 1 == 9 else -x, 8, 4),
        (lambda x: x if x.shape[0] - 5 != 1 else -x, 9, 6),
        (lambda x: x.unfold(0, 3, 2), 9, 2),
    ],
)
def test_sizes_that_the_export_excluded_are_refused(
    decide: Any, rows: int, wrong: int, saved: bool, tmp_path: Path
) -> None:
    program = _of_rows(decide, rows)
    if saved:
        torch.export.save(program, str(tmp_path / "m.pt2"))
        program = load_exported_program(tmp_path / "m.pt2")
    made = tilewright.compile(program)
    x = torch.randn(rows, 3)
    torch.testing.assert_close(made({"x": x}), decide(x))
    with pytest.raises(RuntimeError, match="the model was exported for sizes with "):
        made({"x": torch.randn(wrong, 3)})


def test_ranges_of_sizes_are_those_of_pytorch() -> None:
    made = tilewright.compile(_of_rows(lambda x: x + 1, 4, min=4, max=6))
    for rows, fits in ((3, False), (4, True), (6, True), (7, False)):
        x = torch.randn(rows, 3)
        if fits:
            torch.testing.assert_close(made({"x": x}), x + 1)
        else:
            with pytest.raises(RuntimeError, match=f"here rows = {rows}"):
                made({"x": x})


def test_few_results_are_no_reason_to_refuse() -> None:
    """An export takes extents for other than 1, those of results too."""
    model = nn.Conv1d(2, 3, 3)
    program = torch.export.export(
        model, (torch.randn(2, 2, 9),), dynamic_shapes=({2: torch.export.Dim.AUTO},)
    )
    x = torch.randn(2, 2, 3)
    torch.testing.assert_close(tilewright.compile(program)(x), model(x))


def test_strides_are_no_reason_to_refuse() -> None:
    """Exports compare strides, which are products of ``max(1, size)``: of one pixel, all are 1."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3)

        def forward(self, x: Any) -> Any:
            middle = self.first(x)
            return self.second(middle) + middle[:, :, 1:-1, 1:-1]

    model, auto = Twice(), torch.export.Dim.AUTO
    program = torch.export.export(
        model, (torch.randn(2, 2, 9, 8),), dynamic_shapes=({0: auto, 2: auto, 3: auto},)
    )
    made = tilewright.compile(program)
    for shape in ((2, 2, 9, 8), (1, 2, 5, 6), (3, 2, 5, 5), (2, 2, 7, 5)):
        x = torch.randn(shape)
        torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="the model was exported for sizes with"):
        made(torch.randn(2, 2, 4, 8))


def test_guards_without_a_form_are_named(caplog: pytest.LogCaptureFixture) -> None:
    made = tilewright.compile(_of_rows(lambda x: x if round(x.shape[0] / 4, 1) > 1 else -x, 9))
    assert "isn't checked when it is called (rounding to digits" in caplog.text
    x = torch.randn(8, 3)
    torch.testing.assert_close(made({"x": x}), x)


# ---- files ------------------------------------------------------------------------------------


def test_file_is_loaded(tmp_path: Path) -> None:
    model, x = Small().eval(), torch.randn(2, 4)
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(model, (x,)), str(path))
    mod = from_exported_program(load_exported_program(path))
    agree(run(mod, x.numpy())[0], model(x))


def test_files_that_are_no_programs(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="no file"):
        load_exported_program(tmp_path / "missing.pt2")
    other = tmp_path / "weights.bin"
    other.write_bytes(b"1")
    with pytest.raises(ImportModelError, match=r"expected a \.pt2 file"):
        load_exported_program(other)
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"not an archive")
    with pytest.raises(ImportModelError, match="can't be read as an exported program"):
        load_exported_program(broken)


def test_why_a_program_is_unreadable_is_said(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.pt2", tmp_path / "cut.pt2"
    torch.export.save(torch.export.export(Small().eval(), (torch.randn(2, 4),)), str(whole))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(cut, "w") as target:
        for name in source.namelist():
            if not name.endswith("weight_0"):
                target.writestr(name, source.read(name))
    with pytest.raises(ImportModelError, match="weight_0: file not found"):
        load_exported_program(cut)


def test_pytorch_is_imported_only_when_needed() -> None:
    code = "import sys, tilewright.relax.frontend.torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_pytorch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"tilewright\[torch\]"):
        from_exported_program(object())
