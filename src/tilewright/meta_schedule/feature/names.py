"""The features of a store: their names, and which are logarithms."""

from __future__ import annotations

from tilewright.meta_schedule.feature.program import FLOP_KINDS

MAX_ACCESSES = 5
INTENSITY_POINTS = 10
LINE = 64.0

LOOP_NAMES = (
    "iterations outer_reduction vector_length vector_use lanes parallel_jobs parallel_balance "
    "unroll_steps unrolled loops innermost_extent accumulates_locally tile_vectors "
    "register_pressure overshoot compute_cycles traffic_l1 traffic_l2 traffic_l3 expected_cycles"
).split()
ACCESS_NAMES = (
    "reads writes local bytes unique_bytes lines unique_lines stride contiguous broadcast strided "
    "reuse_count reuse_iterations reuse_bytes tile_elements rows_alive row_collisions traffic_l1 "
    "traffic_l2 bytes_per_reuse"
).split()
_PLAIN = frozenset(
    (
        "vector_use lanes parallel_balance accumulates_locally register_pressure overshoot "
        "reads writes local contiguous broadcast strided"
    ).split()
)
_INTENSITIES = [f"intensity{n}" for n in range(INTENSITY_POINTS)]
_KINDS = (
    *((f"flops_{kind}", "flops") for kind in FLOP_KINDS),
    *((name, name) for name in LOOP_NAMES),
    *((f"access{n}_{name}", name) for n in range(MAX_ACCESSES) for name in ACCESS_NAMES),
    *((name, "vector_use") for name in _INTENSITIES),  # logarithms already, and interpolated
    *((name, name) for name in ("allocated_bytes", "outer_iterations", "total_footprint")),
)
FEATURE_NAMES = tuple(name for name, _ in _KINDS)
"""Names of the entries of a store's feature vector; all but ratios and flags are log2(1 + x)."""

LOGARITHMS = tuple(int(kind not in _PLAIN) for _, kind in _KINDS)
"""Which features are ``log2(1 + x)`` of what is computed for them."""
