"""Candidates whose schedules pack constant operands into a layout of their own.

Such packing happens once, when a graph is built, so it must not count towards a candidate's time: a
candidate is compiled to its computation and one function per packed operand, and the runner packs
before it checks and measures. See ``tir.layout_rewrite``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import IRModule, as_int
from tilewright.meta_schedule.arg_info import TensorInfo
from tilewright.tir import PrimFunc
from tilewright.tir.layout_rewrite import split_layout_rewrite


@dataclass(frozen=True)
class PackedOperand:
    """An argument that is packed for a candidate by function ``packer(operand, packed)``."""

    position: int
    packer: str
    info: TensorInfo


def split_packing(mod: IRModule) -> tuple[IRModule, tuple[PackedOperand, ...]]:
    """Return a candidate's module with the packing separated, and the operands to pack."""
    func = mod["main"]
    if not isinstance(func, PrimFunc):
        return mod, ()
    main, packers = split_layout_rewrite(func)
    if not packers:
        return mod, ()
    functions = {"main": main}
    operands = []
    for position, packer in sorted(packers.items()):
        name = f"pack_{position}"
        functions[name] = packer
        target = packer.buffers[1]
        shape = tuple(as_int(extent) or 0 for extent in target.shape)
        operands.append(PackedOperand(position, name, TensorInfo(target.dtype, shape)))
    return mod.replace(functions=functions), tuple(operands)
