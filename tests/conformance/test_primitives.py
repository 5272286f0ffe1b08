"""Every primitive of the registry accepts, refuses, replays and works on symbolic shapes."""

from __future__ import annotations

import importlib
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance_cases import Accept, Example, Refuse

from tilewright.arith import simplify
from tilewright.ir import (
    IRModule,
    as_int,
    assert_structural_equal,
    const,
    free_vars,
    substitute,
)
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis.verify import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import PRIMITIVES, Schedule, Trace
from tilewright.tir.schedule.reference import COMMON_PRECONDITIONS, reference

CASES: list[Any] = [
    case
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
    for case in importlib.import_module(path.stem).CASES
]
ACCEPTED = [case for case in CASES if isinstance(case, Accept)]
REFUSED = [case for case in CASES if isinstance(case, Refuse)]
EXAMPLES = {case.primitive: case for case in CASES if isinstance(case, Example)}
NAMES = sorted(name for name, _ in PRIMITIVES.items())


def _numbered(cases: list[Any]) -> list[Any]:
    counts: dict[str, int] = {}
    made = []
    for case in cases:
        number = counts[case.primitive] = counts.get(case.primitive, 0) + 1
        made.append(pytest.param(case, id=f"{case.primitive}-{number}"))
    return made


@pytest.mark.parametrize("name", NAMES)
def test_is_covered(name: str) -> None:
    about = reference(PRIMITIVES.get(name))
    assert about.preconditions is not None, "the docstring has no section Preconditions"
    accepted = [case for case in ACCEPTED if case.primitive == name]
    assert accepted, "no Accept case"
    assert any(case.sizes for case in accepted), "no Accept case with symbolic shapes"
    rules = [case.rule for case in REFUSED if case.primitive == name]
    for sentence in about.preconditions:
        assert any(rule in sentence for rule in rules), f"no Refuse case breaks {sentence!r}"
    for rule in rules:
        sentences = (*about.preconditions, *COMMON_PRECONDITIONS)
        fits = [sentence for sentence in sentences if rule in sentence]
        assert len(fits) == 1, f"{rule!r} is a part of {len(fits)} preconditions"


@pytest.mark.parametrize("sentence", COMMON_PRECONDITIONS)
def test_common_preconditions_are_covered(sentence: str) -> None:
    assert len({case.primitive for case in REFUSED if case.rule in sentence}) > 1


@pytest.mark.parametrize("name", [name for name, item in PRIMITIVES.items() if not item.pure])
def test_has_an_example(name: str) -> None:
    about = reference(PRIMITIVES.get(name))
    assert about.before and about.after, "the docstring has no Before and After"
    assert name in EXAMPLES


@pytest.mark.parametrize("case", _numbered(ACCEPTED))
def test_accepts(case: Accept) -> None:
    original = case.program()
    sch = Schedule(original, seed=7)
    case.apply(sch)
    verify(sch.mod)
    used = {instruction.name for instruction in sch.trace}
    if PRIMITIVES.get(case.primitive).recorded:
        assert case.primitive in used
    _check_replay(sch, original)
    if case.keeps_meaning:
        for sizes in case.sizes or ({},):
            _check_meaning(original, sch.mod, sizes)


def _check_replay(sch: Schedule, original: Any) -> None:
    again = Schedule(original, seed=7)
    Trace.from_json(json.loads(json.dumps(sch.trace.as_json()))).apply_to_schedule(again)
    assert_structural_equal(again.mod, sch.mod)
    again = Schedule(original, seed=7)
    scope: dict[str, Any] = {}
    exec(str(sch.trace), scope)
    scope["apply_trace"](again)
    assert_structural_equal(again.mod, sch.mod)


def _check_meaning(original: Any, scheduled: IRModule, sizes: dict[str, int]) -> None:
    before = original if isinstance(original, PrimFunc) else original["main"]
    rng = np.random.default_rng(3)
    made = []
    for buffer in before.buffers:
        shape = [_extent(extent, sizes) for extent in buffer.shape]
        made.append(rng.integers(-4, 5, shape).astype(buffer.dtype))
    expected, actual = [item.copy() for item in made], made
    run(before, *expected)
    run(scheduled, *actual)
    for left, right in zip(expected, actual):
        np.testing.assert_allclose(right, left, rtol=1e-6)


def _extent(extent: Any, sizes: dict[str, int]) -> int:
    values = {var: const(sizes[var.name]) for var in free_vars(extent)}
    known = as_int(simplify(substitute(extent, values)))
    assert known is not None
    return known


@pytest.mark.parametrize("case", _numbered(REFUSED))
def test_refuses(case: Refuse) -> None:
    sch = Schedule(case.program(), seed=7)
    with pytest.raises(ScheduleError) as caught:
        case.apply(sch)
    text = str(caught.value)
    assert re.search(case.message, text), text
    assert text.startswith(case.primitive), text


@pytest.mark.parametrize("case", _numbered(REFUSED))
def test_refusal_changes_nothing(case: Refuse) -> None:
    class Watched(Schedule):
        pass

    sch = Watched(case.program(), seed=7)
    # What the case prepares is allowed to change the module; the refused call is not.
    item = PRIMITIVES.get(case.primitive)
    seen: list[Any] = []

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen[:] = [self.mod, len(self.trace)]
        return item.call(self, *args, **kwargs)

    setattr(Watched, case.primitive, call)
    with pytest.raises(ScheduleError):
        case.apply(sch)
    assert seen[0] is sch.mod
    assert seen[1] == len(sch.trace)


@pytest.mark.parametrize("case", _numbered(list(EXAMPLES.values())))
def test_example(case: Example) -> None:
    about = reference(PRIMITIVES.get(case.primitive))
    sch = Schedule(_program(about.before, case.params, case.before))
    case.apply(sch)
    expected = _program(about.after, case.params, case.after)
    assert_structural_equal(sch.mod["main"], expected)


def _program(code: str, params: dict[str, str], allocated: str) -> PrimFunc:
    listed = []
    for name, shape in params.items():
        if not shape.startswith("("):
            listed.append(f"{name}: {shape}")
            continue
        extents, _, dtype = shape.partition(":")
        listed.append(f'{name}: T.Buffer({extents}, "{dtype.strip() or "float32"}")')
    body = textwrap.indent(f"{textwrap.dedent(allocated)}\n{textwrap.dedent(code)}", "    ")
    head = "from tilewright.script import tir as T\n@T.prim_func\n"
    return parse(f"{head}def main({', '.join(listed)}):\n{body}")
