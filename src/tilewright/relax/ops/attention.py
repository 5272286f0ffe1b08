"""Attention operators."""

from __future__ import annotations

from typing import Any

from tilewright import topi
from tilewright.ir import Expr, as_int
from tilewright.ir import const as number
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.binary import add, equal, less, less_equal, logical_and, subtract
from tilewright.relax.ops.common import (
    broadcast,
    known,
    require_ndim,
    same_dtype,
)
from tilewright.relax.ops.create import arange
from tilewright.relax.ops.manipulate import reshape, take
from tilewright.relax.ops.search import searchsorted
from tilewright.relax.ops.unary import astype
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    prove_equal,
)
from tilewright.relax.values import const
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
    window_size: int | None = None,
) -> StructInfo:
    try:
        layouts = parse_layouts(layout)
    except VerifyError as error:
        raise VerifyError(str(error)) from None
    _check_causal(causal_mask, window_size)
    for name, info in (("query", query), ("key", key), ("value", value)):
        require_ndim(info, 4, name)
    shapes = (known(query, "query"), known(key, "key"), known(value, "value"))
    q, k, v = (dims_of(shape, item) for shape, item in zip(shapes, layouts))
    require_equal("depths of query and key differ", q["D"], k["D"])
    require_equal("batches of query and key differ", q["B"], k["B"])
    for letter, name in (("B", "batches"), ("H", "heads"), ("S", "sequences")):
        require_equal(f"{name} of key and value differ", k[letter], v[letter])
    _check_heads(q["H"], k["H"])
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
    window_size: int | None = None,
) -> StructInfo:
    """``softmax(query @ keyᵀ * scale + mask) @ value`` for each batch and head.

    ``key`` and ``value`` may have fewer heads: each serves a group of query heads in turn.
    ``mask`` broadcasts against ``[batch, heads, queries, keys]``; a bool mask says which keys a
    query sees, any other is added. ``causal_mask`` is ``None``, ``TopLeft`` or ``BottomRight``.
    With one, ``window_size`` lets a query see so many of the last keys, its own included.
    ``layout`` is one for all of query, key, value and result, or one for each: ``BHSD``, ``BSHD``.
    A query that sees no key gives zeros.
    """
    return _infer(query, key, value, mask, scale, causal_mask, layout, window_size)


