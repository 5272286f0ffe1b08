"""Python's cycle collector while programs are being transformed.

Trees of nodes have no cycles: what a pass drops is freed at once, and the collector, which looks
into every container again and again as their number grows, finds next to nothing (analyzers). With
its usual threshold of 700 containers that takes a third of the time of lowering in a process that
holds many programs.
``few_collections`` lets more of them come together; the collector is never off, so that other
garbage of a long pass (tuning is one) still goes.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import ContextDecorator

#: New containers that start a collection inside of ``few_collections``.
RAISED_THRESHOLD = 50_000

_lock = threading.Lock()
_own = threading.local()


class few_collections(ContextDecorator):  # used like a function
    """Collect rarely in a ``with`` block, or in each call of a function that it decorates.

    Blocks may be nested and overlap in threads: the first to begin raises the process's threshold
    and the last to end puts it back. A collector that is off, or that somebody has told to wait for
    as long, is left alone; so is a threshold that somebody sets meanwhile.
    """

    _inside = 0
    _before = 0

    def __enter__(self) -> None:
        with _lock:
            _own.blocks = _blocks_here() + 1
            few_collections._inside += 1
            if few_collections._inside > 1:
                return
            threshold, *others = gc.get_threshold()
            few_collections._before = 0
            if gc.isenabled() and 0 < threshold < RAISED_THRESHOLD:
                few_collections._before = threshold
                gc.set_threshold(RAISED_THRESHOLD, *others)

    def __exit__(self, *_: object) -> None:
        with _lock:
            _own.blocks = _blocks_here() - 1
            few_collections._inside -= 1
            if not few_collections._inside:
                _put_back()


def _blocks_here() -> int:
    """How many blocks this thread is in."""
    blocks: int = getattr(_own, "blocks", 0)
    return blocks


def _put_back() -> None:
    threshold, *others = gc.get_threshold()
    if few_collections._before and threshold == RAISED_THRESHOLD:
        gc.set_threshold(few_collections._before, *others)
    few_collections._before = 0


def _begin_child() -> None:
    """Forget the blocks of other threads, which a forked process hasn't."""
    global _lock
    _lock = threading.Lock()  # one of them may have held it just then
    few_collections._inside = max(_blocks_here(), 0)
    if not few_collections._inside:
        _put_back()


os.register_at_fork(after_in_child=_begin_child)
