"""Cases of annotations and the start of post-processing."""

from __future__ import annotations

from conformance_cases import Accept, Example, Refuse, chain, symbolic_chain

from tilewright.ir import const
from tilewright.tir.schedule import Schedule


def _first_loop(sch: Schedule) -> object:
    return sch.get_loops("B")[0]


def _annotated(sch: Schedule) -> object:
    loop = _first_loop(sch)
    sch.annotate(loop, "hint", 4)
    return loop


def _sampled(sch: Schedule) -> object:
    loop = _first_loop(sch)
    value = sch.sample_categorical([4], [1.0], decision=0)
    return sch.annotate(loop, "hint", {"depth": value, "list": [value, None, True]})


def _distrusted(s: Schedule) -> None:
    s.unsafe_annotate_buffer_access("C", 0, "read", lambda *v: [(0, 1)] * len(v))
    s.unannotate("C", "trusted_regions")


CASES = [
    Accept("annotate", chain, _sampled),
    Accept("annotate", chain, lambda s: s.annotate(_first_loop(s), "hint", const(3))),
    Accept("annotate", chain, lambda s: s.annotate(_first_loop(s), "hint", [1, "two", 3.0])),
    Accept(
        "annotate",
        symbolic_chain,
        lambda s: s.annotate(s.get_block("C"), "hint", {"depth": 2}),
        sizes=({"n": 5},),
    ),
    Refuse(
        "annotate",
        "is not ``trusted_regions``",
        chain,
        lambda s: s.annotate(s.get_block("B"), "trusted_regions", True),
        "taken on trust",
    ),
    Refuse(
        "annotate",
        "a key that the compiler reads",
        chain,
        lambda s: s.annotate(_first_loop(s), "pragma_auto_unroll_max_step", "16"),
        r"takes an integer from 0 up; found .16. \(str\)",
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
    Refuse(
        "unannotate",
        "is not ``trusted_regions``",
        chain,
        _distrusted,
        "and so they must be",
    ),
    Example(
        "unannotate",
        lambda s: s.unannotate(_first_loop(s), "unroll_hint"),
        {"A": "(16,)", "B": "(16,)"},
    ),
    Accept("enter_postproc", chain, lambda s: s.enter_postproc()),
    Accept("enter_postproc", symbolic_chain, lambda s: s.enter_postproc(), sizes=({"n": 5},)),
    Example("enter_postproc", lambda s: s.enter_postproc(), {"A": "(16,)", "B": "(16,)"}),
]
