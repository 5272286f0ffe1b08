"""The thread pool that parallel loops run on, written as LLVM IR.

A compiled function calls

    i32 @tw_parallel_launch(ptr fn, ptr ctx, i64 n, i32 max_threads)

and the pool calls ``i32 fn(ptr ctx, i64 begin, i64 end)`` for T chunks ``[t*n/T, (t+1)*n/T)`` that
cover ``[0, n)``. T is the least of ``n``, ``max_threads`` (if positive) and the set number of
threads. The caller works too, and takes over the chunks that no worker has begun: a worker whose
core is busy elsewhere delays nothing. The first non-zero result of a chunk is returned, after all
chunks have ended.

    i32 @tw_parallel_launch_dynamic(ptr fn, ptr ctx, i64 n, i32 max_threads, i64 grain)

does the same for work that is uneven: each thread takes the next ``grain`` indices when it is done
with those it has, so ``fn`` is called more often. It is a launch of T chunks that loop.

- A launch from within a task, or while another thread's launch runs, runs ``fn(ctx, 0, n)`` on the
  calling thread. Nothing ever waits for the pool to become free.
- Workers are created when first needed. They wait by spinning for about 50 µs, then sleep on a
  futex. All signals are blocked in them.
- After a fork the child has no workers; a handler empties the pool, which then starts anew.

``void @tw_set_num_threads(i32)`` sets the number of threads (0: as many as the process may use
CPUs), ``i32 @tw_get_num_threads()`` returns it. ``i32 @tw_set_affinity(ptr cpus, i32 count)`` binds
worker t to CPU ``cpus[t % count]``, those to come as well; with ``count`` 0 workers go where the
caller may. It returns 0, or -1 if the system refused. The thread that launches is never bound: it
is thread 0, for which ``cpus[0]`` is left free.

Workers that aren't bound stay off the CPU of the thread that wakes them, if there are CPUs enough.
Without that, the kernel of a virtual machine, to which an idle CPU may look like one that is taken
away, wakes them on the waker's own CPU and leaves them there for some milliseconds.

In a process all JIT-compiled modules share one pool; an exported library carries its own.
Linux on x86-64 and AArch64.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
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

#: CPUs that an affinity mask has room for.
MAX_CPUS = 8192

# Per architecture: the pause instruction, and the numbers of the system calls futex and gettid.
_ARCHITECTURES = {
    "x86_64": ("llvm.x86.sse2.pause", "", 202, 186),
    "aarch64": ("llvm.aarch64.hint", "i32 1", 98, 178),
}

# How the parts talk to each other:
#
# - `word` = launch number << 10 | T. A worker t sees the number change; it takes part if t < T.
# - `claims[t]` = number of the last launch whose chunk t has been claimed. Whoever moves it up to
#   the present launch runs the chunk. A chunk counts in `pending` until it has ended, and `launch`
#   does not return before that, so a worker that holds a claim may read the job; one that comes
#   late finds the claim taken and touches nothing.
# - `tids` and `places` are Dekker-style too: a worker announces its id and looks for its place,
#   who sets places looks for ids afterwards.
# - `sleepers` and `waiting` are Dekker-style: sleeper: announce, check again, sleep. Waker: change
#   the word, look for announcements. All of these are sequentially consistent.
_TEXT = r"""
%job = type { i64, ptr, ptr, i64, i64 }     ; word, fn, ctx, n, T: one cache line
%line = type { i64, [7 x i64] }             ; one claim per cache line
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

