"""Symbolic extents that branches of an ``If`` define, or are cast to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import random, symbol, tensor
from tilewright import relax, script
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.script import relax as R
from tilewright.script import tir as T

YES, NO = np.array(True), np.array(False)


def check(executable: relax.Executable, mod: IRModule, *inputs: np.ndarray) -> None:
    """Interpreter, compiled code and kernels one by one give the same."""
    want = interpreter.run(mod, *inputs)
    machine = relax.VirtualMachine(executable, tilewright.cpu())
    machine.set_instrument(lambda *_: None)
    for main in (executable["main"], machine["main"]):
        for a, b in zip(want, relax.as_numpy(main(*inputs)), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_branches_may_name_their_extents_alike() -> None:
    """An extent that a branch defines is another one in the other branch, and after it."""
    m = symbol("m")
    c, x = relax.Var("c", tensor((), "bool")), relax.Var("x", tensor((symbol("n"), 4)))
    builder = relax.BlockBuilder()

    def total(*values: Any) -> Any:
        cast = builder.match_cast(builder.emit(op.concat(values)), tensor((m, 4)))
        return builder.emit(op.sum(op.exp(cast), 0))

    with builder.function("main", [c, x]):
        made = builder.emit_if(c, lambda: total(x, x), lambda: total(x))
        builder.emit_func_output(relax.Tuple((made, total(x, x, x))))
    mod = builder.get()
    assert_structural_equal(script.parse(mod.script()), mod)
    for each in (mod, t.LegalizeOps()(mod)):  # outlined when it is built, and not
        executable = relax.build(each, "llvm")
        for value in (YES, NO):
            check(executable, each, value, random(3, 4))


def test_casts_in_branches_to_extents_from_outside() -> None:
    @R.function
    def main(
        c: R.Tensor((), "bool"), w: R.Tensor(("n",)), x: R.Tensor(("k",)), y: R.Tensor(("n",))
    ):
        n = T.int64()
        if c:
            a = R.exp(x)
            z = R.match_cast(a, R.Tensor((n,), "float32"))
        else:
            z = w
        v = R.match_cast(z, R.Tensor((n,), "float32"))
        if c:
            b = R.match_cast(x, R.Tensor((n,), "float32"))
            s = R.sum(b)
        else:
            s = R.sum(x)
        u = R.add(v, y)
        return (u, s)

    mod = IRModule({"main": main})
    for each in (mod, t.LegalizeOps()(mod)):
        executable = relax.build(each, "llvm")
        check(executable, each, YES, random(3), random(3), random(3))
        check(executable, each, NO, random(3), random(2), random(3))
        with pytest.raises(Exception, match="match_cast"):
            executable["main"](YES, random(3), random(2), random(3))
