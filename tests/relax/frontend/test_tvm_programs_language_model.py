"""A language model with a paged cache, as TVM's users write it, against one in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import dlight, relax, te, tir
from tilewright.relax import register_pipeline
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn import Tensor, op
from tilewright.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache
from tilewright.runtime import ShapeTuple
from tilewright.support.errors import RunError, VerifyError

HEADS, SHARED, DIM, LAYERS, WORDS = 4, 2, 8, 2, 40
HIDDEN = HEADS * DIM
TARGET = tvm.target.Target("llvm")


class Attention(nn.Module):
    def __init__(self) -> None:
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * SHARED) * DIM, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        b, s, _ = x.shape
        qkv = op.reshape(self.qkv(x), (b, s, HEADS + 2 * SHARED, DIM))
        made = cache.attention_with_fused_qkv(layer, qkv, HEADS, sm_scale=DIM**-0.5)
        return self.out(op.reshape(made, (b, s, HIDDEN)))


class Layer(nn.Module):
    def __init__(self) -> None:
        self.attention = Attention()
        self.gate_up = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.norm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x += self.attention(self.norm(x), cache, layer)
        gate, up = op.split(self.gate_up(x), 2, axis=-1)
        x += self.down(op.silu(gate) * up)
        return x


class Model(nn.Module):
    def __init__(self, rope: RopeMode = RopeMode.NORMAL, **options: Any) -> None:
        self.embedding = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)
        self.dtype = "float32"
        self.options = {"rope_mode": rope, **options}

    def to(self, dtype: str | None = None) -> None:
        super().to(dtype=dtype)
        self.dtype = dtype or self.dtype

    def embed(self, words: Tensor) -> Tensor:
        return self.embedding(words)

    def hidden(self, x: Tensor, cache: PagedKVCache) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, cache, number)
        return x

    def prefill(self, x: Tensor, cache: PagedKVCache) -> Any:
        def last(x: te.Tensor) -> te.Tensor:
            b, s, d = x.shape
            return te.compute((b, 1, d), lambda i, _, k: x[i, s - 1, k], name="last")

        x = op.tensor_expr_op(last, name_hint="last", args=[self.hidden(x, cache)])
        return op.astype(self.head(x), "float32"), cache

    def decode(self, x: Tensor, cache: PagedKVCache) -> Any:
        return op.astype(self.head(self.hidden(x, cache)), "float32"), cache

    def create_cache(
        self, batch: tir.Var, total: tir.Var, chunk: tir.Var, page_size: tir.Var
    ) -> PagedKVCache:
        stated = {
            "attn_kind": "mha",
            "support_sliding_window": 0,
            "layer_partition": relax.ShapeExpr([0, LAYERS]),
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": SHARED,
            "qk_head_dim": DIM,
            "v_head_dim": DIM,
            "mla_original_qk_head_dim": 0,
            "mla_original_v_head_dim": 0,
            "rope_scale": 1,
            "rope_theta": 10000,
            "rope_scaling": {},
            "rope_ext_factors": relax.PrimValue(0),
            "rotary_dim": DIM,
            "enable_disaggregation": False,
            "dtype": self.dtype,
            "target": TARGET,
            **self.options,
        }
        return TIRPagedKVCache(
            max_batch_size=batch,
            max_total_seq_len=total,
            prefill_chunk_size=chunk,
            page_size=page_size,
            **stated,
        )

    def spec(self) -> Any:
        packed = {"param_mode": "packed", "effect_mode": "none"}
        cache = nn.spec.Object(object_type=PagedKVCache)
        rows = {
            "prefill": nn.spec.Tensor([1, "n", HIDDEN], self.dtype),
            "decode": nn.spec.Tensor(["b", 1, HIDDEN], self.dtype),
        }
        sizes = dict.fromkeys(("batch", "total", "chunk", "page_size"), int)
        return nn.spec.ModuleSpec.from_raw(
            {
                "embed": {"words": nn.spec.Tensor(["n"], "int32"), "$": packed},
                **{name: {"x": x, "cache": cache, "$": packed} for name, x in rows.items()},
                "create_cache": {**sizes, "$": {"param_mode": "none", "effect_mode": "none"}},
            },
            self,
        )


@register_pipeline("test_language_model")
def _pipeline(ext_mods: Any = None) -> Any:
    @tvm.transform.module_pass(opt_level=0)
    def run(mod: tvm.ir.IRModule, _ctx: tvm.transform.PassContext) -> tvm.ir.IRModule:
        return tvm.transform.Sequential(
            [
                relax.transform.FuseTransposeMatmul(),
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FoldConstant(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(),
                dlight.ApplyDefaultSchedule(dlight.cpu.GEMV(), dlight.cpu.Reduction()),
                relax.transform.ToNonDataflow(),
                relax.transform.CallTIRRewrite(),
                relax.transform.StaticPlanBlockMemory(),
                relax.transform.AttachGlobalSymbol(),
                relax.transform.AttachExternModules(ext_mods or []),
            ]
        )(mod)

    return run


class Running:
    """A model in the virtual machine."""

    def __init__(self, model: Model, dtype: str) -> None:
        model.to(dtype)
        mod, named = model.export_tvm(spec=model.spec())
        with TARGET:
            built = tvm.compile(
                mod, TARGET, relax_pipeline=relax.get_pipeline("test_language_model")
            )
        self.machine = relax.VirtualMachine(built, tvm.cpu())
        rng = np.random.default_rng(3)
        self.weights = {
            name: (rng.standard_normal(p.shape) * 0.3).astype(p.dtype) for name, p in named
        }
        self.params = [tvm.nd.array(value) for value in self.weights.values()]

    def cache(self, batch: int = 2, total: int = 40, chunk: int = 20, page_size: int = 4) -> Any:
        sizes = (batch, total, chunk, page_size)
        return self.machine["create_cache"](*(ShapeTuple([n]) for n in sizes))

    def step(self, name: str, cache: Any, sequences: list[int], words: list[list[int]]) -> Any:
        flat = np.array([word for each in words for word in each], "int32")
        rows = self.machine["embed"](tvm.nd.array(flat), self.params)
        shape = [1, len(flat), HIDDEN] if name == "prefill" else [len(flat), 1, HIDDEN]
        x = call("reshape", rows, ShapeTuple(shape))
        call("kv_state_begin_forward", cache, ShapeTuple(sequences), ShapeTuple([*map(len, words)]))
        made, same = self.machine[name](x, cache, self.params)
        assert same is cache
        call("kv_state_end_forward", cache)
        return made.numpy()


def call(name: str, *args: Any) -> Any:
    return tvm.get_global_func(f"vm.builtin.{name}")(*args)


def reference(weights: dict[str, Any], words: list[int], rope: bool) -> Any:
    """The model on all words at once, without a cache."""
    w = {name: value.astype("float64") for name, value in weights.items()}
    x = w["embedding.weight"][words]
    places = np.arange(len(words))
    angles = places[:, None] * 10000.0 ** (-np.arange(DIM // 2) * 2 / DIM)
    turn = np.exp(1j * angles)[:, None] if rope else 1

    def rotated(item: Any) -> Any:
        made = (item[..., : DIM // 2] + 1j * item[..., DIM // 2 :]) * turn
        return np.concatenate([made.real, made.imag], -1)

    for number in range(LAYERS):
        part = {name.split(f"layers.{number}.")[-1]: value for name, value in w.items()}
        normed = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * part["norm.weight"]
        qkv = (normed @ part["attention.qkv.weight"].T).reshape(len(x), -1, DIM)
        q, k, v = np.split(qkv, [HEADS, HEADS + SHARED], 1)
        q, k = rotated(q), np.repeat(rotated(k), HEADS // SHARED, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM)
        scores = np.where(places[:, None] >= places, scores, -np.inf)
        weight = np.exp(scores - scores.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        made = np.einsum("hij,jhd->ihd", weight, np.repeat(v, HEADS // SHARED, 1))
        x = x + made.reshape(len(x), HIDDEN) @ part["attention.out.weight"].T
        gate, up = np.split(x @ part["gate_up.weight"].T, 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ part["down.weight"].T
    return x[-1] @ w["head.weight"].T


@pytest.mark.parametrize(
    ("rope", "dtype"),
    [(RopeMode.NORMAL, "float32"), (RopeMode.NONE, "float32"), (RopeMode.INLINE, "float16")],
)
def test_sequences_grow_side_by_side(rope: RopeMode, dtype: str) -> None:
    running = Running(Model(rope), dtype)
    cache = running.cache()
    texts = {0: [3, 1, 4, 1, 5], 7: [9, 2]}
    bound = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float32" else {"rtol": 0.05, "atol": 0.05}

    def check(made: Any, number: int) -> None:
        wanted = reference(running.weights, texts[number], rope != RopeMode.NONE)
        np.testing.assert_allclose(made, wanted, **bound)

    for number, words in texts.items():
        call("kv_state_add_sequence", cache, number)
        check(running.step("prefill", cache, [number], [words])[0, 0], number)
    for word in (6, 11, 0):  # past the end of a page
        for words in texts.values():
            words.append(word)
        made = running.step("decode", cache, [7, 0], [[word], [word]])
        check(made[0, 0], 7)
        check(made[1, 0], 0)
    assert call("attention_kv_cache_get_total_sequence_length", cache) == 13
    call("kv_state_popn", cache, 0, 6)
    call("kv_state_remove_sequence", cache, 7)
    call("kv_state_fork_sequence", cache, 0, 5, -1)
    texts[5] = [*texts[0][:2], 8, 30]
    check(running.step("prefill", cache, [5], [texts[5][2:]])[0, 0], 5)
    texts[0] = [*texts[0][:2], 17]
    check(running.step("prefill", cache, [0], [[17]])[0, 0], 0)
    call("kv_state_clear", cache)
    assert call("attention_kv_cache_get_num_available_pages", cache) == 11


@pytest.fixture(scope="module")
def running() -> Running:
    return Running(Model(), "float32")


def test_what_does_not_fit_a_cache_is_refused(running: Running) -> None:
    cache = running.cache(batch=1, total=8, chunk=12)
    with pytest.raises(RunError, match="no sequence 0"):
        running.step("decode", cache, [0], [[1]])
    call("kv_state_add_sequence", cache, 0)
    for args, says in (
        (("kv_state_add_sequence", cache, 0), "a sequence 0 already"),
        (("kv_state_add_sequence", cache, 1), "1 sequences at most"),
        (("kv_state_popn", cache, 0, 1), "has 0 places"),
        (("kv_state_fork_sequence", cache, 0, 2, 1), "has 0 places"),
        (("kv_state_begin_forward", cache, ShapeTuple([0]), ShapeTuple([13])), "at most 12"),
        (("kv_state_begin_forward", cache, ShapeTuple([0, 0]), ShapeTuple([1, 1])), "once"),
        (("kv_state_begin_forward", cache, ShapeTuple([0]), ShapeTuple([0])), "once"),
        (("kv_state_begin_forward", cache, ShapeTuple([]), ShapeTuple([])), "once"),
    ):
        with pytest.raises(RunError, match=says):
            call(*args)
    running.step("prefill", cache, [0], [list(range(12))])
    with pytest.raises(RunError, match="0 free pages"):
        running.step("decode", cache, [0], [[1]])
    call("kv_state_end_forward", cache)
    rows = tvm.nd.array(np.zeros((1, 1, HIDDEN), "float32"))
    with pytest.raises(RuntimeError, match="promised 0 rows, got 1"):
        running.machine["decode"](rows, cache, running.params)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attn_kind": "mla"}, "only 'mha'"),
        ({"attn_kind": ["mha", "mha_sliding"]}, "only 'mha'"),
        ({"support_sliding_window": 1}, "support_sliding_window"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling"),
        ({"v_head_dim": 4}, "only qk_head_dim"),
        ({"enable_disaggregation": True}, "disaggregation"),
        ({"target": tvm.target.Target("nvidia/nvidia-a100")}, "only CPUs"),
        ({"num_key_value_heads": 3}, "a multiple of 3"),
        ({"layer_partition": relax.ShapeExpr([0, 1, 2])}, "one stage"),
    ],
)
def test_what_caches_do_not_do_is_said(options: Any, says: str) -> None:
    model = Model(**options)
    with pytest.raises(VerifyError, match=says):
        model.export_tvm(spec=model.spec())


def test_steps_of_lowering_that_the_build_does_are_named() -> None:
    for name in ("VMShapeLower", "KillAfterLastUse", "LowerAllocTensor", "RewriteCUDAGraph"):
        with pytest.raises(AttributeError, match=f"{name}.*leave it out"):
            getattr(relax.transform, name)


def test_positions_of_rows_are_known_in_the_graph() -> None:
    class Places(nn.Module):
        def forward(self, x: Tensor, cache: PagedKVCache) -> Tensor:
            return cache.get_query_positions(x.shape[0])

    spec = {
        "forward": {
            "x": nn.spec.Tensor(["n"], "float32"),
            "cache": nn.spec.Object(object_type=PagedKVCache),
        }
    }
    machine = relax.VirtualMachine(tvm.compile(Places().export_tvm(spec)[0], "llvm"), tvm.cpu())
    cache = Running(Model(), "float32").cache()
    for number in (4, 2):
        call("kv_state_add_sequence", cache, number)
    call("kv_state_begin_forward", cache, ShapeTuple([4, 2]), ShapeTuple([3, 1]))
    made = machine["forward"](tvm.nd.array(np.zeros(4, "float32")), cache)
    assert made.numpy().tolist() == [0, 1, 2, 0]
