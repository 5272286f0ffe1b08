"""Tensor intrinsics: pairs of a *description* and an *implementation*, by name.

Both are functions with the same parameters. The description says in loops what happens: one
loop nest around one block. The implementation does it: intrinsic calls, vector code, an extern. A
schedule's ``tensorize`` finds the description in a program and puts the implementation there. That
is right only if both compute the same, which the reference interpreter checks on random data when
an intrinsic is first used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewright.ir import Expr, as_int, dtypes, pre_order
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.support.registry import Registry, near_matches
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import For

_TRIALS, _MANY = 3, 50_000


class TensorIntrin:
    """One intrinsic; ``checked`` says whether its two halves have been compared yet."""

    _registry: Registry[TensorIntrin] = Registry("tensor intrinsic", ScheduleError)
    _makers: ClassVar[dict[str, tuple[Callable[[], tuple[PrimFunc, PrimFunc]], bool]]] = {}
    _lock = threading.RLock()

    def __init__(
        self, desc: PrimFunc, impl: PrimFunc, *, name: str = "unnamed", check: bool = True
    ) -> None:
        self.name = name
        self.desc = desc
        self.impl = impl
        self.checked = not check
        if len(desc.buffers) != len(desc.params) or len(impl.buffers) != len(impl.params):
            raise VerifyError(f"tensor intrinsic {name!r} may have buffers as parameters only")
        if len(desc.buffers) != len(impl.buffers):
            raise VerifyError(
                f"tensor intrinsic {name!r}: the description has {len(desc.buffers)} parameters, "
                f"the implementation {len(impl.buffers)}"
            )
        for a, b in zip(desc.buffers, impl.buffers):
            shape_a, shape_b = list(map(as_int, a.shape)), list(map(as_int, b.shape))
            if a.dtype != b.dtype or shape_a != shape_b or None in shape_a:
                raise VerifyError(
                    f"tensor intrinsic {name!r}: {a!r} and {b!r} must have the same dtype and the "
                    "same constant shape"
                )

    @staticmethod
    def register(
        name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False, *, check: bool = True
    ) -> TensorIntrin:
        """Add an intrinsic; ``override`` lets it take the place of one with the same name.

        ``check=False`` is for implementations that can't be interpreted: nothing then shows that
        they do what the description says.
        """
        made = TensorIntrin(desc, impl, name=name, check=check)
        with TensorIntrin._lock:
            if override:
                TensorIntrin._registry._entries.pop(name, None)
                TensorIntrin._makers.pop(name, None)
            return TensorIntrin._registry.register(name, made)

    @staticmethod
    def register_later(
        name: str, make: Callable[[], tuple[PrimFunc, PrimFunc]], *, check: bool = True
    ) -> None:
        """Add an intrinsic whose description and implementation are made when it is first used.

        ``check=False`` is for families of which tests compare a member of each form, because a
        comparison of the large ones takes long.
        """
        with TensorIntrin._lock:
            if name in TensorIntrin._registry or name in TensorIntrin._makers:
                raise ScheduleError(f"tensor intrinsic {name!r} is registered already")
            TensorIntrin._makers[name] = make, check

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin:
        """Return an intrinsic; an unknown name answers with near matches.

        With ``allow_missing`` an unknown name gives ``None`` instead.
        """
        with TensorIntrin._lock:
            if name in TensorIntrin._makers:
                make, check = TensorIntrin._makers[name]
                made = TensorIntrin(*make(), name=name, check=check)
                TensorIntrin._registry._entries[name] = made
                del TensorIntrin._makers[name]
        if name not in TensorIntrin._registry:
            TensorIntrin._registry._load_plugins()
        if name not in TensorIntrin._registry:
            if allow_missing:
                return None  # type: ignore[return-value]
            near = near_matches(name, TensorIntrin.names())
            raise ScheduleError(f"unknown tensor intrinsic {name!r}; {near}")
        return TensorIntrin._registry.get(name)

    @staticmethod
    def names(*, later: bool = True) -> list[str]:
        """Names of all registered intrinsics, those that were used first.

        Without ``later`` those are left out that would be made only now.
        """
        made = [name for name, _ in TensorIntrin._registry.items()]
        return [*made, *TensorIntrin._makers] if later else made

    def verify(self, seed: int = 0) -> None:
        """Run both halves on the same random data; raise ``VerifyError`` if they differ.

        That happens once; a verified intrinsic is not run again.
        """
        if self.checked:
            return
        for number in range(_TRIALS if _iterations(self.desc) < _MANY else 1):
            self._compare(np.random.default_rng(seed + number))
        with TensorIntrin._lock:
            self.checked = True

    def _compare(self, rng: np.random.Generator) -> None:
        inputs = [_random(rng, buffer.shape, buffer.dtype) for buffer in self.desc.buffers]
        expected = [array.copy() for array in inputs]
        found = [array.copy() for array in inputs]
        run(self.desc, *expected)
        run(self.impl, *found)
        for buffer, a, b in zip(self.desc.buffers, expected, found):
            tolerance = 1e-5 if dtypes.bits_of(buffer.dtype) > 16 else 2e-2
            if not dtypes.is_float(buffer.dtype):
                tolerance = 0.0
            x, y = a.astype("float64"), b.astype("float64")
            if not np.allclose(x, y, rtol=tolerance, atol=tolerance):
                raise VerifyError(
                    f"tensor intrinsic {self.name!r}: description and implementation differ in "
                    f"{buffer.name!r} by up to {np.max(np.abs(x - y)):.3g}"
                )


def _iterations(func: PrimFunc) -> int:
    """How often the innermost statement of a description runs."""
    return prod(as_int(item.extent) or 1 for item in pre_order(func.body) if type(item) is For)


def _random(rng: np.random.Generator, shape: tuple[Expr, ...], dtype: str) -> np.ndarray:
    extents: list[Any] = [as_int(extent) for extent in shape]
    values: Any
    if dtypes.is_float(dtype):
        values = rng.uniform(-1, 1, extents)
    elif dtypes.kind_of(dtype) == "int":
        values = rng.integers(-8, 8, extents)
    else:
        values = rng.integers(0, 2 if dtypes.is_bool(dtype) else 16, extents)
    if hasattr(ml_dtypes, dtype):
        return np.asarray(values).astype(getattr(ml_dtypes, dtype))
    return np.asarray(values).astype(dtype)
