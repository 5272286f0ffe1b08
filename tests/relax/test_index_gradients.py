"""Gradients of reads and writes where indices say, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random, symbol, tensor
from tests.relax.test_gradients import check_with_torch, loss_of
from tilewright import relax
from tilewright.relax import op
from tilewright.relax.transform import Gradient
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")

X, I, J = random(3, 4), np.array([2, -1, 0, 2]), np.array([[-4, 1], [3, 3]])


def test_reads() -> None:
    check_with_torch(lambda x, i: op.index_tensor(x, [i]), lambda x, i: x[i], [X, I])
    check_with_torch(lambda x, j: op.index_tensor(x, [j], 1), lambda x, j: x[:, j], [X, J])
    pairs = np.stack([I, I], 1)
    check_with_torch(op.gather_nd, lambda x, i: x[i[:, 0], i[:, 1]], [X, pairs])
    rows = np.array([[[0], [-1]], [[1], [1]], [[2], [3]]])
    check_with_torch(
        lambda x, i: op.gather_nd(x, i, 1), lambda x, i: x[torch.arange(3)[:, None], i[..., 0]],
        [X, rows],
    )  # fmt: skip


def test_writes() -> None:
    apart = np.array([2, -3])
    for accumulate, at in ((True, I), (False, apart)):
        check_with_torch(
            lambda x, i, v, a=accumulate: op.index_put(x, [i], v, a),
            lambda x, i, v, a=accumulate: torch.index_put(x, (i,), v, a),
            [X, at, random(1, 4, seed=1)],
        )
    places = np.array([[0, 1, 1, 0], [1, 0, 2, 2]])
    for reduction, torch_name in (("update", None), ("add", "add")):
        options = {} if torch_name is None else {"reduce": torch_name}
        check_with_torch(
            lambda x, i, u, how=reduction: op.scatter_elements(x, i, u, 0, how),
            lambda x, i, u, options=options: (
                torch.scatter_add(x, 0, i, u[:2, :4])
                if options
                else torch.scatter(x, 0, i, u[:2, :4])
            ),
            [X, places, random(3, 5, seed=2)],
        )
        check_with_torch(
            lambda x, i, u, how=reduction: op.scatter_nd(x, i, u, how),
            lambda x, i, u, a=bool(options): torch.index_put(x, (i[:, 0],), u, a),
            [X, apart[:, None], random(2, 4, seed=3)],
        )
    for start, end, step in ((1, -1, 1), (0, 4, 2)):
        check_with_torch(
            lambda x, u, s=(start, end, step): op.slice_scatter(x, u, *s, axis=1),
            lambda x, u, s=(start, end, step): torch.slice_scatter(x, u, 1, *s),
            [X, random(3, 2, seed=4)],
        )


def test_a_slice_of_symbolic_bounds() -> None:
    n = symbol("n")
    mod, params = loss_of(
        lambda x, u: op.slice_scatter(x, u, n, 3 * n, 2), [tensor((4 * n,)), tensor((n,))]
    )
    run = relax.build(Gradient("main", params)(mod))["main_adjoint"]
    x, u, w = random(8), random(2, seed=1), random(8, seed=2)
    _, (dx, du) = relax.as_numpy(run(x, u, w))
    np.testing.assert_array_equal(du, w[2:6:2])
    np.testing.assert_array_equal(dx, np.where(np.isin(np.arange(8), [2, 4]), 0, w))


def test_reductions_without_a_gradient() -> None:
    body: Any = lambda x, i, u: op.scatter_elements(x, i, u, 0, "max")
    mod, params = loss_of(body, [tensor((3, 4)), tensor((2, 4), "int64"), tensor((2, 4))])
    with pytest.raises(VerifyError, match="reductions update and add, not for max"):
        Gradient("main", [params[0]])(mod)
