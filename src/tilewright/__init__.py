"""Tilewright: makes tensor programs fast on the hardware at hand.

The parts, by the field's names: ``te`` and ``topi`` define operators, ``tir`` and ``script`` hold
them as loop nests, ``tir.Schedule`` transforms them, ``dlight`` schedules by rule,
``meta_schedule`` by measured search, ``relax`` holds whole models, ``compile`` makes native code,
``torch`` is the backend of ``torch.compile``. ``tirx``, ``s_tir``, ``sym``, ``transform`` and
``instrument`` are TVM's names for ``tir``, ``arith`` and passes.

Importing this package loads none of them; each is loaded when first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tilewright.support.aliases import install as _install
from tilewright.support.version import __version__ as __version__

if sys.platform != "linux":
    raise ImportError(
        f"Tilewright runs on Linux with glibc (x86-64, AArch64), not on {sys.platform!r}; on macOS "
        "and Windows it runs in a Linux container, on Windows also in WSL 2"
    )

_LIBRARIES = (
    "kernels of vendors' libraries aren't part of this project; register_patterns of relax.backend,"
    " FuseOpsByPattern and RunCodegen call a code generator of your own"
)

_LINKING = (
    'export_library("lib.so") and export_library("lib.tar") link by themselves, for other machines '
    "too; fcompile= takes a function of yours"
)

# Names that packages have in TVM. They are the same modules, below these names, too.
_install(
    {
        "tilewright.instrument": "tilewright.ir.instrument",
        # A folder of which only ``utils`` has anything here.
        "tilewright.contrib": "tilewright.support",
        "tilewright.nd": "tilewright.runtime.ndarray",
        "tilewright.relax.frontend.torch.exported_program_translator": (
            "tilewright.relax.frontend.torch.importer"
        ),
        "tilewright.relax.op": "tilewright.relax.ops",
        "tilewright.s_tir.analysis": "tilewright.tir.analysis",
        "tilewright.s_tir.dlight": "tilewright.dlight",
        "tilewright.meta_schedule.feature_extractor": "tilewright.meta_schedule.feature",
        "tilewright.s_tir.meta_schedule": "tilewright.meta_schedule",
        "tilewright.s_tir.meta_schedule.feature_extractor": "tilewright.meta_schedule.feature",
        "tilewright.s_tir.schedule": "tilewright.tir.schedule",
        "tilewright.s_tir.tensor_intrin": "tilewright.tir.intrin",
        "tilewright.s_tir.transform": "tilewright.tir.transform",
        "tilewright.script.ir_builder.relax": "tilewright.relax.script.ir_builder",
        "tilewright.script.ir_builder.tir": "tilewright.tir.script.ir_builder",
        "tilewright.script.ir_builder.tirx": "tilewright.tir.script.ir_builder",
        "tilewright.script.relax": "tilewright.relax.script",
        "tilewright.script.tir": "tilewright.tir.script",
        "tilewright.script.tirx": "tilewright.tir.script",
        "tilewright.sym": "tilewright.arith",
        "tilewright.tirx": "tilewright.tir",
        "tilewright.transform": "tilewright.ir.transform",
    },
    {
        "tilewright.contrib.cc": _LINKING,
        "tilewright.contrib.tar": _LINKING,
        "tilewright.relax.backend.contrib": _LIBRARIES,
        "tilewright.relax.backend.cuda": _LIBRARIES,
        "tilewright.relax.frontend.tflite": "convert the model to ONNX, and use frontend.onnx",
        "tilewright.rpc": (
            "a farm of machines tunes on others, `tilewright farm` and meta_schedule.farm; a "
            "library that is compiled for another machine is copied there"
        ),
    },
)

if TYPE_CHECKING:
    from tilewright import (
        arith,
        dlight,
        driver,
        ir,
        kernels,
        meta_schedule,
        relax,
        runtime,
        s_tir,
        script,
        target,
        te,
        tir,
        topi,
        torch,
    )
    from tilewright import arith as sym
    from tilewright import tir as tirx
    from tilewright.compiling import compile
    from tilewright.driver import lower
    from tilewright.driver.pipelines import build
    from tilewright.ir import IRModule, instrument, transform
    from tilewright.runtime import (
        DataType,
        DataTypeCode,
        Object,
        cpu,
        cuda,
        device,
        device_from_target,
        get_global_func,
        load_module,
        register_func,
        register_global_func,
    )
    from tilewright.runtime import ndarray as nd
    from tilewright.support.errors import TilewrightError
    from tilewright.target import Target

# Where each public name lives. (``torch`` is not in ``__all__``: a star import would hide PyTorch.)
_PACKAGES = (
    "arith", "dlight", "driver", "instrument", "ir", "kernels", "meta_schedule", "nd", "relax",
    "runtime", "s_tir", "script", "sym", "target", "te", "tir", "tirx", "topi", "torch",
    "transform",
)  # fmt: skip
_NAMES = {
    "DataType": "tilewright.runtime",
    "DataTypeCode": "tilewright.runtime",
    "IRModule": "tilewright.ir",
    "Object": "tilewright.runtime",
    "Target": "tilewright.target",
    "TilewrightError": "tilewright.support.errors",
    "build": "tilewright.driver.pipelines",
    "compile": "tilewright.compiling",
    "cpu": "tilewright.runtime",
    "cuda": "tilewright.runtime",
    "device": "tilewright.runtime",
    "device_from_target": "tilewright.runtime",
    "get_global_func": "tilewright.runtime",
    "load_module": "tilewright.runtime",
    "lower": "tilewright.driver",
    "register_func": "tilewright.runtime",
    "register_global_func": "tilewright.runtime",
}

__all__ = [
    "DataType", "DataTypeCode", "IRModule", "Object", "Target", "TilewrightError", "__version__",
    "arith", "build", "compile", "cpu", "cuda", "device", "device_from_target", "dlight", "driver",
    "get_global_func", "instrument", "ir", "kernels", "load_module", "lower", "meta_schedule", "nd",
    "register_func", "register_global_func", "relax", "runtime", "s_tir", "script", "sym", "target",
    "te", "tir", "tirx", "topi", "transform",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"tilewright.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
