"""Holding peers to the instructions that a target has: what their libraries are told.

``--target "llvm -mcpu=x86-64-v3"`` races code for AVX2 on a machine that has more, so peers have to
do without it too. ATen, oneDNN (PyTorch's), MKL and OpenBLAS take it from the environment.
``torch.compile`` finds what it has compiled before by the graph, not by the instructions: loops in
steps of sixteen, run with vectors of eight, compute half of the results. So it gets a cache for
each set of instructions.
ONNX Runtime's kernels and OpenVINO's can't be told: they keep what the machine has.
"""

from __future__ import annotations

import getpass
import tempfile
from pathlib import Path

from tilewright.target import Target

#: Peers that use all that the machine has, whatever they are told.
UNLIMITED = ("onnxruntime", "openvino")

# What libraries are told, by the widest instructions that the target has.
_LEVELS: tuple[tuple[str, dict[str, str]], ...] = (
    ("avx512f", {}),
    (
        "avx2",
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
        },
    ),
    (
        "sse4.2",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "OPENBLAS_CORETYPE": "Nehalem",
        },
    ),
)


def limits(target: Target) -> dict[str, str]:
    """Return the environment that holds libraries to a target's instructions."""
    for feature, found in _LEVELS:
        if target.has(feature):
            told = dict(found)
            if feature == "avx2" and target.has("avxvnni"):
                told["ONEDNN_MAX_CPU_ISA"] = "AVX2_VNNI"
            return {**told, "TORCHINDUCTOR_CACHE_DIR": _inductor_cache(feature)}
    raise SystemExit(f"peers can't be held to the instructions of {target}")


def _inductor_cache(feature: str) -> str:
    return str(Path(tempfile.gettempdir()) / f"torchinductor-{getpass.getuser()}-{feature}")


def notes(target: Target, peers: list[str]) -> list[str]:
    """Return a line for each peer that doesn't let itself be held."""
    if target.has(_LEVELS[0][0]):
        return []
    return [
        f"{name} uses all instructions that the machine has" for name in peers if name in UNLIMITED
    ]
