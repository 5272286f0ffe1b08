"""The primitive that replaces a program by a hand-written kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.kernels import KERNELS
from tilewright.tir.schedule.vocabulary import Annotation

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def use_kernel(sch: Schedule, block: BlockRV, kernel: str, options: Annotation = None) -> None:
    """Replace the program by a kernel that was written for it.

    ``kernel`` is a name in ``tir.schedule.KERNELS``, ``options`` a dict of its options, such as
    tile sizes. Handles of blocks and loops are dead afterwards; the kernel is made of blocks that
    other primitives find by name.

    Preconditions:
        - the block is the root block of its function
        - the kernel is registered
        - the program is one that the kernel is for
        - the options are a dict or left out
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * 2.0
    After ``use_kernel("root", "double_by_sum")``:
        for i in range(16):
            with T.block("sum"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + A[vi]
    """
    root = sch.state.get_block(block)
    if sch.state.scope_realize(root) is not None:
        raise sch.error(
            f"block {root.block.name!r} is not the root block: a kernel replaces all of a function",
            root,
        )
    if kernel not in KERNELS:
        known = ", ".join(KERNELS) or "none"
        raise sch.error(f"there is no kernel {kernel!r}; registered are: {known}", root)
    if options is not None and not isinstance(options, dict):
        raise sch.error(f"options must be a dict, got {type(options).__name__}", root)
    made = KERNELS.get(kernel)(sch.state.func(block.func), options or {})
    if isinstance(made, str):
        raise sch.error(f"kernel {kernel!r} is not for this program: {made}", root)
    sch.state.replace(root.block, made)
