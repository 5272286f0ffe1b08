"""LLVM IR text of the pool's launches: publishing a job, claiming its pieces, waiting for the end.

A part of what :mod:`pool` puts together; the words in capitals are filled in there.
"""

from __future__ import annotations

LAUNCHES = r"""
; Run pieces of part t of the launch that `word` tells of, until all are taken; how many it were.
define internal i32 @tw.part(i64 %t, i64 %word) nounwind noinline {
entry:
  %cp = getelementptr [MAXT x %line], ptr @tw.claims, i64 0, i64 %t
  %number = lshr i64 %word, 14
  %claim = shl i64 %number, 4
  %pw = lshr i64 %word, 10
  %pieces = and i64 %pw, 15
  br label %next
next:
  %done = phi i32 [ 0, %entry ], [ %done, %try ], [ %done1, %ran ]
  %old = load atomic i64, ptr %cp monotonic, align 8
  %oldn = lshr i64 %old, 4
  %late = icmp ugt i64 %oldn, %number
  br i1 %late, label %leave, label %look
look:
  %same = icmp eq i64 %oldn, %number
  %low = and i64 %old, 15
  %taken = select i1 %same, i64 %low, i64 0
  %all = icmp uge i64 %taken, %pieces
  br i1 %all, label %leave, label %try
try:
  %taken1 = add i64 %taken, 1
  %new = or i64 %claim, %taken1
  %x = cmpxchg ptr %cp, i64 %old, i64 %new acq_rel monotonic
  %mine = extractvalue { i64, i1 } %x, 1
  br i1 %mine, label %run, label %next
run:
  %fn = load ptr, ptr getelementptr (i8, ptr @tw.job, i64 8)
  %ctx = load ptr, ptr getelementptr (i8, ptr @tw.job, i64 16)
  %n = load i64, ptr getelementptr (i8, ptr @tw.job, i64 24)
  %T = and i64 %word, 1023
  %U = mul i64 %T, %pieces
  %uq0 = mul i64 %t, %pieces
  %u = add i64 %uq0, %taken
  %q = udiv i64 %n, %U
  %r = urem i64 %n, %U
  ; u*n/U without overflow: u*q + u*r/U
  %u1 = add i64 %u, 1
  %bq = mul i64 %u, %q
  %br = mul i64 %u, %r
  %bd = udiv i64 %br, %U
  %begin = add i64 %bq, %bd
  %eq = mul i64 %u1, %q
  %er = mul i64 %u1, %r
  %ed = udiv i64 %er, %U
  %end = add i64 %eq, %ed
  %rc = call i32 %fn(ptr %ctx, i64 %begin, i64 %end)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %fail, label %ran
fail:
  %e = cmpxchg ptr @tw.error, i32 0, i32 %rc monotonic monotonic
  br label %ran
ran:
  %done1 = add i32 %done, 1
  br label %next
leave:
  %some = icmp ne i32 %done, 0
  br i1 %some, label %count, label %out
count:
  %left = atomicrmw sub ptr @tw.pending, i32 %done seq_cst
  %last = icmp eq i32 %left, %done
  br i1 %last, label %tell, label %out
tell:
  %w = load atomic i32, ptr @tw.waiting seq_cst, align 4
  %wb = icmp ne i32 %w, 0
  br i1 %wb, label %wakeit, label %out
wakeit:
  call void @tw.wake(ptr @tw.pending)
  br label %out
out:
  ret i32 %done
}

; Run what is left of the launch that `word` tells of, part `first` first; how many pieces it were.
define internal i32 @tw.take(i64 %first, i64 %word) nounwind noinline {
entry:
  %T = and i64 %word, 1023
  br label %part
part:
  %i = phi i64 [ 0, %entry ], [ %i1, %part ]
  %t = phi i64 [ %first, %entry ], [ %t2, %part ]
  %sum = phi i32 [ 0, %entry ], [ %sum1, %part ]
  %ran = call i32 @tw.part(i64 %t, i64 %word)
  %sum1 = add i32 %sum, %ran
  %t1 = add i64 %t, 1
  %wraps = icmp eq i64 %t1, %T
  %t2 = select i1 %wraps, i64 0, i64 %t1
  %i1 = add i64 %i, 1
  %again = icmp ult i64 %i1, %T
  br i1 %again, label %part, label %out
out:
  ret i32 %sum1
}

; With the lock held: whether it pays to wake workers for a launch of `fn`. It does if it is not
; known how long that takes, or if half of it, together with what the last such launches lost by
; being left to one thread, is more than waking costs.
define internal i1 @tw.pays(ptr %fn) nounwind noinline {
entry:
  %slot = call ptr @tw.slot(ptr %fn)
  %whose = load ptr, ptr %slot
  %same = icmp eq ptr %whose, %fn
  %fixed = icmp ne ptr %fn, @tw.dynamic
  %known = and i1 %same, %fixed
  br i1 %known, label %count, label %yes
count:
  %now = call i64 @tw.now()
  %before = load i64, ptr @tw.lost_at
  store i64 %now, ptr @tw.lost_at
  %gap = sub i64 %now, %before
  %recent = icmp slt i64 %gap, RECENT
  %lost0 = load i64, ptr @tw.lost
  %lost1 = select i1 %recent, i64 %lost0, i64 0
  %np = getelementptr %cost, ptr %slot, i64 0, i32 1
  %ns = load i64, ptr %np
  %half = sdiv i64 %ns, 2
  %lost = add i64 %lost1, %half
  store i64 %lost, ptr @tw.lost
  %price = load i64, ptr @tw.price
  %pays = icmp sgt i64 %lost, %price
  br i1 %pays, label %yes, label %no
yes:
  store i64 0, ptr @tw.lost
  ret i1 true
no:
  ret i1 false
}

; With the lock held: wake the workers, and learn what that costs. Until they are there the caller
; works, so it is the call alone.
define internal void @tw.rouse() nounwind noinline {
  %t0 = call i64 @tw.now()
  call void @tw.wake(ptr @tw.job)
  %t1 = call i64 @tw.now()
  %took = sub i64 %t1, %t0
  %price0 = load i64, ptr @tw.price
  %three = mul i64 %price0, 3
  %sum = add i64 %three, %took
  %price = sdiv i64 %sum, 4
  store i64 %price, ptr @tw.price
  ret void
}

; With the lock held: note how long `fn` takes one thread. The launch began at `began`; the caller
; ran so many of its pieces.
define internal void @tw.learn(ptr %fn, i64 %began, i32 %ran, i64 %pieces) nounwind noinline {
  %now = call i64 @tw.now()
  %took = sub i64 %now, %began
  %none = icmp eq i32 %ran, 0
  %some = select i1 %none, i32 1, i32 %ran
  %own = zext i32 %some to i64
  %all = mul i64 %took, %pieces
  %ns = udiv i64 %all, %own
  %slot = call ptr @tw.slot(ptr %fn)
  store ptr %fn, ptr %slot
  %np = getelementptr %cost, ptr %slot, i64 0, i32 1
  store i64 %ns, ptr %np
  ret void
}

define internal ptr @tw.slot(ptr %fn) nounwind noinline {
  %address = ptrtoint ptr %fn to i64
  %line = lshr i64 %address, 4
  %i = and i64 %line, 255
  %slot = getelementptr [256 x %cost], ptr @tw.costs, i64 0, i64 %i
  ret ptr %slot
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
  %share = udiv i64 %n, %T
  %long = icmp ugt i64 %share, PIECES
  %pieces = select i1 %long, i64 PIECES, i64 %share
  store atomic i32 0, ptr @tw.error monotonic, align 4
  store atomic i32 0, ptr @tw.waiting monotonic, align 4
  %count = mul i64 %pieces, %T
  %count32 = trunc i64 %count to i32
  store atomic i32 %count32, ptr @tw.pending monotonic, align 4
  %old = load atomic i64, ptr @tw.job monotonic, align 8
  %num0 = lshr i64 %old, 14
  %num = add i64 %num0, 1
  %shifted = shl i64 %num, 14
  %pbits = shl i64 %pieces, 10
  %low = or i64 %pbits, %T
  %word = or i64 %shifted, %low
  store atomic i64 %word, ptr @tw.job seq_cst, align 8
  %sl = load atomic i32, ptr @tw.sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sl, 0
  call void @tw.keep_apart(i64 %T)
  br i1 %asleep, label %rouse, label %own
rouse:
  %pays = call i1 @tw.pays(ptr %fn)
  br i1 %pays, label %wake, label %own
wake:
  call void @tw.rouse()
  br label %own
own:
  %began = call i64 @tw.now()
  %ran = call i32 @tw.take(i64 0, i64 %word)
  %p0 = load atomic i32, ptr @tw.pending acquire, align 4
  %done0 = icmp eq i32 %p0, 0
  br i1 %done0, label %finish, label %wait
wait:
  %deadline = call i64 @tw.deadline(i64 %began)
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
  br i1 %asleep, label %learn, label %release
learn:
  call void @tw.learn(ptr %fn, i64 %began, i32 %ran, i64 %count)
  br label %release
release:
  %e = load atomic i32, ptr @tw.error monotonic, align 4
  store atomic i32 0, ptr @tw.lock release, align 4
  ret i32 %e
}

; A task of a dynamic launch: take the next indices until there are no more. Which piece this is
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
"""
