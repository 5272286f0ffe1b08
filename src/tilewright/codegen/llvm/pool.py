"""The thread pool that parallel loops run on, compiled from LLVM IR like the kernels.

A compiled function calls

    i32 @tw_parallel_launch(ptr fn, ptr ctx, i64 n, i32 max_threads)

and the pool calls ``i32 fn(ptr ctx, i64 begin, i64 end)`` for pieces that cover ``[0, n)``. T
threads take part: the least of ``n``, ``max_threads`` (if positive) and the set number of threads.
Thread t begins with part t, ``[t*n/T, (t+1)*n/T)``, the same in each launch, so what it left in its
caches is there. A part is cut into at most eight pieces; who is done with his own takes pieces of
the others'. So a thread whose core is slower (shared with another program, or of another kind) gets
less to do, and one that is busy elsewhere delays nothing. The first non-zero result is returned,
after all pieces have ended.

    i32 @tw_parallel_launch_dynamic(ptr fn, ptr ctx, i64 n, i32 max_threads, i64 grain)

does the same for work that is uneven: each thread takes the next ``grain`` indices when it is done
with those it has, so ``fn`` is called more often and no thread has a part of its own. It is a
launch of T pieces that loop.

- A launch from within a task, or while another thread's launch runs, runs ``fn(ctx, 0, n)`` on the
  calling thread. Nothing ever waits for the pool to become free.
- Workers are created when first needed. They wait by spinning for half as long as they have just
  worked, at least 50 µs and at most 1 ms, then sleep on a futex: waking costs as much as 50 µs (and
  milliseconds where a virtual CPU has been halted), spinning never more than half of the work. All
  signals are blocked in them.
- Those that sleep are woken only if it pays: what takes less time than waking (both are measured)
  the caller does alone, until what a quick succession of such launches has lost pays for it.
- After a fork the child has no workers; a handler empties the pool, which then starts anew.

``void @tw_set_num_threads(i32)`` sets the number of threads (0: as many as the process may use
CPUs), ``i32 @tw_get_num_threads()`` returns it. ``i32 @tw_set_affinity(ptr cpus, i32 count)`` binds
worker t to CPU ``cpus[t % count]``, those to come as well; with ``count`` 0 workers go where the
caller may. It returns 0, or -1 if the system refused. The thread that launches is never bound: it
is thread 0, for which ``cpus[0]`` is left free.

Workers that aren't bound stay off the CPU of the thread that launches, if there are CPUs enough:
each launch looks where it runs, since that thread may have moved to where a worker spins.
Without that, the kernel of a virtual machine, to which an idle CPU may look like one that is taken
away, wakes them on the waker's own CPU and leaves them there for some milliseconds.

In a process all JIT-compiled modules share one pool; an exported library carries its own.
Linux on x86-64 and AArch64.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.llvm.builder import module_text
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.pool_launch import launch, launch_dynamic
from tilewright.codegen.llvm.pool_state import MACHINES
from tilewright.codegen.llvm.pool_threads import get_num_threads, set_affinity, set_num_threads
from tilewright.runtime.loader import SupportObject, register_support_object
from tilewright.support.errors import CodegenError

_FUNCTIONS = (launch, launch_dynamic, set_num_threads, get_num_threads, set_affinity)
POOL_SYMBOLS = tuple(callee.name for callee in _FUNCTIONS)


@cache
def pool_ll(triple: str | None = None) -> str:
    """Return the pool's LLVM IR text for a triple (this process's when left out)."""
    architecture, _, system = (triple or host_triple()).partition("-")
    if architecture not in MACHINES or "linux" not in system:
        raise CodegenError(
            f"the thread pool runs on Linux on {' and '.join(MACHINES)}, "
            f"not on {triple or host_triple()!r}; build with one thread there"
        )
    return module_text(_FUNCTIONS, architecture)


@cache
def pool_object(triple: str | None = None) -> bytes:
    """Return the compiled pool, for the oldest CPU of the architecture."""
    triple = triple or host_triple()
    return compile_portable(pool_ll(triple), triple)


register_support_object(SupportObject("pool", POOL_SYMBOLS, pool_object))
