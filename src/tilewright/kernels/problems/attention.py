"""Attention, as kernels see it: recognised by ``topi``'s definition.

Scores are kept in base 2: the scale includes ``log2(e)``, so that powers are of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import (
    Broadcast,
    Expr,
    as_int,
    cast,
    ceildiv,
    const,
    dtypes,
    floordiv,
    floormod,
    maximum,
    minimum,
    pre_order,
    select,
)
from tilewright.kernels.definition import is_definition
from tilewright.scheduling import NotApplicable
from tilewright.tir import Block, Buffer, BufferLoad, PrimFunc
from tilewright.tir.building import load
from tilewright.topi.nn.attention import (
    ATTENTION,
    AttentionOptions,
    define_attention,
    define_paged_attention,
    dims_of,
    heads_per_key_head,
    in_layout,
    length_within,
    page_within,
)

LOG2_E = math.log2(math.e)
FLOAT = "float32"
LOWEST = const(-math.inf, FLOAT)
DTYPES = ("float32", "float16", "bfloat16")


def widen(value: Expr) -> Expr:
    """Convert to float32, lane by lane."""
    return cast(value, dtypes.vector_dtype(FLOAT, dtypes.lanes_of(value.dtype)))


@dataclass(frozen=True)
class Pages:
    """Where keys and values lie that aren't tensors of their own; see ``topi.nn.paged_attention``.

    ``cache`` has both, ``table`` the numbers of pages, ``lengths`` the positions of sequences.
    """

    cache: Buffer
    table: Buffer
    lengths: Buffer

    def element(self, part: int, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a key (``part`` 0) or value (1) at a position of a sequence."""
        size = self.cache.shape[3]
        page = page_within(load(self.table, b, floordiv(k, size)), self.cache.shape[0])
        made: Expr = load(self.cache, page, const(part), head, floormod(k, size), d)
        return made


