"""What script says of buffers is checked where it is said: memories, extents, strides."""

from __future__ import annotations

import pytest

from tilewright.script import parse
from tilewright.support.errors import TilewrightError

_MATCH = """with T.block("B"):
        T.reads(A[0:8, 0:8])
        T.writes(C[0:8, 0:8])
        M = T.match_buffer(A[0:8, 0:8], (8, 8), "float32"{what})
        for i, j in T.grid(8, 8):
            C[i, j] = M[i, j]"""


def program(body: str) -> str:
    return f"""
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    {body}
"""


@pytest.mark.parametrize(
    "body, message",
    [
        ('B = T.alloc_buffer((8,), "float32", scope="nonsense")', "unknown storage scope"),
        (_MATCH.format(what=", strides=(4, 1)"), "stride 4 on axis 0"),
        (_MATCH.format(what=", strides=(8, 2)"), "stride 2 on axis 1"),
        (_MATCH.format(what=', scope="shared"'), "is in shared memory, A in global"),
    ],
)
def test_what_cannot_be_is_refused(body: str, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        parse(program(body))


@pytest.mark.parametrize("what", ["", ", strides=(8, 1)"])
def test_what_is_so_may_be_said(what: str) -> None:
    parse(program(_MATCH.format(what=what)))


@pytest.mark.parametrize("scope", ["global", "shared.dyn", "wmma.accumulator", "local", "warp"])
def test_known_memories(scope: str) -> None:
    parse(program(f'B = T.alloc_buffer((8,), "float32", scope="{scope}")\n    C[0, 0] = A[0, 0]'))
