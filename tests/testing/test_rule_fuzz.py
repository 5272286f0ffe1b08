"""Random programs through rules: they find nothing, but what is wrong on purpose."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from tests.everyday import few
from tilewright.dlight import ScheduleRule, first_applied, start_schedule
from tilewright.ir import FloatImm, IntImm, add, const, rewrite_bottom_up
from tilewright.target import Target
from tilewright.testing.fuzz import __main__ as command
from tilewright.testing.fuzz import ruled
from tilewright.testing.fuzz.driver import Counts, Finding, Options
from tilewright.testing.fuzz.operators import OPERATORS, operator
from tilewright.testing.fuzz.ruled import (
    program_for_rules,
    rule_sets,
    run_rule_cases,
    smaller_program,
)
from tilewright.testing.fuzz.session import Session
from tilewright.testing.fuzz.shrink import reproduction
from tilewright.tir import BufferStore
from tilewright.tir.schedule import Schedule


def fuzz(cases: list[str]) -> tuple[Counts, list[Finding]]:
    counts, found = Counts(), []
    run_rule_cases(cases, Options(), counts=counts, enough=lambda: False, found=found.append)
    return counts, found


@pytest.mark.parametrize("family", ["operators", "stages", "kernels"])
def test_rules_keep_the_meaning(family: str) -> None:
    counts, found = fuzz([f"suite-{n}@{family}" for n in range(5)])
    assert not found, reproduction(found[0])
    assert counts.programs == 5
    assert counts.accepted[ruled.ALL] >= 4
    assert sum(counts.refused.values()) > 5


def test_programs_for_rules_are_of_many_kinds() -> None:
    programs = [program_for_rules(f"kinds-{n}") for n in range(150)]
    forms = {form for program in programs for form in program.forms}
    assert len(forms & set(OPERATORS)) > 6
    assert {"reduction", "matmul nn"} <= forms
    assert any(program.symbolic for program in programs)


@few("label", sorted(OPERATORS), every=4)
def test_interpreter_and_oracle_agree_on_operators(label: str) -> None:
    case = next(
        f"agree-{n}@operators"
        for n in range(500)
        if program_for_rules(f"agree-{n}@operators").forms == (label,)
    )
    session = Session(program_for_rules(case))
    session.check_start()
    assert not session.not_covered


class _Wrong(ScheduleRule):
    """Splits a loop and then adds one to what is stored."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule:
        block = next(name for name in sch.state.index("main").blocks if name != "root")
        loops = sch.get_loops(block)
        sch.split(loops[0], [None, 2])
        sch.annotate(block, "note", 1)
        found = sch.state.get_block(sch.get_block(block)).block

        def more(node: object) -> object:
            if type(node) is BufferStore and not isinstance(node.value, (FloatImm, IntImm)):
                return node.replace(value=add(node.value, const(1, node.value.dtype)))
            return node

        sch.state.replace(found, found.replace(body=rewrite_bottom_up(found.body, more)))
        return sch


class _Crashing(ScheduleRule):
    """Raises what no rule may."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule:
        raise IndexError("not for users")


def test_a_wrong_rule_is_found_and_its_program_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruled, "rule_sets", lambda: {"wrong": (_Wrong(),)})
    _, found = fuzz(["wrong-0@kernels", "wrong-1@kernels"])
    assert {finding.key for finding in found} == {("rule differs", "wrong")}
    # No primitive is to blame, so it must have been done beside them.
    assert "each of its primitives keeps the meaning" in found[0].fault.detail
    small = smaller_program(found[0], seconds=3)
    assert small.key == found[0].key
    assert sum(small.program.dims.values()) <= sum(found[0].program.dims.values())
    assert "rule differs" in reproduction(small)


def test_the_primitive_that_went_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ruled.RuleSession(program_for_rules("culprit@kernels"), 0, 20.0)
    sch = Schedule(session.start.mod)
    block = next(name for name in sch.state.index("main").blocks if name != "root")
    sch.split(sch.get_loops(block)[0], [None, 2])
    sch.annotate(block, "note", 1)
    trace, calls = sch.trace, []

    def differs(mod: object, primitive: str, *, every: bool = False) -> None:
        calls.append(primitive)
        if primitive == "split":
            raise ruled.Fault("meaning", primitive, "Z differs")

    monkeypatch.setattr(session.start, "compare", differs)
    assert ", split: meaning" in session.culprit(trace)
    assert calls[-1] == "split"


def test_a_rule_that_crashes_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruled, "rule_sets", lambda: {"crashing": (_Crashing(),)})
    _, found = fuzz(["crash-0@operators"])
    assert [finding.key for finding in found] == [("rule crashes", "crashing")]


def test_every_rule_is_tried_alone_and_all_in_order() -> None:
    sets = rule_sets()
    assert [name for name in sets if name != ruled.ALL] == [r.name for r in sets[ruled.ALL]]


@pytest.mark.slow
def test_operators_reach_every_rule() -> None:
    target = Target("native")
    left = {name: rules for name, rules in rule_sets().items() if name != ruled.ALL}
    for number in range(12):
        for label in sorted(OPERATORS):
            func = operator(random.Random(f"reach {number}"), number, label).build()
            for name, rules in list(left.items()):
                begin = start_schedule(func, record=False)
                if begin is None:
                    continue
                with target:
                    if isinstance(first_applied(begin, rules, target), Schedule):
                        del left[name]
    has_dot = target.has("avx512vnni") or target.has("avxvnni")
    assert set(left) <= (set() if has_dot else {"DotProductTile", "Int4ProductKernel"})


def test_the_command_says_which_rules_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("tilewright.scheduling")
    monkeypatch.setattr(logger, "level", logger.level)
    code = command.main(
        ["--rules", "--family", "operators", "--case", "suite-0@operators",
         "--folder", str(tmp_path), "--quiet"]
    )  # fmt: skip
    text = capsys.readouterr().out
    assert code == 0, text
    assert "refused by reason" in text and "faults 0" in text
    assert any(line.split()[:1] == ["Fallback"] for line in text.split("\n"))