@dataclass(frozen=True)
class Attention:
    """An attention function: buffers, options, extents. In pages, ``key`` and ``value`` are one.

    Queries are viewed as ``rows`` of a head of keys. If ``stacked``, these are the queries of all
    heads of a group, concatenated; else each query head has its own rows.
    """

    query: Buffer
    key: Buffer
    value: Buffer
    mask: Buffer | None
    out: Buffer
    options: AttentionOptions
    stacked: bool = False
    pages: Pages | None = None

    def with_stacked(self, stacked: bool) -> Attention:
        """The same problem with another view of rows."""
        return replace(self, stacked=stacked)

    @property
    def _q(self) -> dict[str, Expr]:
        return dims_of(self.query.shape, self.options.layouts[0])

    @property
    def batch(self) -> Expr:
        """Extent of the batch."""
        return self._q["B"]

    @property
    def queries(self) -> Expr:
        """Length of the query sequence."""
        return self._q["S"]

    @property
    def keys(self) -> Expr:
        """Length of the key sequence; in pages, of the longest that there can be."""
        if self.pages is not None:
            return self.pages.table.shape[1] * self.pages.cache.shape[3]
        keys: Expr = dims_of(self.key.shape, self.options.layouts[1])["S"]
        return keys

    @property
    def depth(self) -> int:
        """Elements of a query and of a key."""
        return _constant(self._q["D"])

    @property
    def value_depth(self) -> int:
        """Elements of a value."""
        if self.pages is not None:
            return self.depth
        return _constant(dims_of(self.value.shape, self.options.layouts[2])["D"])

    @property
    def group(self) -> int:
        """Query heads that share a head of keys."""
        if self.pages is not None:
            key_heads = self.pages.cache.shape[2]
        else:
            key_heads = dims_of(self.key.shape, self.options.layouts[1])["H"]
        return heads_per_key_head(self._q["H"], key_heads)

    @property
    def heads(self) -> Expr:
        """Heads that have their own rows."""
        heads: Expr = self._q["H"]
        return floordiv(heads, const(self.group)) if self.stacked else heads

    @property
    def rows(self) -> Expr:
        """Rows of a head."""
        return self.queries * self.group if self.stacked else self.queries

    @property
    def mixes_heads(self) -> bool:
        """Whether the rows of a head belong to several query heads."""
        return self.stacked and self.group > 1

    @property
    def scale(self) -> float:
        """Factor of the scores, which are kept as powers of two."""
        return self.options.scale * LOG2_E

    def key_head(self, head: Expr) -> Expr:
        """The head of keys and values for the rows of ``head``."""
        return head if self.stacked else floordiv(head, const(self.group))

    def query_of(self, row: Expr) -> Expr:
        """Position of a row in the query sequence."""
        return floormod(row, self.queries) if self.mixes_heads else row

    def query_head(self, head: Expr, row: Expr) -> Expr:
        """Head of a row in the query tensor."""
        if not self.mixes_heads:
            return head
        return head * self.group + floordiv(row, self.queries)

    def query_elements(self, b: Expr, head: Expr, row: Expr, d: Expr) -> Expr:
        """Elements of a query, unconverted."""
        at = in_layout(
            self.options.layouts[0], b, self.query_head(head, row), self.query_of(row), d
        )
        return load(self.query, *at)

    def key_elements(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a key, unconverted."""
        if self.pages is not None:
            return self.pages.element(0, b, self.key_head(head), k, d)
        return load(self.key, *in_layout(self.options.layouts[1], b, self.key_head(head), k, d))

    def value_elements(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a value, unconverted."""
        if self.pages is not None:
            return self.pages.element(1, b, self.key_head(head), k, d)
        return load(self.value, *in_layout(self.options.layouts[2], b, self.key_head(head), k, d))

    def read_query(self, b: Expr, head: Expr, row: Expr, d: Expr) -> Expr:
        """Elements of a query in float32, times the scale."""
        return scaled(widen(self.query_elements(b, head, row, d)), self.scale)

    def read_key(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a key in float32."""
        return widen(self.key_elements(b, head, k, d))

    def read_value(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a value in float32."""
        return widen(self.value_elements(b, head, k, d))

    def result_at(self, b: Expr, head: Expr, row: Expr, d: Expr) -> tuple[Expr, ...]:
        """Indices of an element of the result."""
        where = self.query_head(head, row), self.query_of(row)
        at: tuple[Expr, ...] = in_layout(self.options.layouts[3], b, *where, d)
        return at

    # ---- which keys a row sees ----

    def key_count(self, b: Expr) -> Expr:
        """Keys of a sequence."""
        if self.pages is None:
            return self.keys
        return length_within(load(self.pages.lengths, b), self.keys, self.pages.cache.shape[0])

    def has_whole(self, size: int) -> bool:
        """Whether keys are known to be a multiple of a tile's size."""
        known = as_int(self.keys)
        return self.pages is None and known is not None and known % size == 0

    @property
    def is_causal(self) -> bool:
        """Whether a row sees keys up to some position only."""
        return self.options.causal_mask is not None

    def causal_offset(self, b: Expr) -> Expr:
        """Row of query ``i`` sees keys up to ``i + offset``, if it is causal."""
        offset = self.options.causal_offset(self.queries, self.key_count(b))
        assert offset is not None, "only where it is causal"
        return offset

    def key_limit(self, b: Expr, last_row: Expr) -> Expr:
        """The first key that no row up to ``last_row`` sees."""
        count = self.key_count(b)
        if not self.is_causal:
            return count
        last = self.queries - 1 if self.stacked else minimum(last_row, self.queries - 1)
        return simplify(maximum(minimum(count, last + self.causal_offset(b) + 1), 0))

    def first_key(self, b: Expr, first_row: Expr) -> Expr:
        """The first key that a row from ``first_row`` on sees in its window."""
        window = self.options.window_size
        if window is None:
            return const(0)
        first = const(0) if self.mixes_heads else first_row
        return simplify(maximum(first + self.causal_offset(b) - (window - 1), 0))

    def key_blocks(self, b: Expr, first_row: Expr, last_row: Expr, size: int) -> tuple[Expr, Expr]:
        """The first block of ``size`` keys of which these rows see some, and how many there are."""
        blocks = simplify(ceildiv(self.key_limit(b, last_row), const(size)))
        if self.options.window_size is None:
            return const(0), blocks
        start = simplify(floordiv(self.first_key(b, first_row), const(size)))
        return start, simplify(maximum(blocks - start, 0))

    def seen(self, b: Expr, row: Expr, key: Expr) -> list[Expr]:
        """Conditions under which a row sees a key, of those that depend on positions."""
        if not self.is_causal:
            return []
        last, window = self.query_of(row) + self.causal_offset(b), self.options.window_size
        return [key <= last, *([key > last - window] if window is not None else [])]

    # ---- the mask ----

    @property
    def mask_varies(self) -> bool:
        """Whether the mask differs between rows of one head."""
        if self.mask is None:
            return False
        _, h, s, _ = self._mask_extents()
        return not is_one(s) or (self.stacked and not is_one(h))

    def _mask_extents(self) -> tuple[Expr, ...]:
        assert self.mask is not None
        return (*[const(1)] * (4 - self.mask.ndim), *self.mask.shape)

    def read_mask(self, b: Expr, head: Expr, row: Expr, k: Expr) -> Expr:
        """What the mask adds to scores, in base 2: a vector for neighbouring keys."""
        assert self.mask is not None
        where = (b, self.query_head(head, row), self.query_of(row), k)
        extents = self._mask_extents()
        at = [const(0) if is_one(n) else i for i, n in zip(where, extents)]
        value: Expr = load(self.mask, *at[4 - self.mask.ndim :])
        lanes = dtypes.lanes_of(value.dtype)
        if dtypes.is_bool(value.dtype):
            return select(value, splat(0.0, lanes), splat(-math.inf, lanes))
        return scaled(widen(value), LOG2_E)

    @property
    def mask_has_keys(self) -> bool:
        """Whether the mask differs between keys."""
        return self.mask is not None and not is_one(self._mask_extents()[3])


def splat(value: float, lanes: int) -> Expr:
    """A number in every lane."""
    one = const(value, FLOAT)
    return one if lanes == 1 else Broadcast(one, lanes)


def scaled(value: Expr, factor: float) -> Expr:
    """Multiply a scalar or vector by a number."""
    return value * splat(factor, dtypes.lanes_of(value.dtype))


def is_one(extent: Expr) -> bool:
    """Whether an extent is the constant 1."""
    return as_int(extent) == 1


def _constant(extent: Expr) -> int:
    value = as_int(extent)
    assert value is not None, "the rule refuses symbolic depths"
    return value


def read_attention(func: PrimFunc) -> Attention | NotApplicable:
    """Read operands and options from a function, or say why the kernels don't apply."""
    blocks = {item.name: item for item in pre_order(func.body) if isinstance(item, Block)}
    last = blocks.get("attention")
    if last is None or ATTENTION not in last.annotations:
        return NotApplicable("no block is annotated as attention")
    options = AttentionOptions.from_annotation(last.annotations[ATTENTION])
    if options.paged:
        return _read_paged(func, blocks, options)
    try:
        query, key = _operands(func, blocks["attention_scores"])
        (value,) = _operands(func, blocks["attention_values"])
        mask = _operands(func, blocks["attention_mask"])[0] if options.has_mask else None
    except (KeyError, ValueError, IndexError):
        return NotApplicable("the stages are not those of the definition")
    if not last.writes:
        return NotApplicable("the stages are not those of the definition")
    out = last.writes[0].buffer
    problem = Attention(query, key, value, mask, out, options)
    reason = _unfit(problem)
    if reason is not None:
        return NotApplicable(reason)

    def define(tensors: Mapping[Buffer, te.Tensor]) -> dict[Buffer, te.Tensor]:
        masked = None if mask is None else tensors[mask]
        return {
            out: define_attention(tensors[query], tensors[key], tensors[value], masked, options)
        }

    if not is_definition(func, [item for item in func.buffers if item is not out], define):
        return NotApplicable("the function is more or less than attention")
    return problem


def _read_paged(
    func: PrimFunc, blocks: Mapping[str, Block], options: AttentionOptions
) -> Attention | NotApplicable:
    """Read attention over pages, whose operands are told apart by their dimensions."""
    writes = blocks["attention"].writes
    found = _operands(func, blocks["attention_scores"]) if "attention_scores" in blocks else []
    by_dims = {buffer.ndim: buffer for buffer in found}
    if set(by_dims) != {1, 2, 4, 5} or len(set(found)) != 4 or not writes:
        return NotApplicable("the stages are not those of the definition")
    lengths, table, query, cache = (by_dims[n] for n in (1, 2, 4, 5))
    out = writes[0].buffer
    pages = Pages(cache, table, lengths)
    problem = Attention(query, cache, cache, None, out, options, pages=pages)
    if (reason := _unfit(problem)) is not None:
        return NotApplicable(reason)

    def define(tensors: Mapping[Buffer, te.Tensor]) -> dict[Buffer, te.Tensor]:
        q, c, t, n = (tensors[item] for item in (query, cache, table, lengths))
        return {out: define_paged_attention(q, c, t, n, options)}

    if not is_definition(func, [item for item in func.buffers if item is not out], define):
        return NotApplicable("the function is more or less than attention")
    return problem


def _operands(func: PrimFunc, block: Block) -> list[Buffer]:
    """Operands of the function that a stage reads, in the order of its formula."""
    params = set(func.buffers)
    loads = [item.buffer for item in pre_order(block.body) if isinstance(item, BufferLoad)]
    return [buffer for buffer in loads if buffer in params]


def _unfit(problem: Attention) -> str | None:
    operands = (problem.query, problem.key, problem.value)
    if problem.pages is None and any(item.ndim != 4 for item in operands):
        return "query, key and value don't have the layouts' dimensions"
    if any(item.dtype not in DTYPES or item.dtype != problem.query.dtype for item in operands):
        return f"the dtype is not one of {', '.join(DTYPES)}"
    depths = (problem.query.shape[-1], problem.value.shape[-1])
    if any(as_int(depth) is None for depth in depths):
        return "the depth of a head is not known"
    if any(as_int(extent) == 0 for item in operands for extent in item.shape):
        return "there is nothing to compute"
    return None
