"""Scaled dot-product attention as a compute definition.

``softmax(Q Kᵀ * scale + mask) V``, stage by stage: the reference for the fused kernels
(``kernels.cpu.attention``), and what runs where none of them applies. The last stage carries the
options as the block annotation ``ATTENTION``, by which a kernel recognises it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright import te
from tilewright.ir import (
    Expr,
    ExprLike,
    and_,
    as_int,
    const,
    if_then_else,
    maximum,
    minimum,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.te.arithmetic import read_broadcast
from tilewright.tir.attrs import (
    FLAG,
    REAL,
    integer,
    list_of,
    one_of,
    options_of,
    register_annotation,
)
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.broadcast import require_broadcast
from tilewright.topi.utils import require_ndim

LAYOUTS = ("BHSD", "BSHD")
CAUSAL_MASKS = ("TopLeft", "BottomRight")

_RARE = ("window_size", "paged")
"""Options that are written only where they are given."""

ATTENTION = register_annotation(
    "attention",
    options_of(
        *_RARE,
        layouts=list_of(one_of(*LAYOUTS), 4),
        scale=REAL,
        causal_mask=one_of(None, *CAUSAL_MASKS),
        has_mask=FLAG,
        window_size=integer(1),
        paged=FLAG,
    ),
    means="On the last stage: the fields of ``AttentionOptions``.",
    read_by=("kernels.problems.attention", "relax.transform.annotate_pattern"),
)


@dataclass(frozen=True)
class AttentionOptions:
    """What distinguishes one attention from another, besides its operands.

    ``layouts`` are those of query, key, value and result. ``causal_mask`` is ``None``, ``TopLeft``
    (query ``i`` sees keys up to ``i``) or ``BottomRight`` (the last query sees all keys). Of these
    it sees the last ``window_size``, if that is given. If ``paged``, keys and values are those of
    :func:`paged_attention`.
    """

    layouts: tuple[str, str, str, str]
    scale: float
    causal_mask: str | None = None
    has_mask: bool = False
    window_size: int | None = None
    paged: bool = False

    def annotation(self) -> dict[str, Any]:
        """The options as a block annotation: Python values only."""
        made = {**asdict(self), "layouts": list(self.layouts)}
        return {name: value for name, value in made.items() if name not in _RARE or value}

    @staticmethod
    def from_annotation(value: Mapping[str, Any]) -> AttentionOptions:
        """Read what ``annotation`` wrote."""
        q, k, v, out = value["layouts"]
        window = value.get("window_size")
        return AttentionOptions(
            (q, k, v, out),
            float(value["scale"]),
            value["causal_mask"],
            bool(value["has_mask"]),
            None if window is None else int(window),
            bool(value.get("paged", False)),
        )

    def causal_offset(self, queries: Expr, keys: Expr) -> Expr | None:
        """Return ``o`` such that query ``i`` sees keys up to ``i + o``; ``None`` if not causal."""
        if self.causal_mask is None:
            return None
        return const(0) if self.causal_mask == "TopLeft" else keys - queries


def parse_layouts(layout: str | Sequence[str]) -> tuple[str, str, str, str]:
    """Return the layouts of query, key, value and result from one for all, or one for each.

    Raises ``VerifyError`` for an unknown layout.
    """
    layouts = (layout,) * 4 if isinstance(layout, str) else tuple(layout)
    if len(layouts) != 4 or any(item not in LAYOUTS for item in layouts):
        raise VerifyError(
            f"attention: layout must be one of {', '.join(LAYOUTS)}, or one for each of query, "
            f"key, value and result; got {layout!r}"
        )
    return layouts[0], layouts[1], layouts[2], layouts[3]


def dims_of(shape: Sequence[object], layout: str) -> dict[str, Any]:
    """Extents by letter: batch, heads, sequence, depth."""
    return dict(zip(layout, shape))


def in_layout(layout: str, b: object, h: Expr, s: Expr, d: object) -> tuple[Any, ...]:
    """Order indices by a layout."""
    by_letter = {"B": b, "H": h, "S": s, "D": d}
    return tuple(by_letter[letter] for letter in layout)


@with_conditions
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    causal_mask: str | None = None,
    layout: str | Sequence[str] = "BHSD",
    window_size: int | None = None,
) -> Tensor:
    """``softmax(query @ keyᵀ * scale + mask) @ value`` for each batch and head.

    The heads of ``key`` and ``value`` may be fewer: then each serves a group of query heads in
    turn. ``mask`` broadcasts against ``[batch, heads, queries, keys]``; a bool mask says which keys
    a query sees, any other is added to the scores. With a ``causal_mask``, ``window_size`` lets a
    query see so many of the last keys only. A query that sees no key gives zeros, as in PyTorch.
    ``scale`` is ``1 / sqrt(depth)`` if left out. Narrow floats compute in float32.

    Raises ``VerifyError`` if shapes or dtypes don't fit each other.
    """
    layouts = parse_layouts(layout)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        require_ndim(f"attention: {name}", tensor, 4)
    check_causal_mask("attention", causal_mask, window_size)
    q, k, v = (dims_of(t.shape, x) for t, x in zip((query, key, value), layouts))
    for letter, name, a, b in (
        ("D", "depths of query and key", q, k),
        ("B", "batches of query and key", q, k),
        ("B", "batches of key and value", k, v),
        ("H", "heads of key and value", k, v),
        ("S", "sequences of key and value", k, v),
    ):
        require_equal(f"attention: {name}", a[letter], b[letter])
    options = AttentionOptions(
        layouts, default_scale(scale, q["D"]), causal_mask, mask is not None, window_size
    )
    return define_attention(query, key, value, mask, options)


@with_conditions
def paged_attention(
    query: Tensor,
    pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window_size: int | None = None,
) -> Tensor:
    """Attention of the last positions of sequences whose keys and values lie in pages.

    ``query``: ``[batch, queries, heads, depth]``, the last ones of each sequence (one, if text is
    generated token by token). ``pages``: ``[pages, 2, key heads, page size, depth]``, keys and then
    values of so many positions, in the layout of TVM's ``PagedKVCache``. ``page_table`` (int32,
    ``[batch, most pages]``) names the pages of each sequence in order, and ``lengths`` (int32,
    ``[batch]``) says how many positions it has, those of the queries included; what is in the table
    and in pages beyond that is never read. Each query sees the keys up to its own position, of
    these the last ``window_size`` if that is given. A query before the sequence gives zeros.

    Whatever the table and the lengths hold, nothing but the pages is read: numbers that name no
    page are clipped to those that do, and lengths to the positions that the table has room for.

    Raises ``VerifyError`` if shapes or dtypes don't fit each other.
    """
    for name, tensor, ndim in (
        ("query", query, 4), ("pages", pages, 5), ("page_table", page_table, 2),
        ("lengths", lengths, 1),
    ):  # fmt: skip
        require_ndim(f"paged_attention: {name}", tensor, ndim)
    for name, tensor in (("page_table", page_table), ("lengths", lengths)):
        if tensor.dtype != "int32":
            raise VerifyError(f"paged_attention: {name} must be int32, got {tensor.dtype}")
    check_causal_mask("paged_attention", "BottomRight", window_size)
    require_equal("paged_attention: keys and values in a page", pages.shape[1], const(2))
    require_equal("paged_attention: depths of queries and pages", query.shape[3], pages.shape[4])
    for name, tensor in (("page_table", page_table), ("lengths", lengths)):
        require_equal(f"paged_attention: batches of query and {name}", query.shape[0],
                      tensor.shape[0])  # fmt: skip
    options = AttentionOptions(
        ("BSHD", "BHSD", "BHSD", "BSHD"), default_scale(scale, query.shape[3]), "BottomRight",
        window_size=window_size, paged=True,
    )  # fmt: skip
    return define_paged_attention(query, pages, page_table, lengths, options)


def check_causal_mask(what: str, causal_mask: object, window_size: object) -> None:
    """Raise ``VerifyError`` for a mask that is unknown, or a window without one."""
    if causal_mask is not None and causal_mask not in CAUSAL_MASKS:
        raise VerifyError(
            f"{what}: causal_mask must be None, {' or '.join(CAUSAL_MASKS)}, got {causal_mask!r}"
        )
    if window_size is None:
        return
    if type(window_size) is not int or window_size < 1 or causal_mask is None:
        raise VerifyError(
            f"{what}: a window is of 1 or more keys up to the query's own and needs a causal_mask, "
            f"got window_size={window_size!r}, causal_mask={causal_mask!r}"
        )


def default_scale(scale: float | None, depth: ExprLike) -> float:
    """Return the scale given, or ``1 / sqrt(depth)``.

    Raises ``VerifyError`` if neither is known.
    """
    if scale is not None:
        return float(scale)
    extent = as_int(depth)
    if extent is None:
        raise VerifyError("attention: a symbolic depth needs scale=")
    return 1.0 / math.sqrt(extent)


def heads_per_key_head(query_heads: ExprLike, key_heads: ExprLike) -> int:
    """Return how many query heads share a head of keys and values.

    Raises ``VerifyError`` if it is not an integer.
    """
    queries, keys = as_int(query_heads), as_int(key_heads)
    if queries is None or keys is None:
        if query_heads is key_heads:
            return 1
        raise VerifyError("attention: the numbers of heads must be constants, or the same variable")
    if keys == 0 or queries % keys:
        raise VerifyError(
            f"attention: {queries} query heads are no multiple of {keys} key and value heads"
        )
    return queries // keys


@with_conditions
def define_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: AttentionOptions
) -> Tensor:
    """Define the stages for operands that have been checked."""
    _, keys, values, _ = options.layouts
    k, v = dims_of(key.shape, keys), dims_of(value.shape, values)
    cache = _Cache(
        k["H"],
        k["S"],
        v["D"],
        lambda b, h, j, d: key(*in_layout(keys, b, h, j, d)),
        lambda b, h, j, d: value(*in_layout(values, b, h, j, d)),
        lambda b: k["S"],
    )
    return _define(query, cache, mask, options)


@with_conditions
def define_paged_attention(
    query: Tensor, pages: Tensor, page_table: Tensor, lengths: Tensor, options: AttentionOptions
) -> Tensor:
    """Define the stages for operands that have been checked."""
    number, _, heads, page_size, depth = pages.shape
    most = page_table.shape[1] * page_size

    def length(b: Expr) -> Expr:
        return length_within(lengths(b), most, number)

    def read(part: int) -> Callable[..., Any]:
        def element(b: Expr, h: Expr, j: Expr, d: Expr) -> Any:
            page = page_within(page_table(b, j // page_size), number)
            within = pages(page, part, h, j % page_size, d)
            return if_then_else(j < length(b), within, const(0.0, pages.dtype))

        return element

    cache = _Cache(heads, most, depth, read(0), read(1), length)
    return _define(query, cache, None, options)


def page_within(page: Expr, number: Expr) -> Expr:
    """The page that an entry of the table names, of ``number`` pages, as int64."""
    return maximum(minimum(cast_expr(page, "int64"), cast_expr(number, "int64") - 1), 0)


def length_within(length: Expr, most: Expr, number: Expr) -> Expr:
    """The positions of a sequence: ``most`` are in its table, and none if there are no pages."""
    room = select(number > 0, most, const(0, most.dtype))
    return maximum(minimum(cast_expr(length, most.dtype), room), 0)


@dataclass(frozen=True)
class _Cache:
    """Keys and values: their heads, the most positions of a sequence, elements of a value.

    ``key`` and ``value`` read an element of a batch, a head, a position; ``length`` is the number
    of positions of a batch's sequence.
    """

    heads: ExprLike
    most: Expr
    width: ExprLike
    key: Callable[[Expr, Expr, Expr, Expr], Any]
    value: Callable[[Expr, Expr, Expr, Expr], Any]
    length: Callable[[Expr], Expr]


def _define(query: Tensor, cache: _Cache, mask: Tensor | None, options: AttentionOptions) -> Tensor:
    layouts = options.layouts
    wide = fast_dtype(query.dtype)
    q = dims_of(query.shape, layouts[0])
    group = heads_per_key_head(q["H"], cache.heads)
    rows = (q["B"], q["H"], q["S"])
    depth = te.reduce_axis((0, q["D"]), "d")

    def score(b: Expr, h: Expr, i: Expr, j: Expr) -> Any:
        left = query(*in_layout(layouts[0], b, h, i, depth.var))
        right = cache.key(b, h // group, j, depth.var)
        return te.sum(cast_expr(left, wide) * cast_expr(right, wide), axis=depth)

    scores = compute((*rows, cache.most), score, name="attention_scores")
    visible = _masked(scores, mask, options, q["S"], cache)
    powers, total = _powers(visible)
    j = te.reduce_axis((0, cache.most), "j")

    def weighted(b: Expr, h: Expr, i: Expr, d: Expr) -> Any:
        element = cache.value(b, h // group, j.var, d)
        return te.sum(powers(b, h, i, j.var) * cast_expr(element, wide), axis=j)

    values = compute((*rows, cache.width), weighted, name="attention_values")

    def normal(*index: Expr) -> Expr:
        at = dims_of(index, layouts[3])
        where = (at["B"], at["H"], at["S"])
        sums = total(*where)
        made = values(*where, at["D"]) / select(sums == 0.0, const(1.0, wide), sums)
        return cast_expr(made, query.dtype)

    made: Tensor = compute(
        in_layout(layouts[3], *rows, cache.width),
        normal,
        name="attention",
        attrs={ATTENTION: options.annotation()},
    )
    return made


def _masked(
    scores: Tensor, mask: Tensor | None, options: AttentionOptions, queries: Expr, cache: _Cache
) -> Tensor:
    """Scale the scores and apply the masks."""
    shape, wide = scores.shape, scores.dtype
    if mask is not None:
        if mask.ndim > 4:
            raise VerifyError(f"attention: mask must have up to 4 dimensions, has {mask.ndim}")
        require_broadcast("attention: mask", mask.shape, shape)
    lowest = const(-math.inf, wide)

    def masked(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        made: Expr = scores(b, h, i, j) * const(options.scale, wide)
        if mask is not None:
            element = read_broadcast(mask, (b, h, i, j)[4 - mask.ndim :], shape[4 - mask.ndim :])
            if mask.dtype == "bool":
                made = select(element, made, lowest)
            else:
                made = made + cast_expr(element, wide)
        offset = options.causal_offset(queries, cache.length(b))
        if offset is None:
            return made
        seen = j <= i + offset
        if options.window_size is not None:
            seen = and_(seen, i + offset - j < options.window_size)
        return select(seen, made, lowest)

    visible: Tensor = compute(shape, masked, name="attention_mask")
    return visible


def _powers(visible: Tensor) -> tuple[Tensor, Tensor]:
    """Exponentials of the scores less the maximum of each row, and their sums."""
    *rows, keys = visible.shape
    wide = visible.dtype
    n, m = (te.reduce_axis((0, keys), "j") for _ in range(2))
    top = compute(
        rows, lambda b, h, i: te.max(visible(b, h, i, n.var), axis=n), name="attention_max"
    )

    def power(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        # The largest of nothing is -inf, and -inf - -inf is NaN.
        shift = select(top(b, h, i) == const(-math.inf, wide), const(0.0, wide), top(b, h, i))
        return te.exp(visible(b, h, i, j) - shift)

    powers = compute(visible.shape, power, name="attention_exp")
    total = compute(
        rows, lambda b, h, i: te.sum(powers(b, h, i, m.var), axis=m), name="attention_sum"
    )
    return powers, total
