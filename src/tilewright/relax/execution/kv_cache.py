"""What ``nn.KVCache`` and ``nn.print_`` call when a graph runs: global functions on objects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime import from_dlpack, get_global_func, register_global_func
from tilewright.support.errors import RunError


class AttentionKVCache:
    """A tensor that grows along its first axis; its memory doubles when it is full."""

    def __init__(self, memory: NDArray[Any], length: int) -> None:
        self._memory = memory
        self.length = length

    def append(self, value: NDArray[Any]) -> None:
        """Add elements at the end.

        Raises ``RunError`` for another dtype or shape of an element.
        """
        memory = self._memory
        if value.dtype != memory.dtype or value.shape[1:] != memory.shape[1:]:
            raise RunError(
                f"the cache has {memory.dtype.name}{list(memory.shape[1:])} in each place, "
                f"got {value.dtype.name}{list(value.shape[1:])}"
            )
        end = self.length + len(value)
        if end > len(memory):
            grown = np.empty((max(end, 2 * len(memory)), *memory.shape[1:]), memory.dtype)
            grown[: self.length] = memory[: self.length]
            self._memory = grown
        self._memory[self.length : end] = value
        self.length = end

    def view(self, shape: Sequence[int]) -> NDArray[Any]:
        """The first elements, as many as ``shape`` says.

        Raises ``RunError`` if there are fewer, or elements are of another shape.
        """
        if shape[0] > self.length or tuple(shape[1:]) != self._memory.shape[1:]:
            held = [self.length, *self._memory.shape[1:]]
            raise RunError(f"the cache holds {held}, it has no view {list(shape)}")
        return self._memory[: shape[0]]


def _array(value: object) -> NDArray[Any]:
    return value if isinstance(value, np.ndarray) else from_dlpack(value).numpy()


def _create(init_data: object, init_shape: Sequence[int], init_fill_count: int) -> AttentionKVCache:
    data = _array(init_data)
    if init_fill_count not in range(len(data) + 1):
        raise RunError(f"{init_fill_count} of {len(data)} elements can't be filled")
    memory = np.empty(tuple(init_shape), data.dtype)
    memory[:init_fill_count] = data[:init_fill_count]
    return AttentionKVCache(memory, init_fill_count)


def _append(cache: AttentionKVCache, value: object) -> AttentionKVCache:
    cache.append(_array(value))
    return cache


def _view(cache: AttentionKVCache, shape: Sequence[int]) -> NDArray[Any]:
    return cache.view(shape)


def _invoke_debug_func(effect: object, func_name: str, line_info: str, *args: object) -> object:
    get_global_func(func_name)(line_info, *args)
    return effect


def _debug_print(line_info: str, *values: object) -> None:
    for value in values:
        shown = _array(value) if hasattr(value, "__dlpack__") else value
        sys.stdout.write(f"[{line_info}]: {shown}\n")


for _name, _function in (
    ("vm.builtin.attention_kv_cache_create", _create),
    ("vm.builtin.attention_kv_cache_append", _append),
    ("vm.builtin.attention_kv_cache_view", _view),
    ("vm.builtin.invoke_debug_func", _invoke_debug_func),
    ("vm.builtin.debug_print", _debug_print),
):
    register_global_func(_name, _function, override=True)