; Run chunk t of launch `number` unless it is taken.
define internal void @tw.chunk(i64 %t, i64 %number) nounwind noinline {
entry:
  %cp = getelementptr [MAXT x %line], ptr @tw.claims, i64 0, i64 %t
  %old = load atomic i64, ptr %cp monotonic, align 8
  %late = icmp uge i64 %old, %number
  br i1 %late, label %out, label %try
try:
  %x = cmpxchg ptr %cp, i64 %old, i64 %number acq_rel monotonic
  %mine = extractvalue { i64, i1 } %x, 1
  br i1 %mine, label %run, label %out
run:
  %fn = load ptr, ptr getelementptr (i8, ptr @tw.job, i64 8)
  %ctx = load ptr, ptr getelementptr (i8, ptr @tw.job, i64 16)
  %n = load i64, ptr getelementptr (i8, ptr @tw.job, i64 24)
  %T = load i64, ptr getelementptr (i8, ptr @tw.job, i64 32)
  %q = udiv i64 %n, %T
  %r = urem i64 %n, %T
  ; t*n/T without overflow: t*q + t*r/T
  %t1 = add i64 %t, 1
  %bq = mul i64 %t, %q
  %br = mul i64 %t, %r
  %bd = udiv i64 %br, %T
  %begin = add i64 %bq, %bd
  %eq = mul i64 %t1, %q
  %er = mul i64 %t1, %r
  %ed = udiv i64 %er, %T
  %end = add i64 %eq, %ed
  %rc = call i32 %fn(ptr %ctx, i64 %begin, i64 %end)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %fail, label %done
fail:
  %e = cmpxchg ptr @tw.error, i32 0, i32 %rc monotonic monotonic
  br label %done
done:
  %left = atomicrmw sub ptr @tw.pending, i32 1 seq_cst
  %last = icmp eq i32 %left, 1
  br i1 %last, label %tell, label %out
tell:
  %w = load atomic i32, ptr @tw.waiting seq_cst, align 4
  %wb = icmp ne i32 %w, 0
  br i1 %wb, label %wakeit, label %out
wakeit:
  call void @tw.wake(ptr @tw.pending)
  br label %out
out:
  ret void
}

; Bind worker t, whose thread id is `tid`, to its place, if it has one.
define internal i32 @tw.place(i64 %t, i32 %tid) noinline optnone nounwind {
entry:
  %set = alloca [128 x i64], align 8
  %count = load atomic i32, ptr @tw.place_count seq_cst, align 4
  %bound = icmp ne i32 %count, 0
  br i1 %bound, label %bind, label %out
bind:
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %wide = zext i32 %count to i64
  %i = urem i64 %t, %wide
  %pp = getelementptr i32, ptr @tw.places, i64 %i
  %cpu = load atomic i32, ptr %pp monotonic, align 4
  %word = lshr i32 %cpu, 6
  %bit = and i32 %cpu, 63
  %bit64 = zext i32 %bit to i64
  %mask = shl i64 1, %bit64
  %wp = getelementptr i64, ptr %set, i32 %word
  store i64 %mask, ptr %wp
  %rc = call i32 @sched_setaffinity(i32 %tid, i64 1024, ptr %set)
  ret i32 %rc
out:
  ret i32 0
}

; Let a worker go where the caller may, but not to `cpu` unless the CPUs are fewer than `least`.
define internal void @tw.leave(i32 %tid, i32 %cpu, i32 %least) noinline optnone nounwind {
entry:
  %set = alloca [128 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %rc = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %set)
  %cpus = call i32 @tw.cpus()
  %few = icmp ult i32 %cpus, %least
  br i1 %few, label %move, label %clear
clear:
  %word = lshr i32 %cpu, 6
  %bit = and i32 %cpu, 63
  %bit64 = zext i32 %bit to i64
  %mask = shl i64 1, %bit64
  %rest = xor i64 %mask, -1
  %wp = getelementptr i64, ptr %set, i32 %word
  %old = load i64, ptr %wp
  %new = and i64 %old, %rest
  store i64 %new, ptr %wp
  br label %move
move:
  %rc2 = call i32 @sched_setaffinity(i32 %tid, i64 1024, ptr %set)
  ret void
}

; With the lock held, before workers are woken: keep those of a launch of T off the caller's CPU.
define internal void @tw.keep_apart(i64 %T) nounwind noinline {
entry:
  %count = load atomic i32, ptr @tw.place_count monotonic, align 4
  %bound = icmp ne i32 %count, 0
  br i1 %bound, label %out, label %ask
ask:
  %cpu = call i32 @sched_getcpu()
  %known = icmp ult i32 %cpu, CPUS
  br i1 %known, label %start, label %out
start:
  %mark = add i32 %cpu, 1
  %least = trunc i64 %T to i32
  br label %worker
worker:
  %t = phi i64 [ 1, %start ], [ %t1, %next ]
  %ap = getelementptr i32, ptr @tw.avoids, i64 %t
  %a = load atomic i32, ptr %ap monotonic, align 4
  %same = icmp eq i32 %a, %mark
  br i1 %same, label %next, label %look
look:
  %tp = getelementptr i32, ptr @tw.tids, i64 %t
  %tid = load atomic i32, ptr %tp monotonic, align 4
  %lives = icmp ne i32 %tid, 0
  br i1 %lives, label %move, label %next
move:
  call void @tw.leave(i32 %tid, i32 %cpu, i32 %least)
  store atomic i32 %mark, ptr %ap monotonic, align 4
  br label %next
next:
  %t1 = add i64 %t, 1
  %again = icmp ult i64 %t1, %T
  br i1 %again, label %worker, label %out
out:
  ret void
}

