"""Launches of the pool: publishing a job, deciding whether to wake workers, waiting for the end."""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Function, exported, function
from tilewright.codegen.llvm.pool_pieces import launch_number, launch_word, take
from tilewright.codegen.llvm.pool_state import (
    CALLER,
    COSTS,
    HOT,
    JOB,
    LINE,
    MAX_PIECES,
    PROGRESS,
    SLEEPERS,
    WAKING,
    deadline,
    now,
    pause,
    sleep,
    wake,
)
from tilewright.codegen.llvm.pool_threads import get_num_threads, grow, keep_apart
from tilewright.codegen.llvm.values import (
    ACQUIRE,
    BOOL,
    I32,
    I64,
    PTR,
    RELAXED,
    RELEASE,
    SEQUENTIAL,
    U32,
    U64,
    VOID,
    Place,
    Struct,
    Value,
)

#: Launches in a succession are no further apart, in ns.
_RECENT = 1_000_000

_DYNAMIC = Struct("tw.dynamic", next=LINE, fn=PTR, context=PTR, n=I64, grain=I64)


# ---- whether to wake workers


def _cost(f: Function, fn: Value) -> Place:
    """Where the cost of a task stands, or that of another task."""
    return f.use(COSTS)[(fn.to(U64) >> 4) & 255]


@function(BOOL, HOT, fn=PTR)
def pays(f: Function, fn: Value) -> None:
    """Whether it pays to wake workers for a launch of ``fn``, with the lock held.

    It does if it is not known how long that takes, or if half of it, together with what the last
    such launches lost by being left to one thread, is more than waking costs.
    """
    cost = _cost(f, fn)
    waking = f.use(WAKING)
    lost, lost_at = waking["lost"], waking["lost_at"]
    with f.if_(cost["fn"].eq(fn) & fn.ne(f.address_of(run_dynamic))):
        time = f.call(now)
        is_recent = time - lost_at < _RECENT
        lost_at.set(time)
        total = f.select(is_recent, lost, 0) + cost["ns"] // 2
        lost.set(total)
        with f.if_(total <= waking["price"]):
            f.ret(False)
    lost.set(0)
    f.ret(True)


