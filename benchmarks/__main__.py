"""The quick set: ``python -m benchmarks``."""

from __future__ import annotations

from benchmarks import core, ops

if __name__ == "__main__":
    core.main([])
    ops.main(["--quick"])