define i32 @tw_set_affinity(ptr %cpus, i32 %count) noinline optnone nounwind {
entry:
  %set = alloca [128 x i64], align 8
  %rc0 = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %set)
  %big = icmp ugt i32 %count, MAXT
  %n = select i1 %big, i32 MAXT, i32 %count
  br label %copy
copy:
  %i = phi i32 [ 0, %entry ], [ %i1, %store ]
  %more = icmp ult i32 %i, %n
  br i1 %more, label %store, label %tell
store:
  %from = getelementptr i32, ptr %cpus, i32 %i
  %cpu = load i32, ptr %from
  %to = getelementptr i32, ptr @tw.places, i32 %i
  store atomic i32 %cpu, ptr %to monotonic, align 4
  %i1 = add i32 %i, 1
  br label %copy
tell:
  store atomic i32 %n, ptr @tw.place_count seq_cst, align 4
  br label %worker
worker:
  %t = phi i64 [ 1, %tell ], [ %t1, %next ]
  %failed = phi i32 [ 0, %tell ], [ %failed1, %next ]
  %tp = getelementptr i32, ptr @tw.tids, i64 %t
  %tid = load atomic i32, ptr %tp seq_cst, align 4
  %lives = icmp ne i32 %tid, 0
  br i1 %lives, label %move, label %next
move:
  %binds = icmp ne i32 %n, 0
  br i1 %binds, label %bind, label %free
bind:
  %rc1 = call i32 @tw.place(i64 %t, i32 %tid)
  br label %moved
free:
  %rc2 = call i32 @sched_setaffinity(i32 %tid, i64 1024, ptr %set)
  br label %moved
moved:
  %rc3 = phi i32 [ %rc1, %bind ], [ %rc2, %free ]
  %ap = getelementptr i32, ptr @tw.avoids, i64 %t
  store atomic i32 0, ptr %ap monotonic, align 4
  %bad = or i32 %failed, %rc3
  br label %next
next:
  %failed1 = phi i32 [ %failed, %worker ], [ %bad, %moved ]
  %t1 = add i64 %t, 1
  %again = icmp ult i64 %t1, MAXT
  br i1 %again, label %worker, label %out
out:
  ret i32 %failed1
}

define internal ptr @tw.worker(ptr %arg) nounwind {
entry:
  %t = ptrtoint ptr %arg to i64
  %id = call i64 (i64, ...) @syscall(i64 GETTID)
  %tid = trunc i64 %id to i32
  %tp = getelementptr i32, ptr @tw.tids, i64 %t
  store atomic i32 %tid, ptr %tp seq_cst, align 4
  %placed = call i32 @tw.place(i64 %t, i32 %tid)
  br label %begin
begin:
  %last = phi i64 [ 0, %entry ], [ %seen, %served ]
  %t0 = call i64 @tw.now()
  %deadline = add i64 %t0, 50000
  br label %spin
spin:
  %i = phi i64 [ 0, %begin ], [ %i1, %pause ], [ 0, %clock ]
  %w = load atomic i64, ptr @tw.job acquire, align 8
  %new = icmp ne i64 %w, %last
  br i1 %new, label %serve, label %pause0
pause0:
  call void @PAUSE(PAUSE_ARG)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 64
  br i1 %more, label %pause, label %clock
pause:
  br label %spin
clock:
  %now = call i64 @tw.now()
  %early = icmp slt i64 %now, %deadline
  br i1 %early, label %spin, label %doze
doze:
  %s = atomicrmw add ptr @tw.sleepers, i32 1 seq_cst
  br label %check
check:
  %w2 = load atomic i64, ptr @tw.job seq_cst, align 8
  %same = icmp eq i64 %w2, %last
  br i1 %same, label %sleep, label %woken
sleep:
  %low = trunc i64 %w2 to i32
  call void @tw.sleep(ptr @tw.job, i32 %low)
  br label %check
woken:
  %s2 = atomicrmw sub ptr @tw.sleepers, i32 1 seq_cst
  br label %serve
serve:
  %seen = phi i64 [ %w, %spin ], [ %w2, %woken ]
  %T = and i64 %seen, 1023
  %part = icmp ult i64 %t, %T
  br i1 %part, label %work, label %served
work:
  %number = lshr i64 %seen, 10
  call void @tw.chunk(i64 %t, i64 %number)
  br label %served
served:
  br label %begin
}

