"""The catalogue of architectures and its page; the run itself is ``python -m benchmarks.zoo``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.zoo import build, families, handmade, judge, page  # noqa: E402

MLP = next(entry for entry in families.ENTRIES if entry.name == "mlp")


def test_each_architecture_stands_once_and_is_known() -> None:
    keys = [page.key(entry) for entry in families.ENTRIES]
    assert len(set(keys)) == len(keys) >= 130
    for entry in families.ENTRIES:
        assert entry.library in build._LIBRARIES
        assert entry.library == "handmade" or entry.inputs in build._INPUTS
    own = {entry.name for entry in families.ENTRIES if entry.library == "handmade"}
    assert own == set(handmade.MODELS)


@pytest.mark.parametrize("name", sorted(handmade.MODELS))
def test_own_architectures_run_and_are_the_same_each_time(name: str) -> None:
    entry = next(e for e in families.ENTRIES if (e.library, e.name) == ("handmade", name))
    with torch.no_grad():
        first, second = ([*model(*inputs)] for model, inputs in (build.build(entry),) * 2)
    assert all(torch.isfinite(result).all() for result in first)
    assert judge._difference(first, second) < 1e-5  # PyTorch adds up in any order


def test_page_tells_what_is_right_how_fast_and_what_fails() -> None:
    results = {
        "handmade:mlp": {
            "eager": {"difference": 0.0, "seconds": 4e-3, "build_seconds": 0.0},
            "inductor": {"difference": 1e-7, "seconds": 2e-3, "build_seconds": 9.0},
            "export": {"difference": 2e-6, "seconds": 1e-3, "build_seconds": 1.25},
            "compile": {"difference": 3e-4, "build_seconds": 1.0},
            "frozen": {"difference": 1e-6, "seconds": 8e-4, "build_seconds": 1.5},
        },
        "transformers:bert": {
            "symbolic": {"difference": 0.0, "seconds": 3e-3, "static_seconds": 2e-3}
        },
        "handmade:gcn": {"export": {"error": "ImportModelError: no operator\nmore"}},
    }
    text = page.render(results, "a machine", "a command")
    row = "| `mlp` (handmade) | 4 | 2 | 1 | fails | 4.00 | 2.00 | 2e-06 | 1.2 / 1.0 / 9.0 |"
    assert row in text
    assert "| `bert` (transformers) | 2 | 3 | 1.50 |" in text
    assert "\n1 of 1 right, 1.50 times as long as with known sizes (geometric mean of 1)" in text
    assert "| `mlp` (handmade) | 2 | 0.8 | 2.50 | 1.5 / 9.0 |" in text
    assert "- frozen: 1 of 1 right, 5.00 times as fast as eager" in text
    assert "- export: 1 of 2 right, 4.00 times as fast as eager" in text
    assert "- `handmade:gcn`, export: ImportModelError: no operator\n" in text
    assert "- `handmade:mlp`, compile: differs by 3.0e-04" in text


def test_each_way_gives_pytorch_s_results() -> None:
    for way in judge.WAYS:
        if way != "inductor":  # which takes a compiler of C++
            assert judge._answer(MLP, way, 1, timed=False)["difference"] <= judge.LIMIT, way
    assert set(judge.USUAL) == {*judge.WAYS} - {"frozen"}


def test_symbolic_sizes_are_compared_with_known_ones() -> None:
    answer = judge._answer(MLP, judge.SYMBOLIC, 1, timed=True)
    assert answer["difference"] <= judge.LIMIT
    assert answer["seconds"] > 0 and answer["static_seconds"] > 0
    keys = {entry.name for entry in families.ENTRIES}
    assert keys >= families.SYMBOLIC_NAMES and len(families.SYMBOLIC_NAMES) >= 20


def test_exact_results_have_the_types_of_others() -> None:
    model, inputs = build.build(MLP)
    with torch.no_grad():
        expected = [*model(*inputs)]
        exact = judge._in_float64(model, inputs, expected)
    assert judge._difference(exact, expected) < 1e-5


def test_difference_sees_shapes_types_and_what_isn_t_finite() -> None:
    one = torch.ones(2)
    assert judge._apart(one, one) == 0.0
    assert judge._apart(one + 1e-3, one) == pytest.approx(1e-3, rel=1e-2)
    assert judge._apart(one.double(), one) == float("inf")
    assert judge._apart(one[None], one) == float("inf")
    assert judge._apart(torch.tensor([1.0, float("nan")]), one) == float("inf")
