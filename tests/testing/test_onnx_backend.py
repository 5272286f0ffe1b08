"""ONNX's backend tests: how they are judged, and a few of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from tilewright.testing.onnx_backend.__main__ import main, page
from tilewright.testing.onnx_backend.check import cases, check, difference, node_cases


def test_tests_of_models_in_files() -> None:
    found = cases("simple")
    assert check(found["test_sign_model"]).status == "passed"
    assert check(found["test_expand_shape_model1"]).status == "passed, inputs fixed"


# A few of each family; all of them are run by the command.
SOME = {
    "affinegrid": "affine_grid_3d",
    "attention": "attention_4d_with_past_and_present",
    "cast": "cast_FLOAT_to_FLOAT8E5M2FNUZ cast_FLOAT16_to_INT4 cast_FLOAT_to_FLOAT4E2M1",
    "col2im": "col2im_pads",
    "convtranspose": "convtranspose_autopad_same convtranspose_output_shape",
    "deformconv": "deform_conv_with_mask_bias",
    "dequantizelinear": "dequantizelinear_axis dequantizelinear_blocked",
    "dft": "dft_inverse",
    "dynamicquantizelinear": "dynamicquantizelinear_expanded",
    "einsum": "einsum_batch_diagonal",
    "gridsample": "gridsample_bicubic gridsample_volumetric_bilinear_align_corners_0",
    "gru": "gru_seq_length",
    "if_": "if_seq",
    "loop": "loop11 loop16_seq_none",
    "lstm": "lstm_with_peepholes",
    "pad": "wrap_pad",
    "qlinearconv": "qlinearconv",
    "resize": "resize_upsample_sizes_cubic resize_downsample_scales_linear_antialias",
    "roialign": "roialign_mode_max",
    "scan": "scan9_sum",
    "sequence_map": "sequence_map_add_2_sequences",
    "softmax_cross_entropy_loss": "sce_mean_weight_ii_4d_log_prob",
    "unique": "unique_sorted_with_axis",
}


@pytest.mark.parametrize("module", SOME)
def test_some_operators(module: str) -> None:
    found = node_cases(module)
    for name in SOME[module].split():
        outcome = check(found[f"test_{name}"])
        assert outcome.status.startswith("passed"), f"{name}: {outcome.reason}"


@pytest.mark.slow
def test_all_tests_of_operators(tmp_path: Path) -> None:
    assert main(["--folder", str(tmp_path)]) == 0


def test_a_run_is_taken_up_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "test_sign_model,test_expand_shape_model?,test_strnorm_model_nostopwords*"
    options = ["--kind", "simple", "--folder", str(tmp_path / "found")]
    section = tmp_path / "page.md"
    section.write_text("# A page\n<!-- onnx_backend -->\n<!-- end -->\nmore\n")
    assert main([*options, "--tests", "test_sign_model", "--jobs", "1"]) == 0
    assert "| simple | 1 | 1 | 100.00% | 0 | 0 | 0 | 0 |" in capsys.readouterr().out
    assert main([*options, "--tests", names, "--jobs", "1", "--page", str(section)]) == 0
    assert capsys.readouterr().out.strip() in section.read_text()
    found = section.read_text()
    assert "| simple | 5 | 5 | 100.00% | 4 | 0 | 0 | 1 | 83.33% |" in found
    assert "tensors of STRING are not supported" in found


def test_outcomes_are_listed_by_reason() -> None:
    outcomes = {
        "a": ("passed", ""),
        "b": ("unsupported", "Foo (node 'b'): no; known: Bar"),
        "c": ("unsupported", "Foo (node 'c'): no; known: Bar"),
    }
    assert "| unsupported | Foo: no | 2 | `b`, `c` |" in page({"node": outcomes}, "ONNX")


def test_differences() -> None:
    x = np.array([1, np.nan], np.float32)
    assert difference(x, x.copy(), 1e-3, 1e-7) == ""
    assert "1 of 2 elements differ, at [0]" in difference(x + 1, x, 1e-3, 1e-7)
    assert "shape is [2] instead of [1, 2]" in difference(x, x[None], 1e-3, 1e-7)
    assert "dtype is float32 instead of float64" in difference(x, x.astype("float64"), 1e-3, 1e-7)
    assert "sequence of 1" in difference(x, [x], 1e-3, 1e-7)
    assert difference([x], [x], 1e-3, 1e-7) == ""
