"""Kernels written by hand for known programs, by name.

Some programs have a better form than loop transformations can reach: attention as an online
softmax. A builder inspects a function and, if the kernel is for this program, returns the better
form, again made of blocks. The primitive ``use_kernel`` substitutes it, so traces record it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.support.errors import ScheduleError
from tilewright.support.registry import Registry
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Block

KernelBuilder = Callable[[PrimFunc, Mapping[str, Any]], "Block | str"]
"""From a function and options to its new root block, over the same parameters, or why not."""

KERNELS: Registry[KernelBuilder] = Registry("kernel", ScheduleError)
"""All kernels by name."""
