"""Keys and values of several sequences in pages, and attention over them: ``nn.llm.PagedKVCache``.

The global functions have TVM's names: ``vm.builtin.kv_state_add_sequence``, ``…_begin_forward``,
``vm.builtin.attention_kv_cache_attention_with_fused_qkv`` … They work in the CPU's memory; products
are those of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime import from_dlpack, register_global_func
from tilewright.support.errors import RunError

CREATE = "tilewright.paged_kv_cache_create"
NO_ROPE, ROPE = 0, 1


@dataclass
class _Sequence:
    pages: list[int] = field(default_factory=list)
    length: int = 0


@dataclass(frozen=True)
class Rope:
    """Rotary embeddings: ``(i, i + dim / 2)`` turn by ``position * scale / theta^(2i/dim)``."""

    mode: int
    scale: float
    theta: float
    dim: int

    def rotate(self, x: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
        """Rotate ``[row, head, dim]`` by the rows' positions."""
        if self.mode == NO_ROPE:
            return x
        half = self.dim // 2
        frequencies = self.theta ** (-np.arange(half, dtype="float32") * 2 / self.dim)
        angles = (positions[:, None, None] * np.float32(self.scale) * frequencies).astype("float32")
        cos, sin = np.cos(angles), np.sin(angles)
        first, second, rest = x[..., :half], x[..., half : self.dim], x[..., self.dim :]
        turned = [first * cos - second * sin, second * cos + first * sin, rest]
        return np.concatenate(turned, axis=-1)