; In the child of a fork: nobody but the forking thread is left. The number moves on, so that
; chunks of a launch that was under way in the parent can't be claimed here.
define internal void @tw.after_fork() noinline optnone nounwind {
  store i32 0, ptr @tw.sleepers
  store i32 0, ptr @tw.pending
  store i32 0, ptr @tw.waiting
  store i64 1, ptr @tw.workers
  call void @llvm.memset.p0.i64(ptr @tw.tids, i8 0, i64 TIDS_BYTES, i1 false)
  call void @llvm.memset.p0.i64(ptr @tw.avoids, i8 0, i64 TIDS_BYTES, i1 false)
  %w = load i64, ptr @tw.job
  %n = lshr i64 %w, 10
  %n1 = add i64 %n, 1
  %w1 = shl i64 %n1, 10
  store i64 %w1, ptr @tw.job
  store atomic i32 0, ptr @tw.lock seq_cst, align 4
  ret void
}

define internal i32 @tw.cpus() noinline optnone nounwind {
entry:
  %set = alloca [128 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 1024, i1 false)
  %rc = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %set)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum1, %loop ]
  %p = getelementptr i64, ptr %set, i64 %i
  %v = load i64, ptr %p
  %c = call i64 @llvm.ctpop.i64(i64 %v)
  %sum1 = add i64 %sum, %c
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 128
  br i1 %more, label %loop, label %out
out:
  %none = icmp eq i64 %sum1, 0
  %some = select i1 %none, i64 1, i64 %sum1
  %big = icmp ugt i64 %some, MAXT
  %n = select i1 %big, i64 MAXT, i64 %some
  %n32 = trunc i64 %n to i32
  ret i32 %n32
}

define void @tw_set_num_threads(i32 %n) noinline optnone nounwind {
entry:
  %given = icmp sgt i32 %n, 0
  br i1 %given, label %set, label %default
default:
  %d = call i32 @tw.cpus()
  br label %set
set:
  %v = phi i32 [ %n, %entry ], [ %d, %default ]
  %big = icmp ugt i32 %v, MAXT
  %c = select i1 %big, i32 MAXT, i32 %v
  store atomic i32 %c, ptr @tw.limit monotonic, align 4
  ret void
}

define i32 @tw_get_num_threads() nounwind {
entry:
  %l = load atomic i32, ptr @tw.limit monotonic, align 4
  %unset = icmp eq i32 %l, 0
  br i1 %unset, label %ask, label %out
ask:
  call void @tw_set_num_threads(i32 0)
  %l2 = load atomic i32, ptr @tw.limit monotonic, align 4
  br label %out
out:
  %r = phi i32 [ %l, %entry ], [ %l2, %ask ]
  ret i32 %r
}

; With the lock held: make threads until `want` exist (the caller included); how many there are.
define internal i64 @tw.grow(i64 %want) noinline optnone nounwind {
entry:
  %mask = alloca [16 x i64], align 8
  %saved = alloca [16 x i64], align 8
  %handle = alloca i64, align 8
  %h = load i32, ptr @tw.hooked
  %hooked = icmp ne i32 %h, 0
  br i1 %hooked, label %block, label %hook
hook:
  %rc0 = call i32 @__register_atfork(ptr null, ptr null, ptr @tw.after_fork, ptr null)
  store i32 1, ptr @tw.hooked
  br label %block
block:
  call void @llvm.memset.p0.i64(ptr %mask, i8 -1, i64 128, i1 false)
  %rc1 = call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %saved)
  br label %loop
loop:
  %have = load i64, ptr @tw.workers
  %enough = icmp uge i64 %have, %want
  br i1 %enough, label %out, label %make
make:
  %arg = inttoptr i64 %have to ptr
  %rc2 = call i32 @pthread_create(ptr %handle, ptr null, ptr @tw.worker, ptr %arg)
  %made = icmp eq i32 %rc2, 0
  br i1 %made, label %ok, label %out