@operator("nn.paged_attention", legalize=topi.nn.paged_attention)
def paged_attention(
    query: Tensor,
    pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """Attention of the last positions of sequences whose keys and values lie in pages.

    ``query``: ``[batch, queries, heads, depth]``, the last ones of each sequence. ``pages``:
    ``[pages, 2, key heads, page size, depth]``, keys and then values, as in TVM's ``PagedKVCache``.
    ``page_table`` (int32, ``[batch, most pages]``) names the pages of each sequence in order,
    ``lengths`` (int32, ``[batch]``) says how many positions it has, those of the queries included.
    Each query sees the keys up to its own position, of these the last ``window_size`` if given.
    Numbers that name no page and lengths without room in the table are clipped.
    """
    _check_causal("BottomRight", window_size)
    for info, ndim, name in (
        (query, 4, "query"), (pages, 5, "pages"), (page_table, 2, "page_table"),
        (lengths, 1, "lengths"),
    ):  # fmt: skip
        require_ndim(info, ndim, name)
    for info, name in ((page_table, "page_table"), (lengths, "lengths")):
        if info.dtype != "int32":
            raise VerifyError(f"{name} must be int32, got {info.dtype}")
    batch, _, heads, depth = shape = known(query, "query")
    _, parts, key_heads, _, own_depth = known(pages, "pages")
    require_equal("a page has keys and values", parts, number(2))
    require_equal("depths of queries and pages differ", depth, own_depth)
    for info, name in ((page_table, "page_table"), (lengths, "lengths")):
        require_equal(f"batches of query and {name} differ", batch, known(info, name)[0])
    _check_heads(heads, key_heads)
    if scale is None and as_int(depth) is None:
        raise VerifyError("a symbolic depth needs scale=")
    return TensorStructInfo(shape, same_dtype(query, pages))


@operator("nn.append_paged_kv", legalize=topi.nn.append_paged_kv)
def append_paged_kv(
    key: Tensor,
    value: Tensor,
    pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    counts: Tensor | None = None,
) -> StructInfo:
    """``pages`` with the keys and values of each sequence's last positions in their places.

    ``key`` and ``value``: ``[batch, new, key heads, depth]``. ``pages``, ``page_table`` and
    ``lengths`` are those of ``paged_attention``: lengths count the new positions. Of each sequence
    the last ``counts`` (int32, ``[batch]``) rows are written, all if left out. Positions for which
    there is no page are left out.

    Pages that the graph makes and nothing else uses are written in place; those that it is given
    are copied, unless the caller has the result in their memory (``GraphFunction.run_into``).
    """
    shape = known(pages, "pages")
    for info, ndim, name in (
        (key, 4, "key"), (value, 4, "value"), (pages, 5, "pages"), (page_table, 2, "page_table"),
        (lengths, 1, "lengths"), (counts, 1, "counts"),
    ):  # fmt: skip
        if info is not None:
            require_ndim(info, ndim, name)
    rows = known(key, "key")
    for a, b in zip(rows, known(value, "value")):
        require_equal("shapes of key and value differ", a, b)
    require_equal("a page has keys and values", shape[1], number(2))
    require_equal("heads of key and pages differ", rows[2], shape[2])
    require_equal("depths of key and pages differ", rows[3], shape[4])
    for info, name in ((page_table, "page_table"), (lengths, "lengths"), (counts, "counts")):
        if info is None:
            continue
        if info.dtype != "int32":
            raise VerifyError(f"{name} must be int32, got {info.dtype}")
        require_equal(f"batches of key and {name} differ", rows[0], known(info, name)[0])
    return TensorStructInfo(shape, same_dtype(key, value, pages))


def _check_heads(query_heads: Expr, key_heads: Expr) -> None:
    heads, shared = as_int(query_heads), as_int(key_heads)
    if heads is None or shared is None:
        if not prove_equal(query_heads, key_heads):
            raise VerifyError("the numbers of heads must be constants, or the same variable")
    elif shared == 0 or heads % shared:
        raise VerifyError(
            f"{heads} query heads are no multiple of {shared} heads of keys and values"
        )


def _as_scaled_dot_product(call: RelaxCall) -> RelaxExpr:
    query, key, value, *rest = call.args
    options = call.attrs
    made: RelaxExpr = scaled_dot_product_attention(
        query,
        key,
        value,
        rest[0] if rest else None,
        options["scale"],
        options["causal_mask"],
        "BSHD",
        options["window_size"],
    )
    return made


def _causal_name(causal_mask: Any, **_: object) -> dict[str, Any]:
    """``True`` means ``TopLeft``, once the only kind."""
    return {"causal_mask": {True: "TopLeft", False: None}.get(causal_mask, causal_mask)}


def _check_causal(causal_mask: object, window_size: object) -> None:
    if causal_mask is not None and causal_mask not in CAUSAL_MASKS:
        raise VerifyError(
            f"causal_mask must be None, {' or '.join(CAUSAL_MASKS)}, got {causal_mask!r}"
        )
    if window_size is None:
        return
    if type(window_size) is not int or window_size < 1 or causal_mask is None:
        raise VerifyError(
            "a window is of 1 or more keys up to the query's own and needs a causal_mask, got "
            f"window_size={window_size!r}, causal_mask={causal_mask!r}"
        )


@operator("nn.attention", decompose=_as_scaled_dot_product, prepare=_causal_name)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    causal_mask: str | bool | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """Scaled dot-product attention over ``[batch, sequence, heads, depth]``.

    ``bias`` is added to the scores ``[batch, heads, query, key]``. ``scale`` is 1 / sqrt(depth)
    if left out. ``causal_mask`` is ``None``, ``TopLeft`` or ``BottomRight``; with one,
    ``window_size`` lets a query see so many of the last keys, its own included.
    """
    return _infer(query, key, value, bias, scale, causal_mask, "BSHD", window_size)


# ---- sequences side by side --------------------------------------------------------------------


def _place_in_sequence(starts: RelaxExpr, total: Expr) -> tuple[RelaxExpr, RelaxExpr, RelaxExpr]:
    """For each position the number of its sequence, its place there, and how long that is."""
    at = arange(0, total, 1, "int64")
    edges = astype(starts, "int64")
    number = subtract(searchsorted(edges, at, True), const(1, "int64"))
    begin, end = (take(edges, add(number, const(n, "int64")), 0) for n in (0, 1))
    return number, subtract(at, begin), subtract(end, begin)


def _as_attention_of_all(call: RelaxCall) -> RelaxExpr:
    """Attention of all positions at once, with a mask of those in the same sequence."""
    queries, keys, values, starts, _, *rest = call.args
    options = call.attrs
    other = rest[0] if rest else starts
    count, key_count = queries.shape[1], keys.shape[1]
    number, place, length = _place_in_sequence(starts, count)
    key_number, key_place, key_length = _place_in_sequence(other, key_count)
    number, place, length = (reshape(item, (count, 1)) for item in (number, place, length))
    key_number, key_place, key_length = (
        reshape(item, (1, key_count)) for item in (key_number, key_place, key_length)
    )
    # Beyond the last sequence a position has no place in any.
    visible: RelaxExpr = logical_and(equal(number, key_number), less(place, length))
    visible = logical_and(visible, less(key_place, key_length))
    if options["causal_mask"] is not None:
        own = place
        if options["causal_mask"] == "BottomRight":
            own = add(place, subtract(key_length, length))
        visible = logical_and(visible, less_equal(key_place, own))
        if options["window_size"] is not None:
            near = less(subtract(own, key_place), const(options["window_size"], "int64"))
            visible = logical_and(visible, near)
    made: RelaxExpr = scaled_dot_product_attention(
        queries, keys, values, visible, options["scale"], None, "BSHD"
    )
    return made


@operator("nn.attention_var_len", decompose=_as_attention_of_all, prepare=_causal_name)
def attention_var_len(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    seqstart_q: Tensor,
    max_seqlen_q: Tensor,
    seqstart_k: Tensor | None = None,
    max_seqlen_k: Tensor | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """Attention of sequences that lie one after the other in ``[1, all positions, heads, depth]``.

    ``seqstart_q`` (int32) has where each sequence starts and, last, where all end; that of keys,
    ``seqstart_k``, is the same if left out. Positions beyond give zeros. The longest sequences,
    ``max_seqlen_q`` and ``max_seqlen_k``, are for kernels that need to be told; these results
    don't depend on them. Other options are those of ``attention``, for each sequence.

    Raises ``VerifyError`` for operands and options that don't fit.
    """
    _check_causal(causal_mask, window_size)
    for name, info in (("seqstart_q", seqstart_q), ("seqstart_k", seqstart_k)):
        if info is not None:
            require_ndim(info, 1, name)
    for name, info in (
        ("seqstart_q", seqstart_q), ("seqstart_k", seqstart_k),
        ("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k),
    ):  # fmt: skip
        if info is not None and info.dtype != "int32":
            raise VerifyError(f"{name} must be int32, got {info.dtype}")
    if seqstart_k is not None:
        require_equal("numbers of sequences", known(seqstart_q)[0], known(seqstart_k)[0])
    require_equal("the batch", known(queries, "queries")[0], 1)
    return _infer(queries, keys, values, None, scale, causal_mask, "BSHD")
