"""Kernels that are broken on purpose: a barrier less, a wait too short, another swizzle.

Each mutant must be found by the interpreter: as a race, wrong use, or a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from gemm_cases import mma_gemm, operands, wmma_gemm

from tests.everyday import few
from tilewright.ir import Call, IRModule, Mutator, Ramp, const, pre_order
from tilewright.support.errors import RunError
from tilewright.target import Target
from tilewright.tir import BufferLoad, Evaluate
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import NO_OP
from tilewright.tir.transform import gpu_pipeline

Change = Callable[[Any], Any]


def _without_barrier(node: Any) -> Any:
    """Nothing where threads met."""
    is_barrier = type(node) is Evaluate and getattr(node.value, "op", None) is not None
    return NO_OP if is_barrier and node.value.op.name == "storage_sync" else None


def _shorter_wait(node: Any) -> Any:
    """A wait that leaves one more group in flight."""
    if type(node) is not Call or node.op.name != "ptx_wait_group":
        return None
    return node.replace(args=(node.args[0] + 1,))


def _other_swizzle(node: Any) -> Any:
    """A row that is read where it would lie without the permutation."""
    if type(node) is not Call or node.op.name != "ptx_ldmatrix":
        return None
    load: Any = node.args[4].args[0]  # type: ignore[attr-defined]
    (index,) = load.indices
    made = _Plain().visit(index)
    if made is index:
        return None
    source = node.args[4].replace(args=(BufferLoad(load.buffer, (made,)),))
    return node.replace(args=(*node.args[:4], source))


class _Plain(Mutator):
    def visit_Call(self, node: Call) -> Any:
        return node.args[0] if node.op.name == "bitwise_xor" else self.generic_visit(node)


def _turned(node: Any) -> Any:
    """Matrices that are loaded transposed, or not."""
    if type(node) is not Call or node.op.name != "ptx_ldmatrix":
        return None
    return node.replace(args=(const(1) - node.args[0], *node.args[1:]))


def _misaligned(node: Any) -> Any:
    """Rows that begin an element later."""
    if type(node) is not Call or node.op.name != "ptx_ldmatrix":
        return None
    load: Any = node.args[4].args[0]  # type: ignore[attr-defined]
    (index,) = load.indices
    moved = Ramp(index.base + 1, index.stride, index.lanes)
    source = node.args[4].replace(args=(BufferLoad(load.buffer, (moved,)),))
    return node.replace(args=(*node.args[:4], source))


CHANGES = {
    "barrier": _without_barrier, "wait": _shorter_wait, "swizzle": _other_swizzle,
    "transposition": _turned, "alignment": _misaligned,
}  # fmt: skip


class _Mutation(Mutator):
    """Changes the ``number``-th node that a change applies to."""

    def __init__(self, change: Change, number: int) -> None:
        self.change, self.left = change, number

    def visit(self, node: Any) -> Any:
        made = self.change(node)
        if made is not None:
            self.left -= 1
            if self.left == -1:
                return made
        return super().visit(node)


@cache
def _lowered(kind: str) -> IRModule:
    sch = mma_gemm() if kind == "mma" else wmma_gemm()
    made: IRModule = gpu_pipeline(Target("cuda"))(sch.mod)
    return made


def _places(kind: str, change: Change) -> int:
    kernel = _lowered(kind)["main_kernel"]
    return sum(change(node) is not None for node in pre_order(kernel.body))


def _is_found(module: IRModule) -> bool:
    a, b, c, expected = operands()
    try:
        run(module, a, b, c)
        if not np.allclose(c, expected, rtol=1e-4, atol=1e-3):
            return True
        run(module, a, b, c, check_races=True)
    except RunError:
        return True
    return False


@few(("kind", "change"), [("mma", name) for name in CHANGES] + [("wmma", "barrier")], every=3)
def test_mutants_are_found(kind: str, change: str) -> None:
    module, apply = _lowered(kind), CHANGES[change]
    count = _places(kind, apply)
    assert count, "the kernel has no such place"
    rng = np.random.default_rng(0)
    for number in rng.permutation(count)[:3].tolist():
        kernel = module["main_kernel"]
        body = _Mutation(apply, number).visit(kernel.body)
        assert body is not kernel.body
        functions = {**module.functions, "main_kernel": kernel.replace(body=body)}
        assert _is_found(IRModule(functions)), f"{change} {number} of {count} went unnoticed"


def test_the_kernels_themselves_are_right() -> None:
    for kind in ("mma", "wmma"):
        assert not _is_found(_lowered(kind))