ok:
  %hv = load i64, ptr %handle
  %rc3 = call i32 @pthread_detach(i64 %hv)
  %have1 = add i64 %have, 1
  store i64 %have1, ptr @tw.workers
  br label %loop
out:
  %rc4 = call i32 @pthread_sigmask(i32 2, ptr %saved, ptr null)
  %n = load i64, ptr @tw.workers
  ret i64 %n
}

define i32 @tw_parallel_launch(ptr %fn, ptr %ctx, i64 %n, i32 %max) nounwind {
entry:
  %empty = icmp sle i64 %n, 0
  br i1 %empty, label %nothing, label %size
nothing:
  ret i32 0
size:
  %limit = call i32 @tw_get_num_threads()
  %capped = icmp sgt i32 %max, 0
  %m0 = select i1 %capped, i32 %max, i32 %limit
  %ml = icmp ult i32 %m0, %limit
  %m = select i1 %ml, i32 %m0, i32 %limit
  %m64 = zext i32 %m to i64
  %nl = icmp ult i64 %n, %m64
  %want = select i1 %nl, i64 %n, i64 %m64
  %single = icmp ult i64 %want, 2
  br i1 %single, label %serial, label %trylock
trylock:
  %l0 = load atomic i32, ptr @tw.lock monotonic, align 4
  %free = icmp eq i32 %l0, 0
  br i1 %free, label %take, label %serial
take:
  %x = cmpxchg ptr @tw.lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %x, 1
  br i1 %got, label %locked, label %serial
serial:
  %rcs = call i32 %fn(ptr %ctx, i64 0, i64 %n)
  ret i32 %rcs
locked:
  %have = load i64, ptr @tw.workers
  %few = icmp ult i64 %have, %want
  br i1 %few, label %more, label %publish
more:
  %grown = call i64 @tw.grow(i64 %want)
  br label %publish
publish:
  %avail = phi i64 [ %have, %locked ], [ %grown, %more ]
  %al = icmp ult i64 %avail, %want
  %T = select i1 %al, i64 %avail, i64 %want
  store ptr %fn, ptr getelementptr (i8, ptr @tw.job, i64 8)
  store ptr %ctx, ptr getelementptr (i8, ptr @tw.job, i64 16)
  store i64 %n, ptr getelementptr (i8, ptr @tw.job, i64 24)
  store i64 %T, ptr getelementptr (i8, ptr @tw.job, i64 32)
  store atomic i32 0, ptr @tw.error monotonic, align 4
  store atomic i32 0, ptr @tw.waiting monotonic, align 4
  %T32 = trunc i64 %T to i32
  store atomic i32 %T32, ptr @tw.pending monotonic, align 4
  %old = load atomic i64, ptr @tw.job monotonic, align 8
  %num0 = lshr i64 %old, 10
  %num = add i64 %num0, 1
  %shifted = shl i64 %num, 10
  %word = or i64 %shifted, %T
  store atomic i64 %word, ptr @tw.job seq_cst, align 8
  %sl = load atomic i32, ptr @tw.sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sl, 0
  br i1 %asleep, label %rouse, label %own
rouse:
  call void @tw.keep_apart(i64 %T)
  call void @tw.wake(ptr @tw.job)
  br label %own
own:
  %t = phi i64 [ 0, %publish ], [ 0, %rouse ], [ %tn, %own ]
  call void @tw.chunk(i64 %t, i64 %num)
  %tn = add i64 %t, 1
  %again = icmp ult i64 %tn, %T
  br i1 %again, label %own, label %join
join:
  %p0 = load atomic i32, ptr @tw.pending acquire, align 4
  %done0 = icmp eq i32 %p0, 0
  br i1 %done0, label %finish, label %wait
wait:
  %t0 = call i64 @tw.now()
  %deadline = add i64 %t0, 50000
  br label %spin
spin:
  %i = phi i64 [ 0, %wait ], [ %i1, %again2 ], [ 0, %clock ]
  %p1 = load atomic i32, ptr @tw.pending acquire, align 4
  %done1 = icmp eq i32 %p1, 0
  br i1 %done1, label %finish, label %pause
pause:
  call void @PAUSE(PAUSE_ARG)
  %i1 = add i64 %i, 1
  %more2 = icmp ult i64 %i1, 64
  br i1 %more2, label %again2, label %clock
again2:
  br label %spin
clock:
  %now = call i64 @tw.now()
  %early = icmp slt i64 %now, %deadline
  br i1 %early, label %spin, label %doze
doze:
  store atomic i32 1, ptr @tw.waiting seq_cst, align 4
  br label %check
check:
  %p2 = load atomic i32, ptr @tw.pending seq_cst, align 4
  %done2 = icmp eq i32 %p2, 0
  br i1 %done2, label %finish, label %sleep
sleep:
  call void @tw.sleep(ptr @tw.pending, i32 %p2)
  br label %check
finish:
  %e = load atomic i32, ptr @tw.error monotonic, align 4
  store atomic i32 0, ptr @tw.lock release, align 4
  ret i32 %e
}

