"""Attention operators."""

from __future__ import annotations

from typing import Any

from tilewright import topi
from tilewright.ir import as_int
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import (
    broadcast,
    known,
    require_ndim,
    same_dtype,
)
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    prove_equal,
)
from tilewright.support.errors import VerifyError
from tilewright.topi.nn.attention import CAUSAL_MASKS, dims_of, in_layout, parse_layouts


def _infer(
    query: TensorStructInfo,
    key: TensorStructInfo,
    value: TensorStructInfo,
    mask: TensorStructInfo | None,
    scale: float | None,
    causal_mask: str | bool | None,
    layout: str | tuple[str, ...],
) -> StructInfo:
    try:
        layouts = parse_layouts(layout)
    except VerifyError as error:
        raise VerifyError(str(error)) from None
    if causal_mask is not None and causal_mask not in CAUSAL_MASKS:
        raise VerifyError(
            f"causal_mask must be None, {' or '.join(CAUSAL_MASKS)}, got {causal_mask!r}"
        )
    for name, info in (("query", query), ("key", key), ("value", value)):
        require_ndim(info, 4, name)
    shapes = (known(query, "query"), known(key, "key"), known(value, "value"))
    q, k, v = (dims_of(shape, item) for shape, item in zip(shapes, layouts))
    require_equal("depths of query and key differ", q["D"], k["D"])
    require_equal("batches of query and key differ", q["B"], k["B"])
    for letter, name in (("B", "batches"), ("H", "heads"), ("S", "sequences")):
        require_equal(f"{name} of key and value differ", k[letter], v[letter])
    heads, key_heads = as_int(q["H"]), as_int(k["H"])
    if heads is None or key_heads is None:
        if not prove_equal(q["H"], k["H"]):
            raise VerifyError("the numbers of heads must be constants, or the same variable")
    elif key_heads == 0 or heads % key_heads:
        raise VerifyError(
            f"{heads} query heads are no multiple of {key_heads} heads of keys and values"
        )
    if scale is None and as_int(q["D"]) is None:
        raise VerifyError("a symbolic depth needs scale=")
    if mask is not None:
        scores = (q["B"], q["H"], q["S"], k["S"])
        shape = known(mask, "mask")
        if len(shape) > 4:
            raise VerifyError(f"mask must have up to 4 dimensions, it has {len(shape)}")
        for made, extent in zip(broadcast(shape, scores), scores):
            require_equal(f"mask {list(shape)} does not broadcast to the scores", made, extent)
    return TensorStructInfo(
        in_layout(layouts[3], q["B"], q["H"], q["S"], v["D"]), same_dtype(query, key, value)
    )


@operator("nn.scaled_dot_product_attention", legalize=topi.nn.scaled_dot_product_attention)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    layout: str | tuple[str, str, str, str] = "BHSD",
) -> StructInfo:
    """``softmax(query @ keyᵀ * scale + mask) @ value`` for each batch and head.

    ``key`` and ``value`` may have fewer heads: each serves a group of query heads in turn.
    ``mask`` broadcasts against ``[batch, heads, queries, keys]``; a bool mask says which keys a
    query sees, any other is added. ``causal_mask`` is ``None``, ``TopLeft`` or ``BottomRight``.
    ``layout`` is one for all of query, key, value and result, or one for each: ``BHSD``, ``BSHD``.
    A query that sees no key gives zeros.
    """
    return _infer(query, key, value, mask, scale, causal_mask, layout)


def _as_scaled_dot_product(call: RelaxCall) -> RelaxExpr:
    made: RelaxExpr = scaled_dot_product_attention(
        *call.args,
        scale=call.attrs["scale"],
        causal_mask=call.attrs["causal_mask"],
        layout="BSHD",
    )
    return made


def _causal_name(causal_mask: Any, **_: object) -> dict[str, Any]:
    """``True`` means ``TopLeft``, once the only kind."""
    return {"causal_mask": {True: "TopLeft", False: None}.get(causal_mask, causal_mask)}


@operator("nn.attention", decompose=_as_scaled_dot_product, prepare=_causal_name)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    causal_mask: str | bool | None = None,
) -> StructInfo:
    """Scaled dot-product attention over ``[batch, sequence, heads, depth]``.

    ``bias`` is added to the scores ``[batch, heads, query, key]``. ``scale`` is 1 / sqrt(depth)
    if left out. ``causal_mask`` is ``None``, ``TopLeft`` or ``BottomRight``.
    """
    return _infer(query, key, value, bias, scale, causal_mask, "BSHD")
