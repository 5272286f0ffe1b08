"""Random operator graphs: a few by rule every day, and that the campaign sees what is wrong."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright import relax
from tilewright.runtime import guarded
from tilewright.testing.graphs import __main__ as campaign
from tilewright.testing.graphs import shrink as shrinking
from tilewright.testing.graphs.__main__ import main
from tilewright.testing.graphs.check import check, whole_case
from tilewright.testing.graphs.compare import Noise, difference
from tilewright.testing.graphs.draw import Case, draw_case
from tilewright.testing.graphs.graph import Step
from tilewright.testing.graphs.shrink import checked_apart, shrink
from tilewright.testing.graphs.width import in_single_precision, product, wide


@pytest.mark.parametrize("number", range(12))
def test_random_graphs_by_rule_are_right(number: int) -> None:
    assert check(whole_case(draw_case(f"everyday-{number}"))) is None


def test_a_name_draws_the_same_graph() -> None:
    first, second = (draw_case("same") for _ in range(2))
    assert [step.name for step in first.steps] == [step.name for step in second.steps]
    assert first.seed == second.seed


def _with_wrong_meaning(case: Case) -> Case | None:
    """The case with a step that means something else than its operator does, if one can."""
    for place, step in enumerate(case.steps):
        if step.results[0].dtype in ("float32", "int32") and (
            0 not in (step.results[0].numbers or (0,))
        ):
            meaning = step.meaning
            wrong = dataclasses.replace(
                step, meaning=lambda *args, meaning=meaning: np.asarray(meaning(*args)) + 3
            )
            case.steps[place] = wrong
            return dataclasses.replace(case, outputs=list(wrong.results))
    return None


def test_a_wrong_result_is_seen() -> None:
    drawn = (_with_wrong_meaning(draw_case(f"everyday-{number}")) for number in range(20))
    problem = check(whole_case(next(case for case in drawn if case is not None)))
    assert problem is not None and problem.kind == "wrong"


def test_a_right_graph_has_nothing_to_shrink() -> None:
    part, problem = shrink("everyday-1")
    assert problem is None and part.steps


def test_the_command_counts_graphs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--count", "3", "--seed", "9", "--jobs", "1", "--folder", str(tmp_path)]) == 0
    assert "3 graphs" in capsys.readouterr().out


def _hang_in_python(*_: object) -> None:
    while True:
        pass


def _hang_in_native_code(*_: object) -> None:
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)  # no signal ends that


@pytest.mark.parametrize(
    ("hang", "says"),
    [(_hang_in_python, "Python code was running"), (_hang_in_native_code, "native code was")],
)
def test_a_case_that_hangs_shows_its_stack(
    hang: Callable[..., None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "check", hang)
    problem = checked_apart(whole_case(draw_case("everyday-1")), seconds=0.5)
    assert problem is not None and problem.key == ("died", "no result within # s")
    assert hang.__name__ in problem.text and says in problem.text
    assert "s of processor time" in problem.text


def test_the_report_of_a_worker_that_hangs_shows_its_stack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the case is fine when it is tried again."""
    monkeypatch.setattr(campaign, "check", _hang_in_python)
    monkeypatch.setattr(campaign, "_SECONDS", 0.5)
    arguments = ["--case", "everyday-1", "--jobs", "1", "--folder", str(tmp_path)]
    assert main(arguments) == 1
    (written,) = tmp_path.iterdir()
    for text in (capsys.readouterr().out, written.read_text()):
        assert "flaky" in text and "_hang_in_python" in text


