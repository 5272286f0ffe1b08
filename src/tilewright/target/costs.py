"""Costs on a CPU: every number that rules, kernels and the cost model use in estimates.

Each row has the number's value, unit, meaning and source. Rows that can be measured are
``measured``: ``tilewright doctor --measure`` writes them to the user's cache folder, and targets of
that machine use them; other targets use the values below, of a Zen 5. A rule's decision by these
numbers is a choice that a search may override.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path

from tilewright.support.errors import TargetError
from tilewright.support.settings import setting

logger = logging.getLogger("tilewright.target")

_BY_HAND, _ROUGHLY = "tuned by hand on a Zen 5", "roughly what current x86 cores do"
_ON_INTEL = "tiles of 4 x 16 and 6 x 16 compared with AVX2 on an Emerald Rapids"
_ON_ZEN_4 = "products of 64 to 3136 rows on a Zen 4"
_VERSION = 1
_LARGEST_FILE = 1 << 20


def _measured(value: float, unit: str, meaning: str) -> float:
    """Declare a number that can be measured on the machine at hand."""
    metadata = {"unit": unit, "meaning": meaning, "measured": True, "source": _ROUGHLY}
    return field(default=value, metadata=metadata)


def _estimated(value: float, unit: str, meaning: str, source: str) -> float:
    """Declare a number found by comparing schedules, or known from CPU design."""
    metadata = {"unit": unit, "meaning": meaning, "measured": False, "source": source}
    return field(default=value, metadata=metadata)


@dataclass(frozen=True)
class Costs:
    """The numbers, by name. ``describe`` lists them with their meanings."""

    # ---- the machine
    clock: float = _measured(4e9, "cycles per second", "clock of a core that is busy")
    multiply_adds: float = _measured(2, "vectors per cycle", "float32 multiply-adds at once")
    multiply_add_latency: float = _measured(
        4, "cycles", "until a multiply-add's result can be used by another one"
    )
    bf16_dots: float = _measured(
        2, "vectors per cycle", "products of bfloat16 pairs at once, by instructions for them"
    )
    loads: float = _measured(2, "vectors per cycle", "loads at once from the first-level cache")
    l2_bandwidth: float = _measured(32, "bytes per cycle", "read from the second-level cache")
    l3_bandwidth: float = _measured(12, "bytes per cycle", "read from the last cache")
    memory_bandwidth: float = _measured(6, "bytes per cycle", "read from memory by one core")
    launch: float = _measured(
        3000, "cycles", "a parallel loop over nothing takes, of threads that wait for it"
    )
    parallel_work: float = _measured(
        1 << 14, "operations", "of a parallel loop are worth waking threads: 5.5 a cycle of launch"
    )

    # ---- vectors
    vector_division: float = _estimated(8, "cycles", "a division of vectors", _ROUGHLY)
    vector_function: float = _estimated(24, "cycles", "an elementary function", _ROUGHLY)
    gather: float = _estimated(2, "instructions per lane", "moved one by one", "LLVM's code")
    streamed_size: float = _estimated(
        4, "second-level caches", "from which transposed results go past the caches", _BY_HAND
    )

    # ---- a step of a register tile
    scalar_wait: float = _estimated(
        0.03, "cycles", "beside the arithmetic, for each scalar of a step", _BY_HAND
    )
    far_scalar_wait: float = _estimated(
        0.25,
        "cycles",
        "beside that, for each scalar from beyond the second-level cache",
        "tuned by hand on an Emerald Rapids",
    )
    vector_wait: float = _estimated(
        0.15, "cycles", "the same for each vector, from the second-level cache", _BY_HAND
    )
    slab_wait: float = _estimated(
        0.5,
        "cycles",
        "beside that, for each vector of pixels of many channels",
        "measured on an Emerald Rapids",
    )
    panel_vector: float = _estimated(
        3, "cycles", "for a vector of a panel, from there, in a low tile", _BY_HAND
    )
    chain_wait: float = _estimated(
        0.6, "cycles", "beside a multiply-add's latency, where all sums wait for it", _ON_INTEL
    )
    step_wait: float = _estimated(
        0.5, "cycles", "around a step that is a loop of its own (Winograd's products)", _BY_HAND
    )

    # ---- what is left of a tile's rate
    cut_rows: float = _estimated(
        0.98, "of the rate", "with rows left over, whose code is apart", _BY_HAND
    )
    cut_columns: float = _estimated(
        0.88, "of the rate", "with columns left over, in several narrow vectors", _BY_HAND
    )
    masked_columns: float = _estimated(
        0.98, "of the rate", "with columns left over, in a vector under a mask", _BY_HAND
    )
    masked_tile: float = _estimated(
        0.97, "of the rate", "where all of a tile is loaded and stored under masks", _BY_HAND
    )
    one_by_one: float = _estimated(
        0.35, "of the rate", "with neighbours a few elements apart, loaded one by one", _BY_HAND
    )
    scattered: float = _estimated(
        0.8, "of the rate", "with steps far apart in memory: few cache sets, many pages", _BY_HAND
    )
    overlapped: float = _estimated(
        0.98, "of the rate", "with the last tile over the one before", "measured on a Zen 3"
    )
    split_lines: float = _estimated(
        0.85,
        "of the rate",
        "with rows in place whose cache lines the first-level cache doesn't hold",
        "measured on a Zen 3",
    )
    one_pass: float = _estimated(
        1.015, "times the rate", "of a tile as wide as the result: others pass by once", _BY_HAND
    )

    # ---- operands that are copied in the call; results that are transposed
    copy_uses: float = _estimated(
        12, "uses of an element", "that copying it costs, side by side", _BY_HAND
    )
    transpose_uses: float = _estimated(40, "uses of an element", "the same across", _BY_HAND)
    scatter_uses: float = _estimated(
        140, "uses of an element", "the same across, one by one, since it is padded", _BY_HAND
    )
    gather_uses: float = _estimated(
        40, "uses of an element", "the same of neighbours a few elements apart", _BY_HAND
    )
    word_uses: float = _estimated(
        24, "uses of an element", "that laying words out for dot instructions costs", _BY_HAND
    )
    promotion_uses: float = _estimated(
        32, "uses of an element", "from which a 16-bit float is converted in a copy", _BY_HAND
    )
    converted_tiles: float = _estimated(
        4,
        "tiles of rows",
        "from which a panel of 16-bit floats is converted beforehand",
        "measured on an Emerald Rapids",
    )
    pair_uses: float = _estimated(
        160, "uses of an element", "from which bytes from afar become pairs in a copy", _BY_HAND
    )
    transpose_steps: float = _estimated(
        16, "steps of a tile", "for each element that is written through a buffer", _BY_HAND
    )
    dot_transpose_steps: float = _estimated(
        8, "steps of a tile", "of dot instructions, the same", _BY_HAND
    )
    dot_shuffle_steps: float = _estimated(
        5, "steps of a tile", "the same by shuffles, of rows in groups of four", _BY_HAND
    )

    # ---- caches
    far_panel_share: float = _estimated(
        0.38,
        "second-level caches",
        "that a panel takes up while an operand from beyond passes by",
        "tuned by hand on an Emerald Rapids",
    )
    panel_share: float = _estimated(
        0.6, "of the second-level cache", "for a panel, which rows of tiles read again", _BY_HAND
    )
    columns_share: float = _estimated(
        0.5, "of the second-level cache", "for what passes by each tile's rows", _BY_HAND
    )
    image_share: float = _estimated(
        1 / 8, "of the second-level cache", "for an image whose remainders go one by one", _BY_HAND
    )
    remainder_share: float = _estimated(
        1 / 4, "of the second-level cache", "from which panels of remainders go so", _BY_HAND
    )
    group_share: float = _estimated(
        0.5, "of the second-level cache", "for the input of a group of rows", _BY_HAND
    )
    window_share: float = _estimated(
        0.1, "of the second-level cache", "for the rows that windows slide over", _BY_HAND
    )
    fetched_share: float = _estimated(
        1 / 16, "of the second-level cache", "from which filters are fetched ahead", _BY_HAND
    )
    near_rows_share: float = _estimated(
        0.75,
        "of the second-level cache",
        "for rows that pass by each panel, and a panel",
        "measured on an Emerald Rapids",
    )
    near_block_share: float = _estimated(
        0.25,
        "of the second-level cache",
        "for a block of more rows than those",
        "measured on an Emerald Rapids",
    )
    constants_share: float = _estimated(
        1 / 2,
        "of the last cache",
        "for the constants of a graph, from which those read once are fetched ahead",
        "measured on a Zen 4: fetched ahead from nearer, they come a quarter slower",
    )
    rows_share: float = _estimated(
        1 / 4, "of the last cache", "for rows that pass by each panel", _BY_HAND
    )
    block_share: float = _estimated(
        1 / 16, "of the last cache", "for a block of more rows than those", _BY_HAND
    )

    # ---- what is fetched ahead: beyond the ends of pages, where processors stop by themselves
    panels_ahead: float = _estimated(16384, "bytes", "of panels that pass by once", _BY_HAND)
    rows_ahead: float = _estimated(8192, "bytes", "of rows from memory", _BY_HAND)
    weights_ahead: float = _estimated(8192, "bytes", "of weights in groups", _BY_HAND)

    # ---- algorithms and layouts of convolutions
    weights_bandwidth: float = _estimated(
        8, "bytes per cycle", "of filters that are read once", _BY_HAND
    )
    winograd_gain: float = _estimated(
        1.1, "times", "as fast Winograd's way must look, as estimates err", _BY_HAND
    )
    strassen_gain: float = _estimated(
        1.05, "times", "as fast Strassen's products must look, as estimates err", _ON_ZEN_4
    )
    layout_change: float = _estimated(
        0.75, "cycles per element", "between channels first and last", _BY_HAND
    )
    block_change: float = _estimated(
        1, "vectors loaded per element", "between channels first and in blocks", _BY_HAND
    )
    window_gain: float = _estimated(
        0.3, "vectors loaded per element", "that blocks of channels save under windows", _BY_HAND
    )
    point_gain: float = _estimated(
        0.06, "vectors loaded per element", "that they save in 1 x 1 convolutions", _BY_HAND
    )


def describe(costs: Costs, here: Collection[str] = ()) -> list[dict[str, object]]:
    """Return name, value, unit, meaning and source of each number.

    ``here`` are the names of those that were measured on this machine.
    """
    return [
        {
            "name": item.name,
            "value": getattr(costs, item.name),
            "unit": item.metadata["unit"],
            "meaning": item.metadata["meaning"],
            "source": "measured here" if item.name in here else item.metadata["source"],
        }
        for item in fields(Costs)
    ]


#: What can be measured.
MEASURED = tuple(item.name for item in fields(Costs) if item.metadata["measured"])


def costs_of(kind: str, cpu: str, vector_bits: int = 128, here: bool = False) -> Costs:
    """Return the numbers of a kind of target, for a CPU, by its name, with vectors of so many bits.

    If it is this machine's, values measured ``here`` replace the general ones.

    Raises ``TargetError`` for a kind without costs.
    """
    if kind not in TABLES:
        raise TargetError(
            f"there are no costs for target {kind!r}; there are for {', '.join(TABLES)}"
        )
    costs = _known_of(kind, cpu, vector_bits == 512 and cpu in _IN_HALVES)
    return _with_measured(costs, cpu, setting("cache_dir")) if here else costs


@lru_cache(maxsize=64)
def _known_of(kind: str, cpu: str, in_halves: bool) -> Costs:
    return replace(TABLES[kind], **_CPUS.get(cpu, {}), **(_HALVES if in_halves else {}))


#: The table of each kind of target.
TABLES = {"llvm": Costs(), "c": Costs()}

# CPUs that have matrix units for bfloat16, or none, and dot products for them at half a
# multiply-add's rate (measured on an Emerald Rapids).
_SLOW_DOTS = ("cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d")
# Zen cores with AVX2 wait less for their last cache (measured on a Zen 3).
_ZEN = ("znver1", "znver2", "znver3")
_CPUS: dict[str, dict[str, float]] = {
    "znver4": {"clock": 3.7e9},
    **{name: {"bf16_dots": 0.5} for name in _SLOW_DOTS},
    **{name: {"far_scalar_wait": 0.08} for name in _ZEN},
}
# CPUs that run vectors of 512 bits in two halves (measured on a Zen 4).
_IN_HALVES = ("znver4",)
_HALVES: dict[str, float] = {"multiply_adds": 1, "bf16_dots": 1, "loads": 1}


@lru_cache(maxsize=16)
def _with_measured(costs: Costs, cpu: str, folder: Path) -> Costs:
    return replace(costs, **measured(cpu, folder))


def _path(folder: Path) -> Path:
    return folder / "costs.json"


def measured(cpu: str, folder: Path | None = None) -> dict[str, float]:
    """Return the measured costs of a CPU, by its name; empty if there are none.

    A file that ``save_measured`` can't have written is ignored, with a warning.
    """
    path = _path(folder or setting("cache_dir"))
    try:
        return _checked(_read(path).get(cpu, {}))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning(
            "%s is not used: %s; `tilewright doctor --measure` makes it anew", path, error
        )
        return {}


def save_measured(cpu: str, values: Mapping[str, float]) -> Path:
    """Write the measured costs of a CPU, replacing earlier ones; return the file."""
    known = _checked(dict(values))
    path = _path(setting("cache_dir"))
    try:
        cpus = _read(path)
    except (OSError, ValueError):
        cpus = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": _VERSION, "cpus": {**cpus, cpu: known}}, indent=1)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
    os.replace(temporary, path)
    _with_measured.cache_clear()
    return path


def _read(path: Path) -> dict[str, object]:
    with path.open() as file:
        text = file.read(_LARGEST_FILE)
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise ValueError(f"it is no file of costs of version {_VERSION}")
    cpus = data.get("cpus")
    if not isinstance(cpus, dict):
        raise ValueError("its CPUs are no table")
    return cpus


def _checked(values: object) -> dict[str, float]:
    """Return a table's numbers by name, if it is valid."""
    if not isinstance(values, dict):
        raise ValueError("its costs are no table")
    for name, value in values.items():
        if name not in MEASURED:
            raise ValueError(f"{name!r} is nothing that is measured")
        if type(value) not in (int, float) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value!r}, which is no positive number")
    return values
