"""CUDA graphs: what a function launches, recorded once and launched again as a whole.

Launching a kernel costs the host microseconds, a recorded graph of hundreds hardly more than that.
A graph uses the memory that the recorded call used: new inputs are copied there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any

from tilewright.runtime.gpu.driver import ask, call, drop, on_device
from tilewright.runtime.gpu.streams import Stream, current_stream
from tilewright.support.errors import RunError

#: Capture is this thread's: others may allocate meanwhile.
_THREAD_LOCAL = 1
_CUDA = 2  # DLPack's number


def device_of(args: Sequence[object]) -> int | None:
    """Return the number of the GPU that the first tensor on one is on; none if there is none."""
    for arg in args:
        place = getattr(arg, "__dlpack_device__", None)
        if place is not None and (found := place())[0] == _CUDA:
            return int(found[1])
    return None


class CUDAGraph:
    """The launches of one call of a function with tensors of this package (``from_dlpack``).

    >>> graph = CUDAGraph(module["main"], a, b, c)
    >>> graph.replay()

    The function is called once before, as kernels are loaded by their first call. It must not read
    anything from the GPU (conditions, sizes that are computed there).
    """

    def __init__(self, function: Callable[..., object], *args: Any) -> None:
        """Record a call with these arguments, whose memory the graph then uses.

        Raises ``RunError`` if no argument is on a GPU, and for a function that waits for the GPU.
        """
        self._handle = 0
        index = device_of(args)
        if index is None:
            raise RunError("a CUDA graph needs an argument that is a tensor on a GPU")
        self.index = index
        # The graph refers to their memory, and to the kernels of the function's module.
        self._function, self._args = function, args
        function(*args)
        self._handle = self._recorded(Stream(index))

    def _recorded(self, stream: Stream) -> int:
        doing = "recording a CUDA graph"
        with on_device(self.index):
            call(doing, "cuCtxSynchronize")
            call(doing, "cuStreamBeginCapture_v2", stream.handle, _THREAD_LOCAL)
            try:
                with stream:
                    self._function(*self._args)
            finally:
                # Ends the capture even if the call failed; then there may be no graph.
                graph = c_void_p()
                to = ctypes.addressof(graph)
                call(doing, "cuStreamEndCapture", stream.handle, to)
            try:
                made = ask(doing, "cuGraphInstantiateWithFlags", c_void_p, graph, 0)
            finally:
                call(doing, "cuGraphDestroy", graph)
        return int(made)

    def replay(self) -> None:
        """Launch all again, on the current stream; doesn't wait for it."""
        with on_device(self.index):
            doing = "launching a CUDA graph"
            call(doing, "cuGraphLaunch", self._handle, current_stream(self.index))

    def __del__(self) -> None:
        if self._handle:
            drop(self.index, "cuGraphExecDestroy", self._handle)