@function(VOID, HOT)
def rouse(f: Function) -> None:
    """Wake the workers, and learn what that costs, with the lock held.

    Until they are there the caller works, so it is the call alone.
    """
    began = f.call(now)
    f.call(wake, f.use(JOB).address)
    took = f.call(now) - began
    price = f.use(WAKING)["price"]
    price.set((price * 3 + took) // 4)


@function(VOID, HOT, fn=PTR, began=I64, ran=U32, pieces=U64)
def learn(f: Function, fn: Value, began: Value, ran: Value, pieces: Value) -> None:
    """Note how long ``fn`` takes one thread, with the lock held.

    The launch began at ``began``; the caller ran so many of its pieces.
    """
    took = (f.call(now) - began).to(U64)
    cost = _cost(f, fn)
    cost["fn"].set(fn)
    cost["ns"].set(took * pieces // f.greatest(ran, 1).to(U64))


# ---- launches


@function(VOID, HOT, began=I64)
def wait(f: Function, began: Value) -> None:
    """Wait until all pieces have ended, first spinning."""
    progress = f.use(PROGRESS)
    pending = progress["pending"]
    until = f.call(deadline, began)
    with f.while_():
        with f.for_(64):
            with f.if_(pending.get(ACQUIRE).eq(0)):
                f.ret()
            pause(f)
        with f.if_(f.call(now) >= until):
            f.break_()
    progress["waiting"].set(1, SEQUENTIAL)
    with f.while_():
        left = pending.get(SEQUENTIAL)
        with f.if_(left.eq(0)):
            f.ret()
        f.call(sleep, pending.address, left)


def _share(f: Function, fn: Value, context: Value, n: Value, want: Value) -> None:
    """Launch on so many threads, with the lock held, and give it back."""
    available = f.variable(U64, f.use(CALLER)["workers"])
    with f.if_(available < want):
        available.set(f.call(grow, want))
    threads = f.least(available.get(), want)
    pieces = f.least(n // threads, MAX_PIECES)
    job, progress = f.use(JOB), f.use(PROGRESS)
    job["fn"].set(fn)
    job["context"].set(context)
    job["n"].set(n)
    progress["error"].set(0, RELAXED)
    progress["waiting"].set(0, RELAXED)
    count = pieces * threads
    progress["pending"].set(count.to(U32), RELAXED)
    word = launch_word(launch_number(job["word"].get(RELAXED)) + 1, pieces, threads)
    job["word"].set(word, SEQUENTIAL)
    asleep = f.use(SLEEPERS).get(SEQUENTIAL).ne(0)
    f.call(keep_apart, threads)
    with f.if_(asleep), f.if_(f.call(pays, fn)):
        f.call(rouse)
    began = f.call(now)
    ran = f.call(take, 0, word)
    with f.if_(progress["pending"].get(ACQUIRE).ne(0)):
        f.call(wait, began)
    with f.if_(asleep):
        f.call(learn, fn, began, ran, count)
    code = progress["error"].get(RELAXED)
    f.use(CALLER)["lock"].set(0, RELEASE)
    f.ret(code)


@exported("tw_parallel_launch", I32, fn=PTR, context=PTR, n=I64, most=I32)
def launch(f: Function, fn: Value, context: Value, n: Value, most: Value) -> None:
    """Call ``fn`` for ranges that cover [0, n), on several threads."""
    with f.if_(n <= 0):
        f.ret(0)
    limit = f.call(get_num_threads)
    threads = f.least(f.select(most > 0, most, limit).to(U32), limit)
    want = f.least(n.to(U64), threads.to(U64))
    lock = f.use(CALLER)["lock"]
    with (
        f.if_(want > 1),
        f.if_(lock.get(RELAXED).eq(0)),
        f.if_(lock.compare_exchange(0, 1, ACQUIRE)),
    ):
        _share(f, fn, context, n.to(U64), want)
    f.ret(f.call_pointer(fn, I32, context, f.constant(I64, 0), n))


@function(I32, d=_DYNAMIC, begin=I64, end=I64)
def run_dynamic(f: Function, d: Place, begin: Value, end: Value) -> None:
    """A task of a dynamic launch: take the next indices until there are no more.

    Which piece this is doesn't matter.
    """
    fn, context = d["fn"].get(), d["context"].get()
    n, grain = d["n"].get(), d["grain"].get()
    code = f.variable(I32, 0)
    with f.while_():
        first = d["next"]["value"].fetch_add(grain, RELAXED).to(I64)
        with f.if_(first >= n):
            f.break_()
        size = f.least(n - first, grain)
        made = f.call_pointer(fn, I32, context, first, first + size)
        with f.if_(code.eq(0)):
            code.set(made)
    f.ret(code)


@exported("tw_parallel_launch_dynamic", I32, fn=PTR, context=PTR, n=I64, most=I32, asked=I64)
def launch_dynamic(
    f: Function, fn: Value, context: Value, n: Value, most: Value, asked: Value
) -> None:
    """Call ``fn`` for ranges of ``asked`` indices that cover [0, n), on several threads."""
    with f.if_(n <= 0):
        f.ret(0)
    grain = f.least(f.greatest(asked, 1), n)
    tasks = (n - 1) // grain + 1
    limit = f.call(get_num_threads)
    with f.if_(limit.eq(1) | most.eq(1) | tasks.eq(1)):
        f.ret(f.call_pointer(fn, I32, context, f.constant(I64, 0), n))
    d = f.local(_DYNAMIC, 128)
    d["next"]["value"].set(0)
    d["fn"].set(fn)
    d["context"].set(context)
    d["n"].set(n)
    d["grain"].set(grain)
    f.ret(f.call(launch, f.address_of(run_dynamic), d.address, tasks, most))
