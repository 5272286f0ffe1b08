"""Exported libraries that a disk, a network or a kill has damaged.

A damaged library is refused, or computes what it did before it was damaged: cut off, with flipped
bits, with parts of itself or of another elsewhere. So are compiled graphs, whose signatures lie in
a file of their own, and packages of both.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tilewright import driver, relax, te, topi
from tilewright.relax.frontend import nn
from tilewright.runtime import load_module
from tilewright.support.errors import BuildError
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits
from tilewright.testing.hostile.kind import folder as own_folder
from tilewright.testing.hostile.mutate import damaged_bytes
from tilewright.tir.schedule import Schedule

_LIBRARY, _GRAPH = "kernel.so", "graph.so"
_SIGNATURES = f"{_GRAPH}.json"
_PACKED, _PACKED_GRAPH = "kernel.tar", "graph.tar"
_ROWS, _COLUMNS = 24, 16


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.linear = nn.Linear(_COLUMNS, 8)

    def forward(self, x: nn.Tensor) -> Any:
        return self.linear(x)


def _input() -> np.ndarray:
    return np.random.default_rng(0).random((_ROWS, _COLUMNS), dtype=np.float32)


@lru_cache(maxsize=1)
def _good() -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of a parallel kernel and of a graph with constants, and what each computes."""
    x = te.placeholder((_ROWS, _COLUMNS), name="x")
    sch = Schedule(te.create_prim_func([x, topi.exp(x)]))
    block = sch.get_child_blocks(sch.get_block("root"))[0]
    sch.parallel(sch.get_loops(block)[0])
    module = driver.compile(sch.mod)
    mod, params = _Layer().export({"forward": {"x": nn.spec.Tensor((_ROWS, _COLUMNS))}})
    rng = np.random.default_rng(1)
    bound = {name: rng.random(p.shape, dtype=np.float32) for name, p in params}
    graph = relax.build(relax.transform.BindParams("forward", bound)(mod))
    with tempfile.TemporaryDirectory() as folder:
        for built, names in ((module, (_LIBRARY, _PACKED)), (graph, (_GRAPH, _PACKED_GRAPH))):
            for name in names:
                built.export_library(Path(folder, name))
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    out = np.zeros((_ROWS, _COLUMNS), np.float32)
    module["main"](_input(), out)
    result = np.array(graph["forward"](_input()))
    return files, {_LIBRARY: out, _PACKED: out, _GRAPH: result, _PACKED_GRAPH: result}


@dataclass(frozen=True)
class Files:
    """Files by name; ``library`` is the one to load, ``expected`` what it gave before."""

    library: str
    content: dict[str, bytes]
    expected: Any
    damaged: bool


def make(rng: Random) -> Case:
    """Damage one file of a library."""
    files, results = _good()
    name = rng.choice(tuple(files))
    label = rng.choice(tuple(_WAYS)) if rng.random() < 0.97 else "none"
    data = _WAYS[label](rng, files[name]) if label != "none" else files[name]
    library = _GRAPH if name == _SIGNATURES else name
    return Case(
        f"{label} of {name}",
        Files(library, {**files, name: data}, results[library], data != files[name]),
    )


def _flipped(rng: Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _moved(rng: Random, data: bytes) -> bytes:
    """Put a part elsewhere, as a page of a file that came back wrong."""
    size = rng.choice((16, 512, 4096))
    source, place = rng.randrange(len(data)), rng.randrange(len(data))
    part = data[source : source + size]
    return data[:place] + part + data[place + len(part) :]


def _from_another(rng: Random, data: bytes) -> bytes:
    other = rng.choice([item for item in _good()[0].values() if item != data])
    place = rng.randrange(len(data))
    return data[:place] + other[place:]


def _zeroed(rng: Random, data: bytes) -> bytes:
    place, size = rng.randrange(len(data)), rng.choice((1, 64, 4096))
    part = bytes(len(data[place : place + size]))
    return data[:place] + part + data[place + len(part) :]


_WAYS = {
    "flips": _flipped,
    "end": lambda rng, data: data[: rng.randrange(len(data))],
    "growth": lambda rng, data: data + rng.randbytes(rng.choice((1, 48, 4096))),
    "parts": _moved,
    "mixture": _from_another,
    "zeros": _zeroed,
    "bytes": damaged_bytes,
}


def check(files: Files) -> str:
    """Load the library; run it if it can be loaded."""
    for name, data in files.content.items():
        (own_folder() / name).write_bytes(data)
    path = own_folder() / files.library
    try:
        if files.library in (_GRAPH, _PACKED_GRAPH):
            found = np.array(relax.load_executable(path)["forward"](_input()))
        else:
            found = np.zeros((_ROWS, _COLUMNS), np.float32)
            load_module(path)["main"](_input(), found)
    except BuildError as error:
        if not files.damaged:
            raise Fault(f"a library without damage is refused: {error}") from None
        return "refused"
    if not np.array_equal(found, files.expected):
        raise Fault("a damaged library computes something else")
    return "right although damaged" if files.damaged else "right"


# Code is mapped and run here, and threads get their stacks: nothing of that is a fault.
KIND = Kind(make, check, Limits(seconds=20.0, memory=4 << 30, watch=False), prepare=lambda: None)
