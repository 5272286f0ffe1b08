"""LLVM IR text of the pool's threads: made, bound to CPUs, counted, lost in a fork.

A part of what :mod:`pool` puts together; the words in capitals are filled in there.
"""

from __future__ import annotations

THREADS = r"""
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
  %made = call i64 @tw.now()
  %id = call i64 (i64, ...) @syscall(i64 GETTID)
  %tid = trunc i64 %id to i32
  %tp = getelementptr i32, ptr @tw.tids, i64 %t
  store atomic i32 %tid, ptr %tp seq_cst, align 4
  %placed = call i32 @tw.place(i64 %t, i32 %tid)
  br label %begin
begin:
  %last = phi i64 [ 0, %entry ], [ %seen, %served ]
  %since = phi i64 [ %made, %entry ], [ %began, %served ]
  %deadline = call i64 @tw.deadline(i64 %since)
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
  %began = call i64 @tw.now()
  %T = and i64 %seen, 1023
  %part = icmp ult i64 %t, %T
  br i1 %part, label %work, label %served
work:
  %ran = call i32 @tw.take(i64 %t, i64 %seen)
  br label %served
served:
  br label %begin
}

; In the child of a fork: nobody but the forking thread is left. The number moves on, so that
; pieces of a launch that was under way in the parent can't be claimed here.
define internal void @tw.after_fork() noinline optnone nounwind {
  store i32 0, ptr @tw.sleepers
  store i32 0, ptr @tw.pending
  store i32 0, ptr @tw.waiting
  store i64 1, ptr @tw.workers
  call void @llvm.memset.p0.i64(ptr @tw.tids, i8 0, i64 TIDS_BYTES, i1 false)
  call void @llvm.memset.p0.i64(ptr @tw.avoids, i8 0, i64 TIDS_BYTES, i1 false)
  %w = load i64, ptr @tw.job
  %n = lshr i64 %w, 14
  %n1 = add i64 %n, 1
  %w1 = shl i64 %n1, 14
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
"""
