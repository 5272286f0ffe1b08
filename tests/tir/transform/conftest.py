"""Tests of lowering passes also use the random schedules of the tests of primitives."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "schedule"))
