"""Element-wise operators after a reshaped product are computed before the reshape."""

from __future__ import annotations

from tests.relax.helpers import agree, graph_of, random, values
from tilewright.ir.transform import Sequential
from tilewright.relax import get_pipeline, op
from tilewright.relax import transform as t

LATER = Sequential([t.ReshapeLater(), t.DeadCodeElimination()])


def test_activations_of_reshaped_products_are_epilogues() -> None:
    arrays = [random(12, 8), random(8, 6), random(6), random(6, 4)]

    def body(x, w, b, v):
        y = op.reshape(op.matmul(x, w) + b, (2, 3, 2, 6))
        return op.matmul(op.reshape(op.nn.gelu(y) * b, (12, 6)), v)

    mod = graph_of(body, *arrays)
    made = LATER(mod)
    assert values(made) == ["matmul", "add", "nn.gelu", "multiply", "matmul"]
    agree(mod, made, *arrays)
    assert values(get_pipeline("zero")(mod)) == ["fused_matmul_add_gelu_multiply", "matmul_1"]


def test_products_that_meet_are_both_reshaped_later() -> None:
    arrays = [random(6, 8), random(8, 4), random(8, 4, seed=1)]

    def body(x, w, v):
        a, b = (op.reshape(op.matmul(x, item), (2, 3, 4)) for item in (w, v))
        return op.nn.silu(a) * b

    mod = graph_of(body, *arrays)
    made = LATER(mod)
    assert values(made) == ["matmul", "nn.silu", "matmul", "multiply", "reshape"]
    agree(mod, made, *arrays)


def test_what_has_another_shape_comes_after_the_reshape() -> None:
    arrays = [random(6, 8), random(8, 4), random(2, 3, 4)]
    for body in (
        lambda x, w, y: op.reshape(op.matmul(x, w), (2, 3, 4)) + y,
        lambda x, w, y: op.nn.relu(op.reshape(op.nn.relu(x), (2, 3, 8))),
        lambda x, w, y: op.nn.relu(op.reshape(op.matmul(x, w), (1, 6, 1, 4))),
        lambda x, w, y: op.reshape(op.matmul(x, w), (2, 12)) * op.sum(op.reshape(y, (2, 12)), (0,)),
    ):
        mod = graph_of(body, *arrays)
        assert values(LATER(mod)) == values(t.DeadCodeElimination()(mod))


def test_results_and_other_uses_keep_their_shape() -> None:
    arrays = [random(6, 8), random(8, 4)]

    def body(x, w):
        y = op.reshape(op.matmul(x, w), (2, 3, 4))
        return op.reshape(op.nn.relu(y), (6, 4)) + op.sum(y)

    def whole(x, w):
        return op.reshape(op.nn.relu(op.reshape(op.matmul(x, w), (2, 3, 4))), (6, 4))

    for made in (body, whole):
        mod = graph_of(made, *arrays)
        agree(mod, LATER(mod), *arrays)
