"""Cases of annotations, storage scopes and the start of post-processing."""

from __future__ import annotations

from conformance_cases import Accept, Example, Refuse, chain, symbolic_chain

from tilewright.tir.schedule import Schedule


def _first_loop(sch: Schedule) -> object:
    return sch.get_loops("B")[0]


def _annotated(sch: Schedule) -> object:
    loop = _first_loop(sch)
    sch.annotate(loop, "hint", 4)
    return loop


CASES = [
    Accept("annotate", chain, lambda s: s.annotate(_first_loop(s), "hint", [1, "two", 3.0])),
    Accept(
        "annotate",
        symbolic_chain,
        lambda s: s.annotate(s.get_block("C"), "hint", {"depth": 2}),
        sizes=({"n": 5},),
    ),
    Example(
        "annotate",
        lambda s: s.annotate(_first_loop(s), "unroll_hint", 4),
        {"A": "(16,)", "B": "(16,)"},
    ),
    Accept("unannotate", chain, lambda s: s.unannotate(_annotated(s), "hint")),
    Accept(
        "unannotate",
        symbolic_chain,
        lambda s: s.unannotate(_annotated(s), "hint"),
        sizes=({"n": 5},),
    ),
    Refuse(
        "unannotate",
        "has the annotation",
        chain,
        lambda s: s.unannotate(_first_loop(s), "hint"),
        "there is no annotation 'hint'",
    ),
    Example(
        "unannotate",
        lambda s: s.unannotate(_first_loop(s), "unroll_hint"),
        {"A": "(16,)", "B": "(16,)"},
    ),
]
