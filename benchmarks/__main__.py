"""The quick set: ``python -m benchmarks``; the modules beside this one are the others."""

from __future__ import annotations

import argparse

from benchmarks import core, ops

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__).parse_args()
    core.main([])
    ops.main(["--quick"])
