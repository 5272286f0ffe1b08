"""The Before and After of primitives that move computation and data are what happens."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

import pytest

from tilewright.ir import assert_structural_equal
from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import PRIMITIVES, Schedule

VECTORS = {"A": "(128,)", "C": "(128,)"}
Case = tuple[Callable[[Schedule], object], dict[str, str], str, str]

# Action, parameters, and the buffers allocated before and after.
CASES: dict[str, Case] = {
    "compute_inline": (
        lambda s: s.compute_inline(s.get_block("B")),
        VECTORS,
        'B = T.alloc_buffer((128,), "float32")',
        "",
    ),
    "reverse_compute_inline": (
        lambda s: s.reverse_compute_inline(s.get_block("C")),
        VECTORS,
        'B = T.alloc_buffer((128,), "float32")',
        "",
    ),
    "compute_at": (
        lambda s: s.compute_at(s.get_block("B"), s.get_loops(s.get_block("C"))[0]),
        VECTORS,
        'B = T.alloc_buffer((128,), "float32")',
        'B = T.alloc_buffer((128,), "float32")',
    ),
    "reverse_compute_at": (
        lambda s: s.reverse_compute_at(s.get_block("C"), s.get_loops(s.get_block("B"))[0]),
        VECTORS,
        'B = T.alloc_buffer((128,), "float32")',
        'B = T.alloc_buffer((128,), "float32")',
    ),
    "cache_read": (
        lambda s: s.cache_read(s.get_block("B"), 0, "local"),
        {"A": "(128,)", "B": "(128,)"},
        "",
        'A_local = T.alloc_buffer((128,), "float32", scope="local")',
    ),
    "cache_write": (
        lambda s: s.cache_write(s.get_block("B"), 0, "local"),
        {"A": "(128,)", "B": "(128,)"},
        "",
        'B_local = T.alloc_buffer((128,), "float32", scope="local")',
    ),
    "reindex": (
        lambda s: s.reindex(s.get_block("B"), ("read", 0)),
        {"A": "(64, 128)", "B": "(128, 64)"},
        "",
        'A_reindex = T.alloc_buffer((128, 64), "float32")',
    ),
    "decompose_reduction": (
        lambda s: s.decompose_reduction(s.get_block("C"), s.get_loops(s.get_block("C"))[1]),
        {"A": "(128, 64)", "C": "(128,)"},
        "",
        "",
    ),
    "rfactor": (
        lambda s: s.rfactor(s.get_loops(s.get_block("C"))[2], 0),
        {"A": "(16, 32)", "C": "(16,)"},
        "",
        'C_rf = T.alloc_buffer((4, 16), "float32")',
    ),
}


def program(code: str, params: dict[str, str], allocated: str) -> PrimFunc:
    listed = ", ".join(f'{name}: T.Buffer({shape}, "float32")' for name, shape in params.items())
    body = textwrap.indent(f"{allocated}\n{textwrap.dedent(code)}", "    ")
    return parse(
        f"from tilewright.script import tir as T\n@T.prim_func\ndef main({listed}):\n{body}"
    )


@pytest.mark.parametrize("name", CASES)
def test_example(name: str) -> None:
    act, params, allocated, allocated_after = CASES[name]
    text = PRIMITIVES.get(name).function.__doc__ or ""
    found = re.search(r"    Before:\n(.*?)\n    After[^\n]*:\n(.*?)(?:\n\n|\Z)", text, re.S)
    assert found is not None
    sch = Schedule(program(found[1], params, allocated))
    act(sch)
    assert_structural_equal(sch.mod["main"], program(found[2], params, allocated_after))
