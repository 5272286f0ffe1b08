"""A refused call costs next to nothing, the first one too."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import numpy as np
from tilewright import driver, te

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

x = te.placeholder((4,), name="x")
func = driver.compile(te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1, name="y")]))
y = np.zeros(4, "float32")
func["main"](y, y.copy())
before = resident()
try:
    func["main"](np.zeros(5, "float32"), y)
except ValueError as error:
    print((resident() - before) >> 20, error)
"""


def test_the_first_error_reads_no_debug_information() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    grown, _, message = said.stdout.strip().partition(" ")
    assert message == "main: argument #0 'x': expected shape (4,), got (5,)", said.stderr
    assert int(grown) < 8
