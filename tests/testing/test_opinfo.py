"""PyTorch's samples of its operators: how they are judged, and a few of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tilewright.testing.opinfo.__main__ import main  # noqa: E402
from tilewright.testing.opinfo.cases import Case, core_operators, entries, spread  # noqa: E402
from tilewright.testing.opinfo.check import check, difference, is_other_order  # noqa: E402
from tilewright.testing.opinfo.results import LISTED, OUTSIDE, RIGHT, Sample, page  # noqa: E402
from tilewright.testing.workers import Kept  # noqa: E402


def test_core_aten_is_known_by_its_tag() -> None:
    core = core_operators()
    assert core["add"] == ["Tensor", "Scalar"] and "conv2d" not in core
    named = {entry.core for entry in entries().values()}
    unreached = {name for name in core if name not in named}
    assert {name for name in unreached if not name.startswith("sym_")} == {
        "copy", "randperm", "reflection_pad2d", "reflection_pad3d", "replication_pad3d",
    }  # fmt: skip


def test_samples_are_spread() -> None:
    assert list(spread(3, None)) == [0, 1, 2]
    assert list(spread(10, 3)) == [0, 4, 9] and list(spread(2, 1)) == [0]


@pytest.mark.parametrize("name", ["sub", "avg_pool2d_backward(nn.functional.avg_pool2d)"])
def test_samples_of_an_operator_are_right(name: str) -> None:
    cases = entries()[name].cases(torch.float32)
    assert [check(case).status for case in (cases[0], cases[-1])] == ["ok", "ok"]


def test_a_sample_that_is_not_ours_to_judge() -> None:
    def refuse(x: Any) -> Any:
        raise ValueError("no")

    assert check(Case(refuse, [torch.ones(2)])).status == "skipped"
    assert check(Case(lambda x: x * 2, [torch.ones(2).to_sparse()])).status == "skipped"
    untraceable = Case(lambda x: torch.from_numpy(x.numpy() + 1), [torch.ones(2)])
    assert check(untraceable).status == "unexportable"


def test_an_unknown_operator_is_named() -> None:
    found = check(Case(lambda x: torch.special.airy_ai(x), [torch.eye(2)]))
    assert found.status == "refused" and "aten.special_airy_ai.default" in found.reason


def test_equal_elements_may_be_in_another_order() -> None:
    x = torch.tensor([1, 0, 1])
    case = Case(lambda x: x.sort(), [x])
    program = torch.export.export(_Call(case.call), (x,))
    values, indices = x.sort()

    def is_right(values: Any, indices: list[int]) -> bool:
        return is_other_order(program, case, (values, torch.tensor(indices)), x.sort())

    assert is_right(values, [1, 0, 2]) and is_right(values, [1, 2, 0])
    assert not is_right(values, [0, 1, 2])  # other elements
    assert not is_right(values, [1, 0, 0])  # one twice
    assert not is_right(values, [1, 0, 3]) and not is_right(values + 1, indices.tolist())
    stable = torch.export.export(_Call(lambda x: x.sort(stable=True)), (x,))
    assert not is_other_order(stable, case, (values, torch.tensor([1, 2, 0])), x.sort())


class _Call(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Any) -> Any:
        return self.call(x)


def test_differences() -> None:
    x = torch.tensor([1.0, float("nan")])
    assert difference(x, x.clone()) == ""
    assert difference([x], [x + 1]) == "1.0 instead of 2.0"
    assert difference([x], [x + 1], numbers=False) == ""
    assert "float32 of (2,) instead of torch.float64" in difference(x, x.double())
    assert difference([x], [x, x]) == "1 results instead of 2"


def test_a_run_is_taken_up_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ops", "bitwise_not", "--dtypes", "bool", "--folder", str(tmp_path), "--jobs", "1"]
    assert main([*options, "--samples", "1"]) == 0
    assert "| bool | 1 | 1 | 100.00% | 0 | 0 | 0 | 0 |" in capsys.readouterr().out
    Kept(tmp_path).add("bool bitwise_not 0", "wrong", "True instead of False")
    assert main([*options, "--samples", "2"]) == 1
    found = capsys.readouterr().out
    assert "| bool | 2 | 1 | 50.00% | 0 | 1 | 0 | 0 |" in found
    assert "| wrong: True instead of False | 1 | bool | `bitwise_not` |" in found
    assert main([*options, "--samples", "2", "--again"]) == 0


def test_outcomes_are_listed_by_reason() -> None:
    outcomes = {
        Sample("int64", "sort", 0): ("refused", "no"),
        Sample("bool", "add", 1): ("refused", "no"),
        Sample("bool", "sort", 2): ("skipped", "PyTorch refuses it: a | b"),
    }
    found = page(outcomes.items(), "Samples")
    assert "| bool | 1 | 0 | 0.00% | 1 | 0 | 0 | 1 |" in found
    assert "| refused: no | 2 | int64, bool | `sort`, `add` |" in found
    assert r"| skipped: PyTorch refuses it: a \| b | 1 | bool | `sort` |" in found


@pytest.mark.slow
def test_core_aten(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    main(["--samples", "4", "--folder", str(folder)])
    right: dict[str, list[bool]] = {}
    for name, (status, _) in Kept(folder).outcomes.items():
        if status not in (LISTED, *OUTSIDE):
            right.setdefault(name.split()[0], []).append(status == RIGHT)
    for dtype, goal in {"float32": 0.98, "int64": 0.98, "bool": 0.98, "bfloat16": 0.95,
                        "float16": 0.95}.items():  # fmt: skip
        assert sum(right[dtype]) >= goal * len(right[dtype]), dtype
