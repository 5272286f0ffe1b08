"""Small programs for CUDA, scheduled by hand, and tensors on the imaginary devices."""

from __future__ import annotations

from typing import Any

import numpy as np
from fake_cuda import FakeDriver

from tilewright.driver import compile
from tilewright.runtime import Module, from_dlpack
from tilewright.runtime.dlpack import capsule
from tilewright.script import parse
from tilewright.tir import PrimFunc, Schedule

#: A kernel writes into memory that the host allocates, another one reads it.
TWO_KERNELS = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    W = T.allocate((64,), "float32", scope="global")
    for i in T.thread_binding(64, thread="threadIdx.x"):
        W[i] = A[i] * T.float32(2)
    for j in T.thread_binding(64, thread="threadIdx.x"):
        B[j] = W[63 - j] + T.float32(1)
"""


def add_one(shape: str = "(n,)", dtype: str = "float32") -> PrimFunc:
    """``B = A + 1`` for a vector of any length."""
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "{dtype}")
    B = T.match_buffer(b, (n,), "{dtype}")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.{dtype}(1)
"""
    )
    return made


def matmul(n: int, m: int, k: int) -> PrimFunc:
    """``C = A @ B`` of known sizes."""
    made: PrimFunc = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({n}, {k}), "float32"), B: T.Buffer(({k}, {m}), "float32"),
         C: T.Buffer(({n}, {m}), "float32")):
    for i, j, k in T.grid({n}, {m}, {k}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    )
    return made


def bound(func: PrimFunc, block: str, threads: int = 32) -> Schedule:
    """All spatial loops of a block in blocks of so many threads."""
    sch = Schedule(func)
    made = sch.get_block(block)
    loops = sch.get_loops(made)[: sum(var.kind == "spatial" for var in sch.get(made).iter_vars)]
    outer, inner = sch.split(sch.fuse(*loops), [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return sch


def on_device(driver: FakeDriver, array: np.ndarray[Any, Any], device: int = 0) -> Any:
    """Return a tensor with the contents of an array on a device."""
    address = driver.put(array, device)
    return from_dlpack(capsule(address, array.shape, array.dtype.name, (2, device)))


def contents(driver: FakeDriver, tensor: Any) -> np.ndarray[Any, Any]:
    """What a tensor on a device holds, when all work is done."""
    return driver.array(tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype))


def built(mod: Any, target: str = "cuda") -> Module:
    """A module of a scheduled program."""
    return compile(mod.mod if isinstance(mod, Schedule) else mod, target)
