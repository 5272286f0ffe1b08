"""The pieces of a launch: who claims one runs it, and who runs the last tells that all are done."""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Function, function
from tilewright.codegen.llvm.pool_state import (
    CLAIMS,
    HOT,
    JOB,
    PROGRESS,
    wake,
)
from tilewright.codegen.llvm.values import (
    ACQUIRE_RELEASE,
    I32,
    RELAXED,
    SEQUENTIAL,
    U32,
    U64,
    Value,
)


def launch_word(number: Value, pieces: Value, threads: Value) -> Value:
    """Return the word of a launch."""
    return number << 14 | pieces << 10 | threads


def launch_number(word: Value) -> Value:
    """Return the number of a launch."""
    return word >> 14


def launch_pieces(word: Value) -> Value:
    """Return how many pieces a part of a launch has."""
    return (word >> 10) & 15


def launch_threads(word: Value) -> Value:
    """Return how many parts a launch has."""
    return word & 1023


@function(U32, HOT, t=U64, word=U64)
def part(f: Function, t: Value, word: Value) -> None:
    """Run pieces of part t of the launch that ``word`` tells of, until all are taken; how many."""
    claims, progress = f.use(CLAIMS)[t]["value"], f.use(PROGRESS)
    number, pieces = launch_number(word), launch_pieces(word)
    done = f.variable(U32, 0)
    with f.while_():
        old = claims.get(RELAXED)
        with f.if_(old >> 4 > number):
            f.break_()
        taken = f.select((old >> 4).eq(number), old & 15, 0)
        with f.if_(taken >= pieces):
            f.break_()
        with f.if_(claims.compare_exchange(old, number << 4 | taken + 1, ACQUIRE_RELEASE)):
            code = _run_piece(f, t * pieces + taken, launch_threads(word) * pieces)
            with f.if_(code.ne(0)):
                progress["error"].compare_exchange(0, code, RELAXED)
            done += 1
    with f.if_(done.ne(0)):
        left = progress["pending"].fetch_sub(done, SEQUENTIAL)
        with f.if_(left.eq(done)), f.if_(progress["waiting"].get(SEQUENTIAL).ne(0)):
            f.call(wake, progress["pending"].address)
    f.ret(done)


def _run_piece(f: Function, piece: Value, pieces: Value) -> Value:
    job = f.use(JOB)
    n = job["n"].get()
    quotient, rest = n // pieces, n % pieces

    def bound(i: Value) -> Value:
        # i * n / pieces, without overflow.
        return i * quotient + i * rest // pieces

    return f.call_pointer(job["fn"], I32, job["context"].get(), bound(piece), bound(piece + 1))


@function(U32, HOT, first=U64, word=U64)
def take(f: Function, first: Value, word: Value) -> None:
    """Run what is left of the launch that ``word`` tells of, part ``first`` first; how many."""
    threads = launch_threads(word)
    t, ran = f.variable(U64, first), f.variable(U32, 0)
    with f.for_(threads):
        ran += f.call(part, t, word)
        following = t + 1
        t.set(f.select(following.eq(threads), 0, following))
    f.ret(ran)