; A task of a dynamic launch: take the next indices until there are no more. Which chunk this is
; doesn't matter.
define internal i32 @tw.dynamic(ptr %d, i64 %begin, i64 %end) nounwind {
entry:
  %fnp = getelementptr %dynamic, ptr %d, i64 0, i32 1
  %fn = load ptr, ptr %fnp
  %ctxp = getelementptr %dynamic, ptr %d, i64 0, i32 2
  %ctx = load ptr, ptr %ctxp
  %np = getelementptr %dynamic, ptr %d, i64 0, i32 3
  %n = load i64, ptr %np
  %gp = getelementptr %dynamic, ptr %d, i64 0, i32 4
  %grain = load i64, ptr %gp
  br label %take
take:
  %code = phi i32 [ 0, %entry ], [ %code1, %run ]
  %from = atomicrmw add ptr %d, i64 %grain monotonic
  %more = icmp slt i64 %from, %n
  br i1 %more, label %run, label %out
run:
  %left = sub i64 %n, %from
  %whole = icmp sgt i64 %left, %grain
  %size = select i1 %whole, i64 %grain, i64 %left
  %to = add i64 %from, %size
  %rc = call i32 %fn(ptr %ctx, i64 %from, i64 %to)
  %fine = icmp eq i32 %code, 0
  %code1 = select i1 %fine, i32 %rc, i32 %code
  br label %take
out:
  ret i32 %code
}

define i32 @tw_parallel_launch_dynamic(ptr %fn, ptr %ctx, i64 %n, i32 %max, i64 %asked) nounwind {
entry:
  %d = alloca %dynamic, align 128
  %empty = icmp sle i64 %n, 0
  br i1 %empty, label %nothing, label %size
nothing:
  ret i32 0
size:
  %positive = icmp sgt i64 %asked, 1
  %g0 = select i1 %positive, i64 %asked, i64 1
  %below = icmp slt i64 %g0, %n
  %grain = select i1 %below, i64 %g0, i64 %n
  %n1 = sub i64 %n, 1
  %q = udiv i64 %n1, %grain
  %tasks = add i64 %q, 1
  %limit = call i32 @tw_get_num_threads()
  %one = icmp eq i32 %limit, 1
  %alone = icmp eq i32 %max, 1
  %single0 = or i1 %one, %alone
  %few = icmp eq i64 %tasks, 1
  %single = or i1 %single0, %few
  br i1 %single, label %serial, label %launch
serial:
  %rcs = call i32 %fn(ptr %ctx, i64 0, i64 %n)
  ret i32 %rcs
launch:
  store i64 0, ptr %d
  %fnp = getelementptr %dynamic, ptr %d, i64 0, i32 1
  store ptr %fn, ptr %fnp
  %ctxp = getelementptr %dynamic, ptr %d, i64 0, i32 2
  store ptr %ctx, ptr %ctxp
  %np = getelementptr %dynamic, ptr %d, i64 0, i32 3
  store i64 %n, ptr %np
  %gp = getelementptr %dynamic, ptr %d, i64 0, i32 4
  store i64 %grain, ptr %gp
  %rc = call i32 @tw_parallel_launch(ptr @tw.dynamic, ptr %d, i64 %tasks, i32 %max)
  ret i32 %rc
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
    text = _TEXT.replace("PAUSE_TYPE", argument.split(" ")[0]).replace("PAUSE_ARG", argument)
    numbers = {
        "PAUSE": pause,
        "FUTEX": futex,
        "GETTID": gettid,
        "TIDS_BYTES": 4 * MAX_THREADS,
        "MAXT": MAX_THREADS,
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
