"""Elementary functions with larger errors replace the precise ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.relax.helpers import agree, graph, graph_of, random, symbol, tensor, values
from tilewright import relax, te, topi
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import VerifyError


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            b = R.erf(a)
            c = R.exp(b)
            R.output(c)
        return c


def test_functions_are_replaced() -> None:
    made = t.FastMathTransform()(Before)
    assert values(made) == ["fast_tanh", "fast_erf", "exp"]
    agree(Before, made, random(3, 4), tolerance=3e-6)
    x = random(3, 4)
    found = relax.build(made, "llvm")["main"](x).numpy()
    np.testing.assert_allclose(found, np.exp(special.erf(np.tanh(x))), rtol=3e-6)
    assert t.FastMathTransform()(made) is made


def test_other_types_stay() -> None:
    for dtype in ("float64", "float16"):
        mod = graph(op.tanh, tensor((symbol("n"),), dtype))
        assert t.FastMathTransform()(mod) is mod
    with pytest.raises(VerifyError, match="fast_tanh takes float32, got float64"):
        topi.fast_tanh(te.placeholder((4,), "float64", "x"))


@pytest.mark.parametrize(("name", "exact"), [("tanh", np.tanh), ("erf", special.erf)])
def test_errors_are_within_the_bound(name: str, exact: Any) -> None:
    around = np.float32(10.0) ** np.linspace(-38, 1.5, 5000, dtype="float32")
    x = np.concatenate([around, -around, [0.0, -0.0, np.inf, -np.inf]]).astype("float32")
    mod = t.FastMathTransform()(graph_of(getattr(op, name), x))
    found = relax.build(mod, "llvm")["main"](x).numpy().astype("float64")
    want = exact(x.astype("float64"))
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert np.array_equal(np.signbit(found), np.signbit(want))
    assert np.isnan(relax.build(mod, "llvm")["main"](np.full_like(x, np.nan)).numpy()).all()
