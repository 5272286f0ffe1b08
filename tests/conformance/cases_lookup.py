"""Cases of primitives that find things."""

from __future__ import annotations

from conformance_cases import Accept, Refuse, chain, matmul, symbolic_chain

from tilewright.ir import IRModule
from tilewright.tir.schedule import Schedule

SIZES = ({"n": 5},)


def _two_functions() -> IRModule:
    return IRModule({"first": matmul(), "second": chain()})


def _by_handle(sch: Schedule) -> None:
    """Look for what each question finds, and do something to it."""
    root = sch.get_block("root")
    children = sch.get_child_blocks(root)
    (last,) = sch.get_output_blocks(root)
    (before,) = sch.get_producers(last)
    assert before.name == children[-2].name
    (after,) = sch.get_consumers(children[0])
    assert after.name == children[1].name
    sch.parallel(sch.get_loops(last)[0])
    sch.annotate(before, "hint", 1)
    sch.annotate(after, "other", 2)
    (below,) = sch.get_child_blocks(sch.get_loops(children[0])[0])
    assert below.name == children[0].name


def _has(sch: Schedule) -> None:
    assert sch.has_block("B")
    assert sch.has_block("B", "main")
    assert not sch.has_block("Z")


def _root(name: str) -> Refuse:
    return Refuse(
        name,
        "inside another block",
        chain,
        lambda s: getattr(s, name)("root"),
        "the root block is in no other block",
    )


QUESTIONS = (
    "get_block",
    "get_loops",
    "get_child_blocks",
    "get_producers",
    "get_consumers",
    "get_output_blocks",
)

CASES = [
    *[Accept(name, chain, _by_handle) for name in QUESTIONS],
    *[Accept(name, symbolic_chain, _by_handle, SIZES) for name in QUESTIONS],
    Accept("has_block", chain, _has),
    Accept("has_block", symbolic_chain, _has, SIZES),
    Refuse(
        "get_block",
        "the function is known",
        _two_functions,
        lambda s: s.get_block("C"),
        "say which function is meant",
    ),
    Refuse(
        "get_block",
        "the module has the function",
        _two_functions,
        lambda s: s.get_block("C", "third"),
        "the module has no function 'third'",
    ),
    Refuse(
        "get_block",
        "has a block of that name",
        chain,
        lambda s: s.get_block("Z"),
        "has no block 'Z'",
    ),
    Refuse(
        "has_block",
        "the function is known",
        _two_functions,
        lambda s: s.has_block("C"),
        "say which function is meant",
    ),
    Refuse(
        "has_block",
        "the module has the function",
        _two_functions,
        lambda s: s.has_block("C", "third"),
        "the module has no function 'third'",
    ),
    _root("get_producers"),
    _root("get_consumers"),
]
