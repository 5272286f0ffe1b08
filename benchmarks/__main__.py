"""The quick set: ``python -m benchmarks``."""

from __future__ import annotations

import importlib.util

from benchmarks import core, ops

if __name__ == "__main__":
    core.main([])
    peers = [peer for peer in ops.PEERS if importlib.util.find_spec(peer) is not None]
    ops.main(["--quick", "--peers", ",".join(peers)])
