"""Functions whose extents are formulas of sizes, as layers make them: every block has a rule.

The sizes themselves come as scalars, so nothing but the extents tells that they aren't negative.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tilewright import dlight, te, topi
from tilewright.ir import Expr, IRModule, Var
from tilewright.target import Target

TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
S, T, N = Var("s"), Var("t"), te.var("n")


def flat(x: te.Tensor) -> te.Tensor:
    rows = topi.reshape(x, (x.shape[0], x.shape[1], x.shape[2] * x.shape[3]))
    return topi.transpose(rows, (0, 2, 1))


CASES: list[tuple[tuple[Expr, Expr], Callable[[te.Tensor], te.Tensor]]] = [
    ((S, T), lambda x: topi.max(x, 2)),
    (((S + 1) // 2 + 1, (T + 1) // 2 - 1), lambda x: topi.max(x, 1)),
    (((S + 1) // 2 + 1, (T + 1) // 2 - 1), lambda x: topi.max(x, 2)),
    ((S + 3, T * 2), lambda x: topi.sum(x, (2, 3))),
    ((S + 2, T + 2), flat),
    (((S + 1) // 2 + 3, (T + 1) // 2 + 1), flat),
    (((S + 1) // 2 - 1, (T + 1) // 2 - 1), lambda x: topi.transpose(x, (0, 2, 3, 1))),
    ((S - 1, T - 2), lambda x: topi.transpose(x, (0, 2, 3, 1))),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_block_is_scheduled(case: int, caplog: pytest.LogCaptureFixture) -> None:
    (height, width), compute = CASES[case]
    x = te.placeholder((N, 32, height, width), name="x")
    func = te.create_prim_func([x, compute(x)])
    with caplog.at_level(logging.WARNING, "tilewright"):
        dlight.default_schedule(TARGET)(IRModule({"main": func}))
    assert not caplog.messages
