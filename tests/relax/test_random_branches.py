"""Random graphs of branches in branches: compiled as they are interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.everyday import few
from tests.relax.helpers import random, symbol, tensor
from tilewright import relax, script
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import interpreter, op
from tilewright.script import relax as R

YES, NO = np.array(True), np.array(False)
BOOL = tensor((), "bool")


def drawn(seed: int) -> IRModule:
    """A graph of branches in branches that use what is around them."""
    rng = np.random.default_rng(seed)
    builder = relax.BlockBuilder()
    info = tensor((symbol("n"), 4))
    c, d, x, y = (
        relax.Var(name, i) for name, i in zip("cdxy", (BOOL, BOOL, info, info), strict=True)
    )
    weights = relax.const(random(4, 4, seed=seed))

    def value(seen: list[Any]) -> Any:
        a, b = (seen[rng.integers(len(seen))] for _ in range(2))
        kind = rng.integers(6)
        if kind == 0:
            return op.tanh(a)
        if kind == 1:
            return op.tanh(op.matmul(a, weights))
        if kind == 2:
            return op.reshape(op.reshape(a, (-1,)), a.shape)
        return op.subtract(a, b) if kind == 3 else op.multiply(op.tanh(a), b)

    def condition(seen: list[Any]) -> Any:
        kind = rng.integers(4)
        if kind < 2:
            return (c, d)[kind]
        return op.less(op.sum(seen[rng.integers(len(seen))]), relax.const(float(kind)))

    def steps(seen: list[Any], depth: int) -> list[Any]:
        seen = list(seen)
        for _ in range(rng.integers(1, 4)):
            if depth and rng.integers(2):
                seen.extend(choice(seen, depth - 1))
            else:
                seen.append(builder.emit(value(seen)))
        return seen

    def choice(seen: list[Any], depth: int) -> list[Any]:
        count = int(rng.integers(1, 4))

        def branch() -> Any:
            inner = steps(seen, depth) if rng.integers(4) else seen
            given = [inner[-1 - rng.integers(len(inner))] for _ in range(count)]
            if not rng.integers(4):
                given[0] = builder.emit(op.full_like(x, 0.5))
            return given[0] if count == 1 else relax.Tuple(tuple(given))

        made = builder.emit_if(condition(seen), branch, branch)
        return [made] if count == 1 else [builder.emit(made[i]) for i in range(count)]

    def pair(function: str) -> None:
        with builder.function(function, [c, d, x, y]):
            seen = choice(steps([x, y], 2), 2)
            builder.emit_func_output(seen[-1])

    pair("inner")
    with builder.function("main", [c, d, x, y]):
        seen = steps([x, y], 2)
        seen.append(builder.emit_call("inner", d, c, seen[-1], x))
        seen += choice(seen, 2)
        builder.emit_func_output(relax.Tuple((seen[-1], seen[-2])))
    return builder.get()


@few("seed", range(4), every=2)
def test_random_branches(seed: int) -> None:
    mod = drawn(seed)
    relax.verify_graph(mod)
    assert_structural_equal(script.parse(mod.script(), {"metadata": R.metadata_of(mod)}), mod)
    executable = relax.build(mod, "llvm")
    x, y = random(3, 4, seed=seed), random(3, 4, seed=seed + 1)
    for c in (YES, NO):
        for d in (YES, NO):
            want = interpreter.run(mod, c, d, x, y)
            found = relax.as_numpy(executable["main"](c, d, x, y))
            for a, b in zip(want, found, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
