"""Buffers check what they are made of."""

from __future__ import annotations

import pytest

from tilewright import script, tir
from tilewright.support.errors import TilewrightError, VerifyError


@pytest.mark.parametrize("scope", ["global", "shared.dyn", "wmma.matrix_a", "m16n8k8.matrixC"])
def test_known_scopes(scope: str) -> None:
    assert tir.decl_buffer((4,), "float32", "A", scope=scope).scope == scope


@pytest.mark.parametrize("scope", ["globl", "x", " ", "shared dyn", "Local", "shared."])
def test_unknown_scopes_are_refused(scope: str) -> None:
    with pytest.raises(VerifyError, match=r"storage scope|no name of a memory"):
        tir.decl_buffer((4,), "float32", "A", scope=scope)


def test_a_near_scope_is_named() -> None:
    with pytest.raises(VerifyError, match="did you mean 'global'"):
        tir.decl_buffer((4,), "float32", "A", scope="globl")


TEXT = """
@T.prim_func
def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
    for i in range(8):
        with T.block("row"):
            v = T.axis.spatial(8, i)
            T.reads(A[v, 0:16])
            T.writes(B[v, 0:16])
            a = T.match_buffer(A[v, 0:16], ROWS, "float32"STRIDES)
            for j in range(16):
                B[v, j] = a[INDEX]
"""


@pytest.mark.parametrize(
    ("shape", "strides", "index"),
    [
        ("(16,)", "", "j"),
        ("(16,)", ", strides=(1,)", "j"),
        ("(1, 16)", ", strides=(16, 1)", "0, j"),
        ("(1, 16)", ", strides=(99, 1)", "0, j"),  # of one row, nothing is a step away
    ],
)
def test_strides_of_a_view_that_fit(shape: str, strides: str, index: str) -> None:
    text = TEXT.replace("ROWS", shape).replace("STRIDES", strides).replace("INDEX", index)
    tir.analysis.verify(script.parse(text))


@pytest.mark.parametrize(("shape", "strides", "index"), [("(16,)", ", strides=(2,)", "j")])
def test_strides_that_contradict_the_source(shape: str, strides: str, index: str) -> None:
    text = TEXT.replace("ROWS", shape).replace("STRIDES", strides).replace("INDEX", index)
    with pytest.raises(TilewrightError, match="has stride 2 on axis 0"):
        tir.analysis.verify(script.parse(text))
