"""The thread pool that parallel loops run on, written as LLVM IR.

A compiled function calls

    i32 @tw_parallel_launch(ptr fn, ptr ctx, i64 n, i32 max_threads)

and the pool calls ``i32 fn(ptr ctx, i64 begin, i64 end)`` for pieces that cover ``[0, n)``. T
threads take part: the least of ``n``, ``max_threads`` (if positive) and the set number of threads.
Thread t begins with part t, ``[t*n/T, (t+1)*n/T)``, the same in each launch, so what it left in its
caches is there. A part is cut into at most eight pieces; who is done with his own takes pieces of
the others'. So a thread whose core is slower (shared with a stranger, or of another kind) gets less
to do, and one that is busy elsewhere delays nothing. The first non-zero result is returned, after
all pieces have ended.

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

from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.pool_launch_text import LAUNCHES
from tilewright.codegen.llvm.pool_threads_text import THREADS
from tilewright.runtime.loader import SupportObject, register_support_object
from tilewright.support.errors import CodegenError

POOL_SYMBOLS = (
    "tw_parallel_launch",
    "tw_parallel_launch_dynamic",
    "tw_set_num_threads",
    "tw_get_num_threads",
    "tw_set_affinity",
)

#: Most threads that one launch uses: the width of the thread count in the launch word.
MAX_THREADS = 512

#: Most pieces of a part: the more, the less a slower core delays, and the more calls.
MAX_PIECES = 8

#: CPUs that an affinity mask has room for.
MAX_CPUS = 8192

# Per architecture: the pause instruction, and the numbers of the system calls futex and gettid.
_ARCHITECTURES = {
    "x86_64": ("llvm.x86.sse2.pause", "", 202, 186),
    "aarch64": ("llvm.aarch64.hint", "i32 1", 98, 178),
}

# How the parts talk to each other:
#
# - `word` = launch number << 14 | P << 10 | T: T parts of P pieces each. A worker t sees the number
#   change; it takes part if t < T.
# - `claims[t]` = number of the last launch of whose part t a piece has been claimed << 4 | how many
#   have been. Whoever moves it on runs that piece. A piece counts in `pending` until it has ended,
#   and `launch` does not return before that, so a worker that holds a claim may read the job; one
#   that comes late finds nothing left to claim and touches nothing. It knows P from the word that
#   it saw, not from the job, which may be the next one's by then.
# - `tids` and `places` are Dekker-style too: a worker announces its id and looks for its place,
#   who sets places looks for ids afterwards.
# - `sleepers` and `waiting` are Dekker-style: sleeper: announce, check again, sleep. Waker: change
#   the word, look for announcements. All of these are sequentially consistent.
_STATE = r"""
%job = type { i64, ptr, ptr, i64 }          ; word, fn, ctx, n: one cache line
%line = type { i64, [7 x i64] }             ; the claims of one part per cache line
%cost = type { ptr, i64 }                   ; a task, and the ns that it takes one thread
%dynamic = type { %line, ptr, ptr, i64, i64 }  ; next index, fn, ctx, n, grain

@tw.job = internal global %job zeroinitializer, align 128
@tw.pending = internal global i32 0, align 128
@tw.waiting = internal global i32 0, align 4
@tw.error = internal global i32 0, align 4
@tw.sleepers = internal global i32 0, align 128
@tw.lock = internal global i32 0, align 128
@tw.workers = internal global i64 1, align 8      ; threads that exist, the caller included
@tw.limit = internal global i32 0, align 4        ; 0: not known yet
@tw.hooked = internal global i32 0, align 4
@tw.claims = internal global [MAXT x %line] zeroinitializer, align 128
@tw.tids = internal global [MAXT x i32] zeroinitializer, align 4
@tw.places = internal global [MAXT x i32] zeroinitializer, align 4
@tw.place_count = internal global i32 0, align 4  ; 0: workers aren't bound
@tw.costs = internal global [256 x %cost] zeroinitializer, align 128
@tw.price = internal global i64 PRICE, align 8    ; of waking the workers, in ns
@tw.lost = internal global i64 0, align 8         ; ns, by not waking them
@tw.lost_at = internal global i64 0, align 8      ; when
@tw.avoids = internal global [MAXT x i32] zeroinitializer, align 4  ; CPU + 1 that t stays off

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @__register_atfork(ptr, ptr, ptr, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @sched_getcpu()
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare void @PAUSE(PAUSE_TYPE)
declare i64 @llvm.ctpop.i64(i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @tw.now() nounwind noinline {
  %ts = alloca [2 x i64], align 8
  %rc = call i32 @clock_gettime(i32 1, ptr %ts)
  %s = load i64, ptr %ts
  %np = getelementptr i64, ptr %ts, i64 1
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %r = add i64 %sn, %n
  ret i64 %r
}

; Until when a thread spins that has worked since `since`: half as long again, within bounds.
define internal i64 @tw.deadline(i64 %since) nounwind noinline {
  %now = call i64 @tw.now()
  %worked = sub i64 %now, %since
  %half = sdiv i64 %worked, 2
  %short = icmp slt i64 %half, SPIN_LEAST
  %most = icmp sgt i64 %half, SPIN_MOST
  %capped = select i1 %most, i64 SPIN_MOST, i64 %half
  %spin = select i1 %short, i64 SPIN_LEAST, i64 %capped
  %deadline = add i64 %now, %spin
  ret i64 %deadline
}

; Sleep until somebody wakes `addr`, unless it no longer holds `value`.
define internal void @tw.sleep(ptr %addr, i32 %value) nounwind noinline {
  %v = zext i32 %value to i64
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %addr, i64 128, i64 %v, ptr null, ptr null, i64 0)
  ret void
}

define internal void @tw.wake(ptr %addr) nounwind noinline {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %addr, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}
"""  # noqa: E501 (LLVM IR)


@cache
def pool_ll(triple: str | None = None) -> str:
    """Return the pool's LLVM IR text for a triple (this process's when left out)."""
    architecture, _, system = (triple or host_triple()).partition("-")
    if architecture not in _ARCHITECTURES or "linux" not in system:
        raise CodegenError(
            f"the thread pool runs on Linux on {' and '.join(_ARCHITECTURES)}, "
            f"not on {triple or host_triple()!r}; build with one thread there"
        )
    pause, argument, futex, gettid = _ARCHITECTURES[architecture]
    text = "\n".join((_STATE, LAUNCHES, THREADS))
    text = text.replace("PAUSE_TYPE", argument.split(" ")[0]).replace("PAUSE_ARG", argument)
    numbers = {
        "PAUSE": pause,
        "FUTEX": futex,
        "GETTID": gettid,
        "TIDS_BYTES": 4 * MAX_THREADS,
        "MAXT": MAX_THREADS,
        "PIECES": MAX_PIECES,
        "PRICE": 10_000,
        "RECENT": 1_000_000,
        "SPIN_LEAST": 50_000,
        "SPIN_MOST": 1_000_000,
        "CPUS": MAX_CPUS,
    }
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    return text


@cache
def pool_object(triple: str | None = None) -> bytes:
    """Return the compiled pool, for the oldest CPU of the architecture."""
    triple = triple or host_triple()
    return compile_portable(pool_ll(triple), triple)


register_support_object(SupportObject("pool", POOL_SYMBOLS, pool_object))
