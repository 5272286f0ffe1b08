"""``PagedKVCache``: keys and values of several sequences, which attention reads and grows.

    class Attention(nn.Module):
        def forward(self, x: Tensor, paged_kv_cache: PagedKVCache, layer_id: int):
            qkv = op.reshape(self.qkv_proj(x), (b, s, heads + 2 * kv_heads, dim))
            return paged_kv_cache.attention_with_fused_qkv(layer_id, qkv, heads, dim**-0.5)

Around a call of the graph, global functions say which sequences it is about:
``vm.builtin.kv_state_add_sequence``, ``kv_state_begin_forward``, ``kv_state_end_forward``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import Expr, as_expr
from tilewright.relax import ops
from tilewright.relax.call_packed import call_dps_packed
from tilewright.relax.execution.paged_kv_cache import CREATE
from tilewright.relax.expr import PrimValue, RelaxExpr, ShapeExpr
from tilewright.relax.frontend.nn.operators.shapes import reshape
from tilewright.relax.frontend.nn.tensor import Object, Tensor, current_builder
from tilewright.relax.struct_info import ObjectStructInfo, TensorStructInfo
from tilewright.relax.values import prim_value
from tilewright.support.errors import VerifyError
from tilewright.target import Target


class AttnKind(enum.IntEnum):
    """Kinds of attention."""

    MHA = 0
    MLA = 1
    MHA_SLIDING = 3


class RopeMode(enum.IntEnum):
    """When rotary embeddings are applied: never, before keys are kept, or in attention."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


class PagedKVCache(Object):
    """A cache that a function takes; ``nn.spec.Object(object_type=PagedKVCache)`` declares it."""

    def attention_with_fused_qkv(
        self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float
    ) -> Tensor:
        """Return attention of ``qkv``, ``[b, s, heads + 2 * heads of keys, dim]``.

        Its keys and values are added to the cache. Rows are those that ``begin_forward`` named: of
        one sequence ``(1, s)``, of several, one of each, ``(b, 1)``.
        """
        b, s, h, d = qkv.shape
        rows = reshape(qkv, (b * s, h, d))
        info = TensorStructInfo((as_expr(b * s), as_expr(num_qo_heads), as_expr(d)), qkv.dtype)
        call = call_dps_packed(
            "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
            [self._expr, prim_value(layer_id, "int64"), prim_value(float(sm_scale)), rows._expr],
            out_ty=info,
        )
        made = Tensor(_expr=current_builder().emit(call))
        return reshape(made, (b, s, num_qo_heads, d))

    def get_query_positions(self, total_length: Expr | int) -> Tensor:
        """Return the places of the rows in their sequences, ``[total_length]`` of int32."""
        call = ops.call_pure_packed(
            "vm.builtin.attention_kv_cache_get_query_positions",
            self._expr,
            ty_args=TensorStructInfo((as_expr(total_length),), "int32"),
        )
        return Tensor(_expr=current_builder().emit(call))


class TIRPagedKVCache(PagedKVCache):
    """A new cache, for a CPU: multi-head attention, with or without rotary embeddings."""

    def __init__(
        self,
        attn_kind: str | Sequence[str],
        max_batch_size: Expr,
        max_total_seq_len: Expr,
        prefill_chunk_size: Expr,
        page_size: Expr,
        support_sliding_window: Expr | int,
        layer_partition: RelaxExpr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: Mapping[str, Any] | None,
        rope_ext_factors: RelaxExpr,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Target,
        name: str = "paged_kv_cache",
    ) -> None:
        """Make a cache in a function that returns it.

        Raises ``VerifyError`` for what isn't supported: other kinds of attention, sliding windows,
        scaled embeddings, several stages of a pipeline, other devices than a CPU.
        """
        kinds = {attn_kind} if isinstance(attn_kind, str) else set(attn_kind)
        partition = getattr(layer_partition, "values", ())
        wrong = {
            f"attn_kind {attn_kind!r}: only 'mha'": kinds != {"mha"},
            "support_sliding_window: only 0": support_sliding_window != 0,
            f"rope_scaling {rope_scaling!r}: none": (rope_scaling or {}).get("rope_type", "default")
            != "default",
            "v_head_dim: only qk_head_dim": v_head_dim != qk_head_dim,
            "mla_original_…_head_dim: only 0": bool(
                mla_original_qk_head_dim or mla_original_v_head_dim
            ),
            "rope_ext_factors: only PrimValue(0)": not isinstance(rope_ext_factors, PrimValue),
            "enable_disaggregation: only False": bool(enable_disaggregation),
            "layer_partition: one stage, [0, num_hidden_layers]": len(partition) != 2,
            f"a target of kind {target.kind.name}: only CPUs": target.device_kind != "cpu",
            f"num_attention_heads: a multiple of {num_key_value_heads}": bool(
                num_attention_heads % num_key_value_heads
            ),
        }
        for text, fails in wrong.items():
            if fails:
                raise VerifyError(f"a TIRPagedKVCache takes {text}")
        sizes = (max_batch_size, max_total_seq_len, prefill_chunk_size, page_size)
        super().__init__(
            _expr=ops.call_pure_packed(
                CREATE,
                ShapeExpr(tuple(map(as_expr, sizes))),
                num_hidden_layers,
                num_key_value_heads,
                qk_head_dim,
                int(rope_mode != RopeMode.NONE),
                float(rope_scale),
                float(rope_theta),
                rotary_dim,
                current_builder().emit(ops.zeros((), dtype)),
                ty_args=ObjectStructInfo(),
            ),
            _name=name,
        )
