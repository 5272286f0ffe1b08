"""LLVM IR that tests of the compiler share."""

from __future__ import annotations

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %slot = alloca i64
  store i64 %a, ptr %slot
  %x = load i64, ptr %slot
  %r = add i64 %x, %b
  ret i64 %r
}
"""
UNDOMINATED = """
define i64 @f(i1 %c) {
entry:
  br i1 %c, label %a, label %b
a:
  %x = add i64 1, 2
  br label %b
b:
  %y = add i64 %x, 1
  ret i64 %y
}
"""
