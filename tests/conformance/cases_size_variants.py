"""Cases of the primitive that schedules a program for ranges of a size."""

from __future__ import annotations

import json
from collections.abc import Callable

from conformance_cases import Accept, Example, Refuse, chain, symbolic_chain, symbolic_matmul

from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

AS_IT_IS = "[]"
PARALLEL = """[["get_block", ["B"], ["b0"]], ["get_loops", ["$b0"], ["l0", "l1"]],
    ["parallel", ["$l0"], []]]"""
PARALLEL_ROW = PARALLEL.replace(', "l1"', "")
NOWHERE = '[["get_block", ["nowhere"], ["b0"]]]'
UNSAFE = '[["get_block", ["B"], ["b0"]], ["unsafe_hide_buffer_access", ["$b0", "read", [0]], []]]'
NESTED = """[["get_block", ["root"], ["b0"]],
    ["size_variants", ["$b0", "n", [1], ["[]", "[]"]], []]]"""
MARKED = '[["get_block", ["root"], ["b0"]], ["annotate", ["$b0", "mark", 1], []]]'


def tiled(program: Callable[[], PrimFunc], factor: int) -> str:
    sch = Schedule(program())
    i, j, k = sch.get_loops("C")
    outer, inner = sch.split(i, [None, factor])
    sch.reorder(outer, k, inner, j)
    sch.vectorize(j)
    return json.dumps(sch.trace.as_json())


def refused(rule: str, message: str, *args: object) -> Refuse:
    return Refuse("size_variants", rule, symbolic_chain, lambda s: s.size_variants(*args), message)


CASES = [
    Accept(
        "size_variants",
        symbolic_chain,
        lambda s: s.size_variants("root", "n", [2], [AS_IT_IS, PARALLEL]),
        sizes=({"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}, {"n": 5}),
    ),
    Accept(
        "size_variants",
        symbolic_matmul,
        lambda s: s.size_variants(
            "root", "n", [1, 4], [tiled(symbolic_matmul, factor) for factor in (1, 2, 4)]
        ),
        sizes=({"n": 0}, {"n": 1}, {"n": 2}, {"n": 4}, {"n": 5}),
    ),
    refused("root block", "'B' is not the root block", "B", "n", [2], [AS_IT_IS, PARALLEL]),
    Refuse(
        "size_variants",
        "variants yet",
        symbolic_chain,
        lambda s: [s.size_variants("root", "n", [n], [AS_IT_IS, AS_IT_IS]) for n in (1, 2)],
        "it has variants",
    ),
    refused("name of a size", "the size 'm'", "root", "m", [2], [AS_IT_IS, PARALLEL]),
    Refuse(
        "size_variants",
        "name of a size",
        chain,
        lambda s: s.size_variants("root", "n", [2], [AS_IT_IS, PARALLEL]),
        "no buffer of the function has the size 'n'",
    ),
    refused("limits ascend", r"2 variants need 1 .* got \[\]", "root", "n", [], ["[]", "[]"]),
    refused("limits ascend", r"got \[4, 4\]", "root", "n", [4, 4], ["[]", "[]", "[]"]),
    refused("32 at most", "33 variants", "root", "n", [*range(32)], [AS_IT_IS] * 33),
    refused("no variants itself", "itself", "root", "n", [2], [AS_IT_IS, NESTED]),
    refused("replays on the program", "has no block", "root", "n", [2], [AS_IT_IS, NOWHERE]),
    refused("replays on the program", "caller's word", "root", "n", [2], [AS_IT_IS, UNSAFE]),
    refused("replays on the program", "no JSON text", "root", "n", [2], [AS_IT_IS, "["]),
    refused("differ in the body only", "annotations", "root", "n", [2], [AS_IT_IS, MARKED]),
    Example(
        "size_variants",
        lambda s: s.size_variants("root", "n", [64], [AS_IT_IS, PARALLEL_ROW]),
        {"n": "T.int64", "A": "(n,)", "B": "(n,)"},
    ),
]
