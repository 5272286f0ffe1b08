"""What the threads of the pool share: its state, the clock, and how they sleep and wake.

How the parts talk to each other:

- the job's ``word`` = launch number << 14 | P << 10 | T: T parts of P pieces each. A worker t sees
  the number change; it takes part if t < T.
- ``claims[t]`` = number of the last launch of whose part t a piece has been claimed << 4 | how many
  have been. Whoever moves it on runs that piece. A piece counts in ``pending`` until it has ended,
  and a launch does not return before that, so a worker that holds a claim may read the job; one
  that comes late finds nothing left to claim and touches nothing. It knows P from the word that it
  saw, not from the job, which may be the next one's by then.
- ``tids`` and ``places`` are Dekker-style too: a worker announces its id and looks for its place,
  who sets places looks for ids afterwards.
- ``sleepers`` and ``waiting`` are Dekker-style: sleeper: announce, check again, sleep. Waker:
  change the word, look for announcements. All of these are sequentially consistent.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Callee, Function, Global, external, function
from tilewright.codegen.llvm.values import (
    I32,
    I64,
    PTR,
    U32,
    U64,
    VOID,
    Struct,
    Type,
    Value,
    array,
)

#: Most threads that one launch uses: the width of the thread count in the launch word.
MAX_THREADS = 512
#: Most pieces of a part: the more, the less a slower core delays, and the more calls.
MAX_PIECES = 8

# Attributes: what a launch runs is optimised; compiling the rest costs more than running it.
HOT, COLD = "nounwind noinline", "noinline optnone nounwind"

#: One cache line.
LINE = Struct("tw.line", value=U64, unused=array(7, U64))


def _shared(name: str, kind: Type, initial: str = "zeroinitializer") -> Global:
    """A global that shares no cache line with others, nor its neighbour: CPUs fetch pairs."""
    return Global(f"tw.{name}", kind, 128, initial)


JOB = _shared("job", Struct("tw.job_type", word=U64, fn=PTR, context=PTR, n=U64))
CLAIMS = _shared("claims", array(MAX_THREADS, LINE))
#: Pieces of the launch that haven't ended, whether its caller sleeps, the first code.
PROGRESS = _shared("progress", Struct("tw.progress_type", pending=U32, waiting=U32, error=I32))
#: How many workers sleep.
SLEEPERS = _shared("sleepers", U32)

_CALLER = Struct("tw.caller_type", lock=U32, limit=U32, hooked=U32, place_count=U32, workers=U64)
#: What callers alone use, but for starting workers: whether one launches, threads to use (0: not
#: known yet), whether forks are noticed, places (none: workers aren't bound), and threads that
#: exist, the caller included.
CALLER = _shared(
    "caller", _CALLER, _CALLER.initial(lock=0, limit=0, hooked=0, place_count=0, workers=1)
)

_WAKING = Struct("tw.waking_type", price=I64, lost=I64, lost_at=I64)
#: What waking the workers costs, in ns; what has been lost by not waking them, and when.
WAKING = _shared("waking", _WAKING, _WAKING.initial(price=10_000, lost=0, lost_at=0))
#: Tasks, and the ns that each takes one thread.
COSTS = _shared("costs", array(256, Struct("tw.cost", fn=PTR, ns=I64)))

TIDS = _shared("tids", array(MAX_THREADS, U32))
#: The CPUs that workers are bound to.
PLACES = _shared("places", array(MAX_THREADS, U32))
#: The CPU + 1 that a worker stays off.
AVOIDS = _shared("avoids", array(MAX_THREADS, U32))


@dataclass(frozen=True)
class Machine:
    """What differs between architectures: how to pause, and numbers of system calls."""

    pause: Callee
    pause_arguments: tuple[int, ...]
    futex: int
    gettid: int


MACHINES = {
    "x86_64": Machine(external(VOID, "llvm.x86.sse2.pause"), (), 202, 186),
    "aarch64": Machine(external(VOID, "llvm.aarch64.hint", I32), (1,), 98, 178),
}

_SYSCALL = external(I64, "syscall", I64, variadic=True)
_CLOCK_GETTIME = external(I32, "clock_gettime", I32, PTR)
_MONOTONIC = 1
_TIMESPEC = Struct("tw.timespec", seconds=I64, nanoseconds=I64)
_FUTEX_WAIT, _FUTEX_WAKE, _PRIVATE = 0, 1, 128
_EVERYBODY = 2**31 - 1
_SPIN_LEAST, _SPIN_MOST = 50_000, 1_000_000


def pause(f: Function) -> None:
    """Let the other threads of the core go on."""
    machine = MACHINES[f.architecture]
    f.call(machine.pause, *machine.pause_arguments)


def thread_id(f: Function) -> Value:
    """Return the system's number of the calling thread."""
    return f.call(_SYSCALL, MACHINES[f.architecture].gettid).to(U32)


def _futex(f: Function, address: Value, operation: int, value: Value) -> None:
    null, zero = f.constant(PTR, 0), f.constant(I64, 0)
    how = f.constant(I64, operation | _PRIVATE)
    f.call(_SYSCALL, MACHINES[f.architecture].futex, address, how, value, null, null, zero)


@function(I64, HOT)
def now(f: Function) -> None:
    """Nanoseconds."""
    time = f.local(_TIMESPEC)
    f.call(_CLOCK_GETTIME, _MONOTONIC, time.address)
    f.ret(time["seconds"] * 1_000_000_000 + time["nanoseconds"])


@function(I64, HOT, since=I64)
def deadline(f: Function, since: Value) -> None:
    """Until when a thread spins that has worked since: half as long again, within bounds."""
    time = f.call(now)
    half = (time - since) // 2
    f.ret(time + f.greatest(f.least(half, _SPIN_MOST), _SPIN_LEAST))


@function(VOID, HOT, address=PTR, value=U32)
def sleep(f: Function, address: Value, value: Value) -> None:
    """Sleep until somebody wakes an address, unless it no longer holds a value."""
    _futex(f, address, _FUTEX_WAIT, value.to(U64))


@function(VOID, HOT, address=PTR)
def wake(f: Function, address: Value) -> None:
    """Wake all who sleep at an address."""
    _futex(f, address, _FUTEX_WAKE, f.constant(I64, _EVERYBODY))
