"""Schedules: meaning-preserving rewrites of TensorIR by recorded primitives."""

from __future__ import annotations

from tilewright.support.errors import ScheduleError
from tilewright.tir import intrin as _intrin  # registers tensor intrinsics
from tilewright.tir.schedule import primitives
from tilewright.tir.schedule.block_scope import BlockScope, CachedFlags, Dependency, DepKind
from tilewright.tir.schedule.choices import Choices, others_after
from tilewright.tir.schedule.debugging import ScheduleDebugMask
from tilewright.tir.schedule.dependence_info import SBlockDependenceInfo
from tilewright.tir.schedule.handles import RV, BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import (
    PRIMITIVES,
    Instruction,
    InstructionKind,
    Primitive,
    primitive,
)
from tilewright.tir.schedule.kernels import KERNELS, KernelBuilder
from tilewright.tir.schedule.layout_suggestion import suggest_index_map
from tilewright.tir.schedule.sampling import Rng
from tilewright.tir.schedule.schedule import Schedule
from tilewright.tir.schedule.sref import StmtSRef
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.tensor_tiling import (
    TensorizeInfo,
    get_tensorize_loop_mapping,
    tile_with_tensor_intrin,
)
from tilewright.tir.schedule.trace import Trace

SBlockRV, SBlockScope = BlockRV, BlockScope
"""What TVM calls them now."""

__all__ = [
    "KERNELS",
    "PRIMITIVES",
    "RV",
    "BlockRV",
    "BlockScope",
    "CachedFlags",
    "Choices",
    "DepKind",
    "Dependency",
    "ExprRV",
    "Instruction",
    "InstructionKind",
    "KernelBuilder",
    "LoopRV",
    "Primitive",
    "Rng",
    "SBlockDependenceInfo",
    "SBlockRV",
    "SBlockScope",
    "Schedule",
    "ScheduleDebugMask",
    "ScheduleError",
    "ScheduleState",
    "StmtSRef",
    "TensorizeInfo",
    "Trace",
    "get_tensorize_loop_mapping",
    "others_after",
    "primitive",
    "primitives",
    "suggest_index_map",
    "tile_with_tensor_intrin",
]
