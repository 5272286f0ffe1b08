"""The reference interpreter: what a TensorIR program means.

It is the oracle of the tests and of the tuner. ``emit`` translates a function to Python
(loops over flat memory, one statement per statement); ``run`` calls it on NumPy arrays. Threads
that meet at barriers or in warps run in lock step (``threads``), and can be watched for races
(``races``) and for how they use memory (``traffic``). Nothing of lowering or code generation takes
part.
"""

from __future__ import annotations

from tilewright.tir.interpreter.emit import python_source
from tilewright.tir.interpreter.run import compile_function, run, simulate
from tilewright.tir.interpreter.traffic import AccessReport, MemoryReport

__all__ = ["AccessReport", "MemoryReport", "compile_function", "python_source", "run", "simulate"]
