"""Analyses of TensorIR: nothing here changes a program."""

from __future__ import annotations

from tilewright.tir.analysis.dependency import (
    RAW,
    WAR,
    WAW,
    Dependency,
    DependencyGraph,
    block_dependencies,
)
from tilewright.tir.analysis.regions import block_access_regions, infer_regions
