"""TVM's name for blocks, schedules, and what works on them; all of it is in other packages.

What stands here has a name of its own in TVM, such as ``SBlock`` for ``tir.Block``; whatever else
``tir`` has is found here, too.
"""

from __future__ import annotations

from typing import Any

from tilewright import tir
from tilewright.support.later import imported_later

_LATER = {
    "SBijectiveLayout": "tilewright.s_tir.data_layout",
    "SBlock": "tilewright.tir:Block",
    "SBlockRealize": "tilewright.tir:BlockRealize",
    "SBlockDependenceInfo": "tilewright.tir.schedule",
    "SBlockScope": "tilewright.tir.schedule",
    "SLayout": "tilewright.s_tir.data_layout",
    "ScheduleError": "tilewright.support.errors",
    "ScheduleState": "tilewright.tir.schedule",
    "StmtSRef": "tilewright.tir.schedule",
    "Trace": "tilewright.tir.schedule",
    "analysis": "tilewright.tir.analysis",
    "dlight": "tilewright.dlight",
    "meta_schedule": "tilewright.meta_schedule",
    "sbijective_layout": "tilewright.s_tir.data_layout",
    "schedule": "tilewright.tir.schedule",
    "slayout": "tilewright.s_tir.data_layout",
    "tensor_intrin": "tilewright.s_tir.tensor_intrin",
    "transform": "tilewright.tir.transform",
}

_find = imported_later(__name__, _LATER)


def __getattr__(name: str) -> Any:
    return _find(name) if name in _LATER else getattr(tir, name)


def __dir__() -> list[str]:
    return sorted({*dir(tir), *_LATER})
