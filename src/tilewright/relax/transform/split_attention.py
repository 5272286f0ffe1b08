"""``SplitAttention``: a single query meets the parts of its keys where they lie.

    attention(q, concat(K, k), concat(V, v))
    ->  p = softmax(concat(q @ Kᵀ, q @ kᵀ) * scale);  p[:n] @ V + p[n:] @ v

A decoder appends a token's keys and values to those of the past. A single query reads each of them
once, so copying them into one tensor takes longer than attention itself. Its scores are few: they
are joined instead. That is for float32, whose scores aren't rounded in between; and for what nobody
else reads as a whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tilewright.ir import IRModule, dtypes, pre_order
from tilewright.relax.expr import Function, RelaxCall, RelaxExpr, RelaxVar, Tuple
from tilewright.relax.ops import concat, matmul, nn, reshape, strided_slice
from tilewright.relax.ops import sum as sum_of
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo, static_shape
from tilewright.relax.transform.fuse_transpose_attention import OPERATOR
from tilewright.relax.values import const
from tilewright.topi.nn.attention import parse_layouts

#: Bytes of joined keys and values from which copying them takes longer than the kernels of parts.
_WORTH = 1 << 18
_DTYPE, _SEQUENCE = "float32", 2


class SplitAttention(GraphPass):
    """Multiply single queries by the parts of joined keys and values."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Splitter(mod)


class _Splitter(FunctionRewriter):
    isolated = ("joined",)

    def rewrite(self, function: Function) -> Function:
        self.joined: dict[RelaxExpr, Sequence[RelaxExpr]] = {}
        """The parts of what is joined along the sequence for one reader."""
        values = [*(binding.value for binding in function.bindings), function.body.body]
        self.uses = Counter(
            item for value in values for item in pre_order(value) if isinstance(item, RelaxVar)
        )
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall):
            return value
        if is_call_to(value, "concat"):
            (parts,) = value.args
            ndim = len(_shape(value) or ())
            along = ndim == 4 and value.attrs["axis"] % ndim == _SEQUENCE
            fields = parts.fields if isinstance(parts, Tuple) else ()
            # Unknown lengths may add up to a known one.
            if along and self.uses[var] == 1 and None not in map(_shape, fields):
                self.joined[var] = fields
        elif is_call_to(value, OPERATOR) and _is_single_query(value):
            keys, values = (self.joined.get(arg, ()) for arg in value.args[1:3])
            if keys and list(map(_length, keys)) == list(map(_length, values)):
                filled = [pair for pair in zip(keys, values) if _length(pair[0])]
                return self.of_parts(value, *zip(*filled))
        return value

    def of_parts(
        self, call: RelaxCall, keys: Sequence[RelaxExpr], values: Sequence[RelaxExpr]
    ) -> RelaxExpr:
        """Join scores in place of keys, add up what parts of the values give."""
        batch, heads, _, depth = _shape(call.args[1]) or ()
        scale = call.attrs["scale"]
        scale = 1 / math.sqrt(depth) if scale is None else scale
        query = self.builder.emit(reshape(call.args[0], (batch, heads, 1, depth)))
        scores = [self.builder.emit(_scores(query, part)) for part in keys]
        scaled = concat(Tuple(tuple(scores)), axis=3) * const(scale, _DTYPE)
        weights = self.builder.emit(nn.softmax(scaled, axis=-1))
        first, total = 0, None
        for part in values:
            end = first + _length(part)
            own = self.builder.emit(strided_slice(weights, axes=[3], begin=[first], end=[end]))
            # Of a single key, its values times one number.
            made = own * part if end - first == 1 else matmul(own, part)
            total = made if total is None else self.builder.emit(total) + made
            first = end
        assert total is not None
        return reshape(self.builder.emit(total), _shape(call) or ())


def _scores(query: RelaxExpr, keys: RelaxExpr) -> RelaxExpr:
    if _length(keys) == 1:
        made: RelaxExpr = sum_of(query * keys, axis=[3], keepdims=True)
    else:
        made = matmul(query, keys, transpose_b=True)
    return made


def _is_single_query(call: RelaxCall) -> bool:
    """Whether each head has one query, keys of its own, sees them all, and they are many."""
    query, keys, values = map(_shape, call.args[:3])
    layouts, attrs = parse_layouts(call.attrs["layout"]), call.attrs
    if not query or not keys or not values or layouts[1:3] != ("BHSD", "BHSD"):
        return False
    places = dict(zip(layouts[0], query))
    alike = (places["B"], places["H"], places["S"]) == (*keys[:2], 1)
    info = call.struct_info
    assert isinstance(info, TensorStructInfo)
    sees_all = len(call.args) == 3 and attrs["window_size"] is None
    sees_all = sees_all and attrs["causal_mask"] in (None, "BottomRight")
    size = (math.prod(keys) + math.prod(values)) * dtypes.bytes_of(_DTYPE)
    return alike and sees_all and info.dtype == _DTYPE and size >= _WORTH


def _length(part: RelaxExpr) -> int:
    shape = _shape(part)
    assert shape is not None
    return shape[_SEQUENCE]


def _shape(expr: RelaxExpr) -> tuple[int, ...] | None:
    return static_shape(expr.struct_info)


__all__ = ["SplitAttention"]