class PagedAttentionKVCache:
    """The memory of a model's attention: ``[layer, page, key or value, place, head, dim]``."""

    def __init__(
        self,
        sizes: Sequence[int],
        layers: int,
        heads: int,
        head_dim: int,
        rope: Rope,
        dtype: Any,
    ) -> None:
        self.max_batch, self.max_total, self.chunk, self.page_size = map(int, sizes)
        if min(*sizes, layers, heads, head_dim) < 1:
            raise RunError(
                f"sizes of a cache are positive, got {[*sizes, layers, heads, head_dim]}"
            )
        if rope.mode != NO_ROPE and (rope.dim % 2 or not 0 < rope.dim <= head_dim):
            raise RunError(
                f"rotary embeddings turn pairs among {head_dim} numbers: rotary_dim {rope.dim} is "
                "odd, not positive or more"
            )
        count = -(-self.max_total // self.page_size) + 1
        self.memory = np.zeros((layers, count, 2, self.page_size, heads, head_dim), dtype)
        self.rope = rope
        self.free = list(range(count))[::-1]
        self.sequences: dict[int, _Sequence] = {}
        self.running: list[tuple[_Sequence, int]] = []

    def sequence(self, number: int) -> _Sequence:
        """Return a sequence; ``RunError`` if there is none of that number."""
        if number not in self.sequences:
            raise RunError(f"the cache has no sequence {number}, but {sorted(self.sequences)}")
        return self.sequences[number]

    def clear(self) -> None:
        """Forget all sequences."""
        for number in list(self.sequences):
            self.remove(number)
        self.running = []

    def add(self, number: int) -> None:
        """Begin a sequence."""
        if number in self.sequences:
            raise RunError(f"the cache has a sequence {number} already")
        if len(self.sequences) == self.max_batch:
            raise RunError(f"the cache holds {self.max_batch} sequences at most")
        self.sequences[number] = _Sequence()

    def remove(self, number: int) -> None:
        """Forget a sequence."""
        self.free += self.sequence(number).pages
        self.running = []  # rows of a forward that isn't over would go to pages of others
        del self.sequences[number]

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        """Begin a sequence with the first places of another one; with all of them at -1."""
        source = self.sequence(parent)
        length = source.length if position == -1 else position
        if length not in range(source.length + 1):
            raise RunError(f"sequence {parent} has {source.length} places, not {length}")
        self._require([(_Sequence(), length)])
        self.add(child)
        made = self.sequences[child]
        self._grow(made, length)
        self.memory[:, made.pages] = self.memory[:, source.pages[: len(made.pages)]]

    def pop(self, number: int, count: int) -> None:
        """Forget the last places of a sequence."""
        found = self.sequence(number)
        if count not in range(found.length + 1):
            raise RunError(f"sequence {number} has {found.length} places, {count} can't go")
        self.running = []
        found.length -= count
        kept = -(-found.length // self.page_size)
        self.free += found.pages[kept:]
        del found.pages[kept:]

    def _missing(self, sequence: _Sequence, count: int) -> int:
        """How many more pages a sequence needs for new places."""
        return -(-(sequence.length + count) // self.page_size) - len(sequence.pages)

    def _require(self, growths: Sequence[tuple[_Sequence, int]]) -> None:
        """Raise ``RunError`` unless there are pages for all of these new places."""
        needed = sum(self._missing(*growth) for growth in growths)
        if needed > len(self.free):
            raise RunError(f"the cache has {len(self.free)} free pages, {needed} are needed")

    def _grow(self, sequence: _Sequence, count: int) -> None:
        sequence.pages += [self.free.pop() for _ in range(self._missing(sequence, count))]
        sequence.length += count

    def begin(self, numbers: Sequence[int], counts: Sequence[int]) -> None:
        """Say which sequences the next rows belong to, and how many each."""
        fits = len(set(numbers)) == len(numbers) == len(counts) > 0
        if not fits or min(counts) < 1:
            raise RunError(
                f"each sequence once, with its number of new places: got {numbers} and {counts}"
            )
        if sum(counts) > self.chunk:
            raise RunError(f"at most {self.chunk} places at once, got {sum(counts)}")
        growths = [(self.sequence(number), count) for number, count in zip(numbers, counts)]
        self._require(growths)
        for growth in growths:
            self._grow(*growth)
        self.running = growths

    def end(self) -> None:
        """Say that all layers have seen the rows."""
        self.running = []

    def positions(self) -> NDArray[Any]:
        """The places of the rows in their sequences."""
        parts = [np.arange(item.length - count, item.length) for item, count in self.running]
        return np.concatenate(parts).astype("int32") if parts else np.zeros(0, "int32")

    def attention(self, layer: int, scale: float, qkv: NDArray[Any], out: NDArray[Any]) -> None:
        """Add keys and values of the rows, and let each see what is before it and itself."""
        ends = np.cumsum([0, *(count for _, count in self.running)])
        if ends[-1] != len(qkv):
            raise RunError(f"begin_forward promised {ends[-1]} rows, got {len(qkv)}")
        if layer not in range(len(self.memory)):
            raise RunError(f"the cache has {len(self.memory)} layers, not a layer {layer}")
        heads, dim = self.memory.shape[-2:]
        if qkv.shape[1:] != (out.shape[1] + 2 * heads, dim) or out.shape[0] != len(qkv):
            raise RunError(
                f"qkv {list(qkv.shape)} isn't {list(out.shape)} with {heads} more heads each of "
                f"keys and values, of {dim} numbers"
            )
        rows = qkv.astype("float32")
        q, k, v = rows[:, : -2 * heads], rows[:, -2 * heads : -heads], rows[:, -heads:]
        positions = self.positions()
        q, k = self.rope.rotate(q, positions), self.rope.rotate(k, positions)
        for (sequence, _), (start, end) in zip(self.running, pairwise(map(int, ends))):
            places = positions[start:end]
            pages = np.asarray(sequence.pages)[places // self.page_size]
            for which, new in enumerate((k, v)):
                self.memory[layer, pages, which, places % self.page_size] = new[start:end]
            keys, values = (self._held(layer, sequence, which) for which in (0, 1))
            out[start:end] = _attend(q[start:end], keys, values, places, scale)

    def _held(self, layer: int, sequence: _Sequence, which: int) -> NDArray[Any]:
        pages = self.memory[layer, sequence.pages, which]
        held = pages.reshape(-1, *pages.shape[2:])[: sequence.length]
        return held.astype("float32")


def _attend(
    q: NDArray[Any], keys: NDArray[Any], values: NDArray[Any], places: NDArray[Any], scale: float
) -> NDArray[Any]:
    """Attention of rows ``[row, head, dim]`` at places; several heads of ``q`` share a key's."""
    rows, heads, dim = q.shape
    groups = q.reshape(rows, keys.shape[1], -1, dim).transpose(1, 2, 0, 3)
    scores = groups @ keys.transpose(1, 2, 0)[:, None] * np.float32(scale)
    scores[..., np.arange(len(keys)) > places[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    made: NDArray[Any] = weights @ values.transpose(1, 0, 2)[:, None]
    made = made / weights.sum(-1, keepdims=True)
    return made.transpose(2, 0, 1, 3).reshape(rows, heads, -1)


# ---- global functions --------------------------------------------------------------------------


def _array(value: object) -> NDArray[Any]:
    return value if isinstance(value, np.ndarray) else from_dlpack(value).numpy()


def _create(
    sizes: Sequence[int], layers: int, heads: int, dim: int, mode: int, scale: float, theta: float,
    rotary: int, like: object,
) -> PagedAttentionKVCache:  # fmt: skip
    rope = Rope(int(mode), float(scale), float(theta), int(rotary))
    dtype = _array(like).dtype
    return PagedAttentionKVCache(sizes, int(layers), int(heads), int(dim), rope, dtype)


def _attention(
    cache: PagedAttentionKVCache, layer: int, scale: float, qkv: object, out: object
) -> None:
    cache.attention(int(layer), float(scale), _array(qkv), _array(out))


def _numbers(values: Any) -> list[int]:
    return [int(value) for value in values]


def _reshape(data: object, shape: Sequence[int]) -> Any:
    return from_dlpack(_array(data).reshape([int(extent) for extent in shape]))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    CREATE: _create,
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": _attention,
    "vm.builtin.attention_kv_cache_get_query_positions": lambda cache: cache.positions(),
    "vm.builtin.kv_state_clear": lambda cache: cache.clear(),
    "vm.builtin.kv_state_add_sequence": lambda cache, number: cache.add(int(number)),
    "vm.builtin.kv_state_remove_sequence": lambda cache, number: cache.remove(int(number)),
    "vm.builtin.kv_state_fork_sequence": lambda cache, *numbers: cache.fork(*_numbers(numbers)),
    "vm.builtin.kv_state_popn": lambda cache, *numbers: cache.pop(*_numbers(numbers)),
    "vm.builtin.kv_state_begin_forward": lambda cache, numbers, counts: cache.begin(
        _numbers(numbers), _numbers(counts)
    ),
    "vm.builtin.kv_state_end_forward": lambda cache: cache.end(),
    "vm.builtin.attention_kv_cache_get_num_available_pages": lambda cache: len(cache.free),
    "vm.builtin.attention_kv_cache_get_total_sequence_length": lambda cache: sum(
        item.length for item in cache.sequences.values()
    ),
    "vm.builtin.reshape": _reshape,
}

for _name, _function in _FUNCTIONS.items():
    register_global_func(_name, _function, override=True)
