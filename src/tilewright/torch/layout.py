"""How tensors lie in memory, as far as their example values tell."""

from __future__ import annotations

from typing import Any


def _hint(size: Any) -> int:
    """The number that a symbolic size had when the graph was traced."""
    node = getattr(size, "node", None)
    if node is None:
        return int(size)
    return int(node.hint) if node.has_hint() else 1 << 40


def memory_order(value: Any) -> tuple[int, ...] | None:
    """Axes from the outermost in memory to the innermost, if nothing lies between the elements.

    ``None`` if it isn't known, for all sizes that the example value stands for, that the tensor is
    a transposed compact one. No guard is added.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    sizes, strides = tuple(value.shape), tuple(value.stride())
    natural = tuple(range(len(sizes)))
    if any(statically_known_true(size == 0) for size in sizes):
        return natural
    hints = [_hint(stride) for stride in strides]
    by_stride = tuple(sorted(natural, key=lambda axis: -hints[axis]))
    for order in (natural, by_stride):
        expected: Any = 1
        for axis in reversed(order):
            single = statically_known_true(sizes[axis] == 1)
            if not single and not statically_known_true(strides[axis] == expected):
                break
            expected = expected * sizes[axis]
        else:
            return order
    return None


def strides_with_gaps(value: Any) -> tuple[int, ...] | None:
    """Strides of a tensor whose elements lie apart in memory, with something between them.

    ``None`` if nothing lies between them, if elements share memory, or if the numbers are symbolic.
    """
    sizes, strides = tuple(value.shape), tuple(value.stride())
    if not all(isinstance(number, int) for number in (*sizes, *strides)):
        return None
    if memory_order(value) is not None:
        return None
    last = 0  # where the last element of the axes so far is
    for stride, size in sorted(pair for pair in zip(strides, sizes) if pair[1] != 1):
        if stride <= last:
            return None
        last += stride * (size - 1)
    return strides


def is_natural(order: tuple[int, ...]) -> bool:
    """Whether the axes are in their own order: the tensor is contiguous."""
    return order == tuple(range(len(order)))
