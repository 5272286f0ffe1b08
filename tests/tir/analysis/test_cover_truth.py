"""Region cover against the interpreter, where reading what was not written gives NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import check_region_cover
from tilewright.tir.interpreter import run


@st.composite
def pairs(draw: Any) -> PrimFunc:
    """One or two producers and a consumer of ``C``, apart or inside one loop."""
    lines = [
        "@T.prim_func",
        'def main(B: T.Buffer((4, 12), "float32")):',
        '    C = T.alloc_buffer((4, 12), "float32")',
    ]
    shared = draw(st.booleans())
    pad, loops = "    ", "for i, j in T.grid(4, {})"
    if shared:
        lines.append("    for i in range(4):")
        pad, loops = "        ", "for j in range({})"
    rows = st.sampled_from(["vi", "vi", "vi", "3 - vi"])

    def block(name: str, extent: int, *body: str) -> None:
        lines.extend(
            [
                f"{pad}{loops.format(extent)}:",
                f"{pad}    with T.block({name!r}):",
                f'{pad}        vi, vj = T.axis.remap("SS", [i, j])',
                *(f"{pad}        {line}" for line in body),
            ]
        )

    for number in range(draw(st.integers(1, 2))):
        start = draw(st.sampled_from([0, 0, 3, 5]))
        step = draw(st.sampled_from([1, 1, 1, 2]))
        extent = draw(st.integers(1, (11 - start) // step + 1))
        store = f"C[{draw(rows)}, vj * {step} + {start}] = T.float32(1)"
        if draw(st.integers(0, 3)) == 0:
            block(f"p{number}", extent, f"if vj < {draw(st.integers(1, 9))}:", f"    {store}")
        else:
            block(f"p{number}", extent, store)
    window = draw(st.integers(1, 3))
    extent = draw(st.integers(1, 13 - window))
    value = " + ".join(f"C[{draw(rows)}, vj + {n}]" for n in range(window))
    if draw(st.booleans()):
        low = draw(st.integers(0, 4))
        value = f"T.if_then_else(vj >= {low}, {value}, T.float32(0))"
    block("use", extent, f"B[vi, vj] = {value}")
    return parse("\n".join(lines) + "\n")


@given(pairs())
def test_what_is_covered_was_written(func: PrimFunc):
    out = np.zeros((4, 12), "float32")
    run(func, out)
    if not check_region_cover(func):
        assert not np.isnan(out).any()
    elif func.root.body.__class__.__name__ == "SeqStmt" and "if" not in func.script():
        # Apart from each other and without conditions the answer is exact.
        assert np.isnan(out).any() or "* 2" in func.script()
