"""Modules are loaded where a process has no large gap left among what it maps."""

import subprocess
import sys

# Six gigabytes are taken, and all gaps above them. Before each module a single page above is given
# back: one section finds its place there, the others six gigabytes below.
PROGRAM = """
import ctypes
import numpy as np
import tilewright as tw
from tilewright import te

PAGE, MUCH = 4096, 6 << 30
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
PRIVATE_ANONYMOUS, NORESERVE = 0x22, 0x4000

def kernel(rows):
    A = te.placeholder((rows, 16), "float32", name="A")
    B = te.compute((rows, 16), lambda i, j: te.exp(A[i, j]) * 1.25 + te.erf(A[i, j]), name="B")
    return tw.tir.build(te.create_prim_func([A, B]))

def check(rows):
    data = np.linspace(-2, 2, rows * 16, dtype="float32").reshape(rows, 16)
    result = np.empty_like(data)
    kernel(rows)(data, result)
    assert abs(result[0, 0] - (np.exp(-2.0) * 1.25 - 0.9953223)) < 1e-5

first = kernel(2)
first(np.zeros((2, 16), "float32"), np.zeros((2, 16), "float32"))
taken = libc.mmap(None, MUCH, 0, PRIVATE_ANONYMOUS | NORESERVE, -1, 0)
while (page := libc.mmap(None, PAGE, 0, PRIVATE_ANONYMOUS, -1, 0)) > taken:
    pass
for rows in range(4, 12):
    libc.munmap(taken + MUCH - 2 * rows * PAGE, PAGE)
    check(rows)
print("loaded")
"""


def test_modules_are_loaded_into_small_gaps() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "loaded\n", done.stderr[-2000:]
