"""Operators of GPUs that a thread runs by itself: asynchronous copies, filling fragments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.support.errors import RunError
from tilewright.tir.interpreter.barriers import BARRIER_FUNCTIONS
from tilewright.tir.interpreter.warp_matrix import Operand


def _mma_fill(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    target = Operand(brought[0], thread)
    shape = (target.constant.rows, target.constant.columns)
    target.write(np.full(shape, brought[1], target.memory.dtype))
    if thread is not None:
        thread.products.fenced = False


def _cp_async(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    target, source = Operand(brought[0], thread), Operand(brought[1], thread)
    size = brought[2]
    for operand in (target, source) if thread is not None else ():
        operand.check_aligned(size, site)
    kept = size if len(brought) < 4 else int(brought[3])
    if not 0 <= kept <= size or kept % source.memory.itemsize:
        raise RunError(
            f"thread ({thread}) at {site}: source_bytes is {kept}, which is no number of whole "
            f"elements up to {size} bytes"
        )
    places = source.places().reshape(-1)
    values = np.zeros(places.size, source.memory.dtype)
    count = kept // source.memory.itemsize
    if count:
        source.note("read", places[:count])
        values[:count] = source.memory[places[:count]]
    if thread is None:
        target.memory[target.places().reshape(-1)] = values.view(target.memory.dtype)
        return
    target.count(target.places())
    thread.issue(
        target.memory,
        target.places().reshape(-1),
        values.view(target.memory.dtype),
        target.memory,
        target.constant.name,
        target.constant.bytewise,
    )


def _commit(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    if thread is not None:
        thread.commit(0)


def _wait(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    if thread is not None:
        thread.wait(0, brought[0])


def _fence(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    if thread is not None:
        thread.products.fenced = True


def _commit_products(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    if thread is not None:
        thread.products.commit()


def _wait_products(thread: Any, brought: tuple[Any, ...], site: str) -> None:
    if thread is not None:
        thread.products.wait(brought[0])


THREAD_FUNCTIONS: dict[str, Callable[[Any, tuple[Any, ...], str], None]] = {
    **BARRIER_FUNCTIONS,
    "mma_fill": _mma_fill,
    "ptx_cp_async": _cp_async,
    "ptx_commit_group": _commit,
    "ptx_wait_group": _wait,
    "ptx_wgmma_fence": _fence,
    "ptx_wgmma_commit_group": _commit_products,
    "ptx_wgmma_wait_group": _wait_products,
}
"""By operator: the thread (``None`` where threads run one after the other), what it brings, and the
place in the program.
"""


def run_unwatched(name: str, site: str, brought: tuple[Any, ...]) -> None:
    """Run an operator where threads run one after the other: copies are done at once."""
    if name in BARRIER_FUNCTIONS:
        raise RunError(
            f"{site} is outside of threads that run in lock step: a loop on threadIdx.x must be "
            "around it, with all that meets at barriers"
        )
    THREAD_FUNCTIONS[name](None, brought, site)
