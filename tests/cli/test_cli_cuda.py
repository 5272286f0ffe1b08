"""``tilewright compile`` and ``run`` for GPUs, by a driver without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import Tilewright
from fake_cuda import FakeDriver

MODEL = """
import numpy as np
from tilewright import relax
from tilewright.relax import op

def model():
    x = relax.Var("x", relax.TensorStructInfo((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.softmax(op.add(x, x)))
        builder.emit_func_output(out)
    return builder.get(), (np.ones((4, 8), "float32"),)
"""


def test_compile_and_run(
    tilewright: Tilewright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeDriver
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    done = tilewright("compile", "model.py:model", "-o", "m.so", "--target", "cuda -arch=sm_90a")
    assert done.code == 0 and "wrote m.so" in done.out, done.err
    done = tilewright("run", "m.so", "--repeat", "1")
    assert done.code == 0 and "output 0: float32[4, 8]" in done.out, done.err
    assert fake_cuda.launches
    done = tilewright("run", "model.py:model", "--repeat", "1", "--target", "cuda")
    assert done.code == 0, done.err
