"""State in ``nn`` modules: caches of keys and values, effects, prints, and how they are passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import random
from tilewright import relax
from tilewright.ir import Var
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn import op, spec
from tilewright.support.errors import RunError, VerifyError

HEADS, DEPTH = 2, 4
HIDDEN = HEADS * DEPTH


class Attention(nn.Module):
    def __init__(self) -> None:
        self.q_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.v_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k_cache = nn.KVCache(1, [HEADS, DEPTH])
        self.v_cache = nn.KVCache(1, [HEADS, DEPTH])

    def forward(self, x: nn.Tensor, total: Any) -> nn.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            op.reshape(proj(x), (batch, length, HEADS, DEPTH))
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        self.k_cache.append(op.squeeze(k, axis=0))
        self.v_cache.append(op.squeeze(v, axis=0))
        k = op.reshape(self.k_cache.view(total), (batch, total, HEADS, DEPTH))
        v = op.reshape(self.v_cache.view(total), (batch, total, HEADS, DEPTH))
        q, k, v = (op.permute_dims(item, [0, 2, 1, 3]) for item in (q, k, v))
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) / DEPTH**0.5
        made = op.matmul(op.softmax(scores, axis=-1), v)
        return self.o_proj(made.permute_dims(0, 2, 1, 3).reshape(batch, length, HIDDEN))


class Decoder(nn.Module):
    def __init__(self) -> None:
        self.input_layernorm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.self_attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 12), nn.SiLU(), nn.Linear(12, HIDDEN))

    def forward(self, x: nn.Tensor, total: Any) -> nn.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), total)
        return x + self.mlp(x)


def reference(weights: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """The last token of ``[n, HIDDEN]``, which sees all of them."""
    w = weights

    def silu(v: np.ndarray) -> np.ndarray:
        return v / (1 + np.exp(-v))

    def norm(v: np.ndarray) -> np.ndarray:
        scale = np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5)
        return v / scale * w["input_layernorm.weight"]

    h = norm(tokens)
    q, k, v = (
        (h @ w[f"self_attn.{n}_proj.weight"].T).reshape(-1, HEADS, DEPTH) for n in ("q", "k", "v")
    )
    scores = np.einsum("hd,khd->hk", q[-1], k) / DEPTH**0.5
    powers = np.exp(scores)
    seen = np.einsum("hk,khd->hd", powers / powers.sum(-1, keepdims=True), v).reshape(-1)
    x = tokens[-1] + seen @ w["self_attn.o_proj.weight"].T
    up = silu(x @ w["mlp.0.weight"].T + w["mlp.0.bias"])
    return x + up @ w["mlp.2.weight"].T + w["mlp.2.bias"]


def test_a_decoder_block_with_caches_decodes_token_by_token() -> None:
    mod, params = Decoder().export_tvm(
        {"forward": {"x": spec.Tensor([1, 1, HIDDEN], "float32"), "total": int}}
    )
    names = [param.name for param in mod["forward"].params]
    assert names[:4] == ["x", "total", "self_attn.k_cache", "self_attn.v_cache"]
    assert mod["forward"].attrs["num_input"] == 4
    assert isinstance(mod["forward"].params[1].struct_info, relax.ShapeStructInfo)
    weights = {name: random(*p.shape, seed=i) * 0.5 for i, (name, p) in enumerate(params)}
    vm = relax.VirtualMachine(relax.build(mod), tilewright.cpu())
    tokens = random(3, HIDDEN, seed=9)
    effects = vm["_initialize_effect"]()
    start = relax.interpreter.run(mod, name="_initialize_effect")
    for step in range(3):
        x = tokens[step].reshape(1, 1, HIDDEN)
        arguments = (x, (step + 1,)) if step else (x, step + 1)  # a shape, or its one extent
        result, effects = vm["forward"](*arguments, *effects, *weights.values())
        expected = reference(weights, tokens[: step + 1])
        np.testing.assert_allclose(np.asarray(result)[0, 0], expected, rtol=1e-4, atol=1e-5)
    x = tokens[:1].reshape(1, 1, HIDDEN)
    slow, start = relax.interpreter.run(mod, x, (1,), *start, *weights.values(), name="forward")
    expected = reference(weights, tokens[:1])
    np.testing.assert_allclose(slow[0, 0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RunError, match=r"the cache holds \[2, 2, 4\], it has no view \[7, 2, 4\]"):
        relax.interpreter.run(mod, x, (7,), *start, *weights.values(), name="forward")


def test_jit_keeps_parameters_and_effects() -> None:
    torch = pytest.importorskip("torch")
    model = Decoder()
    weights = {
        n: random(*p.shape, seed=i) * 0.5 for i, (n, p) in enumerate(model.state_dict().items())
    }
    assert model.load_state_dict(weights) == ([], [])
    run = model.jit({"forward": {"x": spec.Tensor([1, 1, HIDDEN], "float32"), "total": int}})
    tokens = random(2, HIDDEN, seed=9)
    for step in range(2):
        result = run["forward"](torch.from_numpy(tokens[step].reshape(1, 1, HIDDEN)), step + 1)
        assert isinstance(result, torch.Tensor)
        expected = reference(weights, tokens[: step + 1])
        np.testing.assert_allclose(result.numpy()[0, 0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(VerifyError, match="out_format must be"):
        model.jit({}, out_format="numpy")
    with pytest.raises(VerifyError, match="no method 'decode'"):
        run["decode"]


class Modes(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter(("n", 2))
        self.cache = nn.KVCache(2, (2,))

    def forward(self, x: nn.Tensor) -> Any:
        self.cache.append(x)
        return x @ self.weight.permute_dims()

    def plain(self, x: nn.Tensor) -> Any:
        return x + x


def test_modes_say_how_parameters_and_effects_are_passed() -> None:
    x = spec.Tensor((3, 2), "float32")
    packed = {"param_mode": "packed", "effect_mode": "packed"}
    none = {"param_mode": "none", "effect_mode": "none"}
    mod, params = Modes().export_tvm(
        {"forward": {"x": x, "$": packed}, "plain": {"x": x, "$": none}}, debug=True
    )
    assert [p.name for p in mod["forward"].params] == ["x", "packed_effects", "packed_params"]
    assert [p.name for p in mod["plain"].params] == ["x"]
    assert [mod[name].attrs["num_input"] for name in ("forward", "plain")] == [2, 1]
    assert params[0][0] == "weight"
    run, weight, data = relax.build(mod), random(5, 2), random(3, 2, seed=1)
    result, effects = run["forward"](data, run["_initialize_effect"](), (weight,))
    np.testing.assert_allclose(np.asarray(result), data @ weight.T, rtol=1e-5, atol=1e-6)
    assert effects[0] is None and effects[1].length == 3
    np.testing.assert_array_equal(effects[1].view((3, 2)), data)
    np.testing.assert_array_equal(np.asarray(run["plain"](data)), data + data)


@pytest.mark.parametrize(
    ("method", "modes", "message"),
    [
        ("forward", {"param_mode": "none"}, "outside the export"),
        ("forward", {"effect_mode": "none"}, "used where no effects are"),
        ("plain", {"param_mode": "flat"}, "param_mode must be"),
        ("plain", {"params": "plain"}, "'\\$' has 'param_mode'"),
    ],
)
def test_modes_that_do_not_fit(method: str, modes: dict[str, str], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        Modes().export_tvm({method: {"x": spec.Tensor((3, 2), "float32"), "$": modes}})


class Loud(nn.Module):
    def forward(self, x: nn.Tensor) -> Any:
        nn.print_(x)
        nn.debug_func("tests.loud", x, 3)
        return x + 1.0


def test_prints_are_kept_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[object] = []
    tilewright.register_global_func(
        "tests.loud",
        lambda line, x, n: heard.append((line, np.asarray(x).tolist(), n)),
        override=True,
    )
    described = {"forward": {"x": spec.Tensor((2,), "float32")}}
    mod, _ = Loud().export_tvm(described, debug=True)
    run = relax.build(mod)
    result, effects = run["forward"](np.ones(2, "float32"), *run["_initialize_effect"]())
    assert effects == (None,)
    np.testing.assert_array_equal(np.asarray(result), [2, 2])
    assert "test_nn_state.py" in capsys.readouterr().out
    ((line, values, number),) = heard
    assert "test_nn_state.py:" in str(line) and (values, number) == ([1.0, 1.0], 3)
    with pytest.raises(VerifyError, match="debug=True"):
        Loud().export_tvm(described)


class Counter(nn.Object):
    def add(self, x: nn.Tensor) -> nn.Tensor:
        info = relax.TensorStructInfo(x.shape, x.dtype)
        call = relax.op.call_pure_packed("tests.count", self._expr, x._expr, sinfo_args=info)
        return nn.Tensor(_expr=nn.BlockBuilder.current().emit(call))


class Counting(nn.Module):
    def forward(self, x: nn.Tensor, counter: Counter, rest: Any) -> Any:
        return counter.add(x + rest[0]), rest[1]


def test_objects_and_tuples_are_arguments() -> None:
    seen: list[object] = []

    def count(counter: list[int], x: Any) -> np.ndarray:
        counter.append(len(counter))
        seen.append(counter)
        return np.asarray(x) * len(counter)

    tilewright.register_global_func("tests.count", count, override=True)
    tensor = spec.Tensor((2,), "float32")
    mod, _ = Counting().export_tvm(
        {
            "forward": {
                "x": tensor,
                "counter": spec.Object(object_type=Counter),
                "rest": spec.Tuple("rest", [tensor, tensor]),
            }
        }
    )
    run, mine = relax.build(mod), [0]
    a, b, c = random(2), random(2, seed=1), random(2, seed=2)
    result, last = run(a, mine, (b, c))
    np.testing.assert_allclose(np.asarray(result), (a + b) * 2, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(last), c)
    assert seen == [mine] and seen[0] is mine
    np.testing.assert_allclose(
        relax.interpreter.run(mod, a, mine, (b, c), name="forward")[0], (a + b) * 3, rtol=1e-6
    )


def test_global_functions_get_shapes_and_objects_beside_outputs() -> None:
    def fill(held: list[int], shape: tuple[int, ...], x: Any, out: Any) -> None:
        np.from_dlpack(out)[...] = np.asarray(x) * shape[1] + held[0]

    tilewright.register_global_func("tests.fill", fill, override=True)
    n = Var("n")
    info = relax.TensorStructInfo((n, 3), "float32")
    builder = relax.BlockBuilder()
    x, held = relax.Var("x", info), relax.Var("held", relax.ObjectStructInfo())
    with builder.function("main", [x, held]):
        call = relax.op.call_dps_packed("tests.fill", (held, relax.ShapeExpr((n, 3)), x), info)
        builder.emit_func_output(builder.emit(call))
    mod, a = builder.get(), random(2, 3)
    for result in (relax.build(mod)(a, [5]), relax.interpreter.run(mod, a, [5])):
        np.testing.assert_allclose(np.asarray(result), a * 3 + 5, rtol=1e-6)


def test_call_inplace_packed_leaves_tensors_that_are_used_later() -> None:
    def double(x: Any, y: Any) -> tuple[Any, Any]:
        values = np.from_dlpack(x)
        values *= 2
        return x, values + np.asarray(y)

    tilewright.register_global_func("tests.double", double, override=True)
    info = relax.TensorStructInfo((3,), "float32")
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", info), relax.Var("y", info)
    with builder.function("main", [x, y]):
        call = relax.op.call_inplace_packed(
            "tests.double", x, y, inplace_indices=[0, -1], sinfo_args=[info, info]
        )
        made = builder.emit(call)
        builder.emit_func_output((made[0], made[1], x))
    mod, a, b = builder.get(), random(3), random(3, seed=1)
    for results in (relax.build(mod)(a, b), relax.interpreter.run(mod, a, b)):
        for found, want in zip(results, (a * 2, a * 2 + b, a)):
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-6)
    with pytest.raises(VerifyError, match="2 results need as many"):
        relax.op.call_inplace_packed("f", x, inplace_indices=0, sinfo_args=[info, info])
    with pytest.raises(VerifyError, match="positions of arguments"):
        relax.op.call_inplace_packed("f", x, inplace_indices=1, sinfo_args=info)


def test_two_caches_that_start_alike_stay_two() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.KVCache(1, (1,)), nn.KVCache(1, (1,))

        def forward(self, x: nn.Tensor) -> Any:
            self.a.append(x)
            return x

    mod, _ = Two().export_tvm({"forward": {"x": spec.Tensor((1, 1), "float32")}})
    mod = relax.transform.EliminateCommonSubexpr()(mod)
    run = relax.build(mod)
    _, (a, b) = run["forward"](np.ones((1, 1), "float32"), *run["_initialize_effect"]())
    assert (a.length, b.length) == (1, 0)
