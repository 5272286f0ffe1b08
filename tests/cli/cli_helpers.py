"""What the tests of the command line share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINY = """
import numpy as np
from tilewright.relax.frontend import nn


class Net(nn.Module):
    def __init__(self):
        self.first = nn.Linear(16, 8)
        self.relu = nn.ReLU()
        self.second = nn.Linear(8, 4)

    def forward(self, picture):
        return self.second(self.relu(self.first(picture)))


def make():
    rng = np.random.default_rng(0)
    net = Net()
    for parameter in net.parameters():
        parameter.data = rng.standard_normal(parameter.shape).astype("float32")
    print("noise of the model")
    return net, rng.standard_normal((2, 16)).astype("float32")


def no_data():
    return Net(), np.zeros((2, 16), "float32")


def too_many():
    return make()[0], [np.zeros((2, 16), "float32")] * 2


def wrong_shape():
    return make()[0], np.zeros((2, 17), "float32")


def raises():
    raise ValueError("boom")


def no_tuple():
    return 3


def takes_arguments(x):
    return x


def a_string():
    return "model", 3


def needs_package():
    import there_is_no_such_package


def empty():
    from tilewright.ir import IRModule
    return IRModule({}), []


def tensor_functions():
    from tilewright import te
    from tilewright.ir import IRModule
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: x[i] + 1.0, name="plus_one")
    return IRModule({"plus": te.create_prim_func([x, y])}), []


not_callable = 1
"""


@dataclass
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Tilewright = Callable[..., Done]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def outside(*args: str | Path, cwd: Path | None = None, timeout: float = 120) -> Done:
    """Run a command as a process of its own."""
    command = [sys.executable, "-m", "tilewright", *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=environment()
    )
    return Done(done.returncode, done.stdout, done.stderr)