def test_reading_past_a_guarded_array_kills() -> None:
    array = guarded(np.arange(5, dtype=np.float32))
    assert array.tolist() == [0, 1, 2, 3, 4]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        beyond = np.lib.stride_tricks.as_strided(array, (6,), array.strides)
        os._exit(int(beyond[5]) * 0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.parametrize(
    ("found", "right", "moved", "fine"),
    [
        ([1.0, 2.0], [1.0, 2.0], [], True),
        ([1.0, 2.0000002], [1.0, 2.0], [], False),
        ([1.0, 2.0000002], [1.0, 2.0], [[1.0, 2.0000005]], True),
        ([np.nan], [np.nan], [], True),
        ([np.inf], [1.0], [[1.0]], False),
        ([0.0], [1.0], [[0.0]], True),
    ],
)
def test_results_are_as_near_as_moved_ones(
    found: list[float], right: list[float], moved: list[list[float]], fine: bool
) -> None:
    arrays = [np.asarray(item, np.float32) for item in (found, right, *moved)]
    assert (difference(arrays[0], arrays[1], arrays[2:]) == "") is fine


def test_integers_are_exact_unless_they_jump() -> None:
    right = np.array([1, 2])
    assert difference(np.array([1, 3]), right, [right])
    assert not difference(np.array([1, 3]), right, [np.array([1, 3])])


def test_noise_leaves_zeros_and_integers() -> None:
    noise = Noise(0)
    assert noise(np.zeros(4, np.float32), 8).tolist() == [0, 0, 0, 0]
    assert noise(np.arange(4), 8).tolist() == [0, 1, 2, 3]


def test_every_operator_of_graphs_is_drawn() -> None:
    """What isn't drawn isn't proven: operators without a drawer are named here with a reason."""
    drawn: set[str] = set()
    for number in range(800):
        for step in draw_case(f"names-{number}").steps:
            drawn |= set(_operators(step))
    # Calls have tests of their own: of global functions, closures, in place.
    kinds = {
        "assert_tensor", "call_dps", "call_dps_packed", "call_packed", "call_pure_packed",
        "call_tir", "call_tir_inplace", "call_tir_with_grad", "invoke_closure", "print",
    }  # fmt: skip
    kinds |= {
        name
        for name, _ in relax.op.OPERATORS.items()
        if name.startswith(("memory.", "grad."))  # gradients: tests/relax/test_gradients.py
    }
    reasons = {
        "nn.dropout": "the identity", "stop_lift_params": "the identity",
        "assert_op": "gives nothing",
        "arange": "takes no tensor", "full": "full_like is drawn",
        "nn.attention": "another signature of scaled_dot_product_attention",
        "nn.conv3d_transpose": "as conv2d_transpose", "nn.avg_pool3d": "as avg_pool2d",
        "nn.max_pool3d": "as max_pool2d", "nn.adaptive_avg_pool1d": "as 2d",
        "nn.adaptive_avg_pool3d": "as 2d", "nn.nll_loss": "arithmetic on operators drawn",
        "nn.adaptive_max_pool1d": "as 2d", "nn.adaptive_max_pool3d": "as 2d",
        "nn.max_pool_places": "integers: tests/relax/frontend/test_torch_images.py",
        "nn.adaptive_max_pool_places": "integers: tests/relax/frontend/test_torch_images.py",
        "image.sample_at": "tests/relax/frontend/test_torch_images.py",
        "nn.cross_entropy_with_logits": "arithmetic on operators drawn",
        "call_inplace_packed": "calls Python", "call_with_objects": "calls Python",
        "null_value": "gives no tensor", "quantize": "tests/relax/test_derived_operators.py",
        "dequantize": "tests/relax/test_derived_operators.py",
        "scalar_to_tensor": "takes no tensor", "shape_to_tensor": "takes no tensor",
        "tensor_to_shape": "gives no tensor",
        "image.resize": "by formulas: tests/relax/test_resize.py",
        "nn.append_paged_kv": "tables of pages: tests/relax/test_paged_append.py",
        "nn.paged_attention": "tables of pages: tests/relax/test_attention_graph.py",
        **dict.fromkeys(
            ("fft", "rfft", "irfft_pairs", "stft", "overlap_rows"),
            "known lengths, tuples: tests/relax/test_fourier_operators.py",
        ),
        **dict.fromkeys(
            (
                "image.affine_grid", "image.grid_sample", "image.resize_by_mode",
                "nn.attention_var_len", "nn.instance_norm",
                *(name for name, _ in relax.op.OPERATORS.items() if name.startswith("vision.")),
            ),
            "tests/relax/test_tvm_operators.py",
        ),
    }  # fmt: skip
    left = {name for name, _ in relax.op.OPERATORS.items()} - drawn - kinds - set(reasons)
    assert not left


def _operators(step: Step) -> list[str]:
    call = step.make(*(value.var for value in step.operands))
    names, waiting = [], [call]
    while waiting:
        item = waiting.pop()
        if isinstance(item, relax.Call):
            names.append(item.op_name)
            waiting.extend(item.args)
        elif isinstance(item, relax.Tuple):
            waiting.extend(item.fields)
        elif isinstance(item, relax.TupleGetItem):
            waiting.append(item.tuple_value)
    return names


def test_what_may_overflow_on_the_way_has_no_sure_product() -> None:
    array = np.array([1e30, 1e30, 0, 1e-30], "float32")
    assert product(wide(array)) == 0
    with in_single_precision(), np.errstate(all="ignore"):
        assert np.isnan(product(wide(array)))
        assert wide(np.zeros(1, "float16")).dtype == "float32"
    assert wide(np.zeros(1, "float16")).dtype == "float64"


def test_quotients_by_what_may_be_zero_may_be_infinite() -> None:
    right, found = np.array([-54528.0], "float32"), np.array([np.inf], "float32")
    assert difference(found, right, [np.array([146.0], "float32")]) == ""
    assert difference(found, right, [np.array([-54000.0], "float32")]) != ""
