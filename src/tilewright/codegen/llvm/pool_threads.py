"""The threads of the pool: made, bound to CPUs, counted, lost in a fork."""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Function, exported, external, function
from tilewright.codegen.llvm.pool_pieces import launch_number, launch_threads, launch_word, take
from tilewright.codegen.llvm.pool_state import (
    AVOIDS,
    CALLER,
    COLD,
    HOT,
    JOB,
    MAX_THREADS,
    PLACES,
    PROGRESS,
    SLEEPERS,
    TIDS,
    deadline,
    now,
    pause,
    sleep,
    thread_id,
)
from tilewright.codegen.llvm.values import (
    ACQUIRE,
    I32,
    I64,
    PTR,
    RELAXED,
    SEQUENTIAL,
    U32,
    U64,
    VOID,
    Operand,
    Place,
    Value,
    array,
)

#: CPUs that an affinity mask has room for.
_MAX_CPUS = 8192
_CPUS = array(_MAX_CPUS // 64, U64)
_SIGNALS = array(16, U64)
_SIG_SETMASK = 2

_PTHREAD_CREATE = external(I32, "pthread_create", PTR, PTR, PTR, PTR)
_PTHREAD_DETACH = external(I32, "pthread_detach", U64)
_PTHREAD_SIGMASK = external(I32, "pthread_sigmask", I32, PTR, PTR)
_REGISTER_ATFORK = external(I32, "__register_atfork", PTR, PTR, PTR, PTR)
_GET_AFFINITY = external(I32, "sched_getaffinity", U32, I64, PTR)
_SET_AFFINITY = external(I32, "sched_setaffinity", U32, I64, PTR)
_GETCPU = external(U32, "sched_getcpu")
_COUNT_BITS = external(U64, "llvm.ctpop.i64", U64)


# ---- CPUs


def _get_affinity(f: Function, cpus: Place) -> None:
    """Ask for the CPUs that the calling thread may use."""
    f.call(_GET_AFFINITY, 0, _CPUS.bytes, cpus.address)


def _set_affinity(f: Function, tid: Operand, cpus: Place) -> Value:
    """Let a thread use some CPUs only; 0 if the system agrees."""
    return f.call(_SET_AFFINITY, tid, _CPUS.bytes, cpus.address)


def _bit(cpu: Value) -> Value:
    return 1 << (cpu & 63).to(U64)


@function(I32, COLD, t=U64, tid=U32)
def place(f: Function, t: Value, tid: Value) -> None:
    """Bind worker t, whose thread id is ``tid``, to its place, if it has one."""
    count = f.use(CALLER)["place_count"].get(SEQUENTIAL)
    with f.if_(count.eq(0)):
        f.ret(0)
    cpus = f.local(_CPUS)
    f.clear(cpus)
    cpu = f.use(PLACES)[t % count.to(U64)].get(RELAXED)
    cpus[cpu >> 6].set(_bit(cpu))
    f.ret(_set_affinity(f, tid, cpus))


@function(VOID, COLD, tid=U32, cpu=U32, least=U32)
def leave(f: Function, tid: Value, cpu: Value, least: Value) -> None:
    """Let a worker go where the caller may, but not to a CPU unless those are fewer."""
    cpus = f.local(_CPUS)
    f.clear(cpus)
    _get_affinity(f, cpus)
    with f.if_(f.call(count_cpus) >= least):
        word = cpus[cpu >> 6]
        word.set(word & ~_bit(cpu))
    _set_affinity(f, tid, cpus)


@function(VOID, HOT, threads=U64)
def keep_apart(f: Function, threads: Value) -> None:
    """Keep workers of a launch off the caller's CPU: with the lock held, before they are woken."""
    with f.if_(f.use(CALLER)["place_count"].get(RELAXED).ne(0)):
        f.ret()
    cpu = f.call(_GETCPU)
    with f.if_(cpu >= _MAX_CPUS):
        f.ret()
    with f.for_(threads, begin=1) as t:
        avoided = f.use(AVOIDS)[t]
        with f.if_(avoided.get(RELAXED).ne(cpu + 1)):
            tid = f.use(TIDS)[t].get(RELAXED)
            with f.if_(tid.ne(0)):
                f.call(leave, tid, cpu, threads.to(U32))
                avoided.set(cpu + 1, RELAXED)


@exported("tw_set_affinity", I32, COLD, cpus=PTR, count=U32)
def set_affinity(f: Function, cpus: Value, count: Value) -> None:
    """Bind workers, those to come as well; or let them go where the caller may."""
    own = f.local(_CPUS)
    _get_affinity(f, own)
    n = f.least(count, MAX_THREADS)
    with f.for_(n) as i:
        f.use(PLACES)[i].set(cpus.at(U32, i), RELAXED)
    f.use(CALLER)["place_count"].set(n, SEQUENTIAL)
    failed = f.variable(I32, 0)
    with f.for_(MAX_THREADS, begin=1) as t:
        tid = f.use(TIDS)[t].get(SEQUENTIAL)
        with f.if_(tid.ne(0)):
            with f.if_(n.ne(0)):
                failed.set(failed | f.call(place, t, tid))
            with f.else_():
                failed.set(failed | _set_affinity(f, tid, own))
            f.use(AVOIDS)[t].set(0, RELAXED)
    f.ret(failed)


# ---- how many


@function(U32, COLD)
def count_cpus(f: Function) -> None:
    """How many CPUs the calling thread may use, at least 1."""
    cpus = f.local(_CPUS)
    f.clear(cpus)
    _get_affinity(f, cpus)
    total = f.variable(U64, 0)
    with f.for_(_MAX_CPUS // 64) as i:
        total += f.call(_COUNT_BITS, cpus[i])
    f.ret(f.least(f.greatest(total.get(), 1), MAX_THREADS).to(U32))


@exported("tw_set_num_threads", VOID, COLD, n=I32)
def set_num_threads(f: Function, n: Value) -> None:
    """Set the number of threads; 0: as many as the process may use CPUs."""
    wanted = f.variable(U32, n)
    with f.if_(n <= 0):
        wanted.set(f.call(count_cpus))
    f.use(CALLER)["limit"].set(f.least(wanted.get(), MAX_THREADS), RELAXED)


@exported("tw_get_num_threads", U32)
def get_num_threads(f: Function) -> None:
    """Return the number of threads."""
    limit = f.use(CALLER)["limit"]
    known = limit.get(RELAXED)
    with f.if_(known.ne(0)):
        f.ret(known)
    f.call(set_num_threads, 0)
    f.ret(limit.get(RELAXED))


# ---- workers


@function(U64, HOT, last=U64, since=I64)
def next_launch(f: Function, last: Value, since: Value) -> None:
    """Wait for the launch after ``last``, first spinning; return its word."""
    word = f.use(JOB)["word"]
    until = f.call(deadline, since)
    with f.while_():
        with f.for_(64):
            seen = word.get(ACQUIRE)
            with f.if_(seen.ne(last)):
                f.ret(seen)
            pause(f)
        with f.if_(f.call(now) >= until):
            f.break_()
    sleepers = f.use(SLEEPERS)
    sleepers.fetch_add(1, SEQUENTIAL)
    with f.while_():
        seen = word.get(SEQUENTIAL)
        with f.if_(seen.ne(last)):
            sleepers.fetch_sub(1, SEQUENTIAL)
            f.ret(seen)
        f.call(sleep, word.address, seen.to(U32))


@function(PTR, arg=PTR)
def worker(f: Function, arg: Value) -> None:
    """What worker ``arg`` does, for ever."""
    t = arg.to(U64)
    since = f.variable(I64, f.call(now))
    tid = thread_id(f)
    f.use(TIDS)[t].set(tid, SEQUENTIAL)
    f.call(place, t, tid)
    word = f.variable(U64, 0)
    with f.while_():
        word.set(f.call(next_launch, word, since))
        since.set(f.call(now))
        with f.if_(t < launch_threads(word.get())):
            f.call(take, t, word)


@function(VOID, COLD)
def after_fork(f: Function) -> None:
    """In the child of a fork: nobody but the forking thread is left.

    The number moves on, so that pieces of a launch that was under way in the parent can't be
    claimed here.
    """
    f.use(SLEEPERS).set(0)
    progress = f.use(PROGRESS)
    progress["pending"].set(0)
    progress["waiting"].set(0)
    f.use(CALLER)["workers"].set(1)
    f.clear(f.use(TIDS))
    f.clear(f.use(AVOIDS))
    word = f.use(JOB)["word"]
    nothing = f.constant(U64, 0)
    word.set(launch_word(launch_number(word.get()) + 1, nothing, nothing))
    f.use(CALLER)["lock"].set(0, SEQUENTIAL)


@function(U64, COLD, want=U64)
def grow(f: Function, want: Value) -> None:
    """Make threads until so many exist (the caller included), with the lock held; how many do."""
    mask, saved, handle = f.local(_SIGNALS), f.local(_SIGNALS), f.local(U64)
    caller = f.use(CALLER)
    hooked, workers = caller["hooked"], caller["workers"]
    with f.if_(hooked.eq(0)):
        f.call(_REGISTER_ATFORK, 0, 0, f.address_of(after_fork), 0)
        hooked.set(1)
    f.fill(mask, -1)
    f.call(_PTHREAD_SIGMASK, _SIG_SETMASK, mask.address, saved.address)
    with f.while_(lambda: workers < want):
        made = f.call(_PTHREAD_CREATE, handle.address, 0, f.address_of(worker), workers.to(PTR))
        with f.if_(made.ne(0)):
            f.break_()
        f.call(_PTHREAD_DETACH, handle)
        workers += 1
    f.call(_PTHREAD_SIGMASK, _SIG_SETMASK, saved.address, 0)
    f.ret(workers)
