"""Functions of compiled modules: they take NumPy arrays, tensors and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.dlpack import numpy_capsule
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.tensor import numpy_tensor
from tilewright.support.errors import RunError

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class FunctionInfo:
    """A function of a module: its name, its arguments' names, and which of them it writes."""

    name: str
    arg_names: tuple[str, ...] = ()
    written: tuple[bool, ...] = ()


class CompiledFunction:
    """A function of a module, called with numpy arrays, DLPack tensors and scalars, without copies.

    Read-only numpy arrays are accepted for arguments that the function only reads. Wrong arguments
    raise ``TypeError`` or ``ValueError``, which name the argument.
    """

    __slots__ = ("_call", "_exports", "info")

    def __init__(self, call: tvm_ffi.Function, info: FunctionInfo) -> None:
        self._call = call
        self._exports = False
        self.info = info

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        try:
            return self._call(*(self._exported(args) if self._exports else args))
        except BufferError:
            # numpy can't export read-only arrays, nor ml_dtypes; we can, the next time at once.
            self._exports = True
        except TypeError:
            return self._with_bits(args)
        except RuntimeError:
            self.check_exports(args)
            raise
        try:
            return self._call(*self._exported(args))
        except TypeError:
            return self._with_bits(args)

    def _with_bits(self, args: Sequence[Any]) -> Any:
        """Call with uint64 integers passed as bits, or reraise the current exception."""
        wide = [_is_beyond_int64(arg) for arg in args]
        if any(wide):
            bits = [c_void_p(int(arg)) if beyond else arg for arg, beyond in zip(args, wide)]
            try:
                return self._call(*(self._exported(bits) if self._exports else bits))
            except TypeError:
                pass  # no uint64 is expected there: the first error says so in the caller's words
        raise  # called by handlers only

    @property
    def ffi(self) -> tvm_ffi.Function:
        """The bare tvm-ffi function."""
        return self._call

    @property
    def __name__(self) -> str:
        return self.info.name

    def __repr__(self) -> str:
        return f"<compiled function {self.info.name}({', '.join(self.info.arg_names)})>"

    def _named(self, index: int) -> str:
        names = self.info.arg_names
        name = f" {names[index]!r}" if index < len(names) else ""
        return f"{self.info.name}: argument #{index}{name}"

    def check_exports(self, args: Sequence[object]) -> None:
        """Raise for a tensor whose library can't export it (no memory, sparse, lazy)."""
        for index, arg in enumerate(args):
            if not hasattr(arg, "__dlpack__"):
                continue
            try:
                tvm_ffi.from_dlpack(arg)
            except Exception as error:  # any library may have made this tensor
                why = str(error).partition("\n")[0]  # PyTorch's go on with a stack of C++
                raise TypeError(
                    f"{self._named(index)}: expected a Tensor with memory, but this "
                    f"{type(arg).__name__} can't be exported: {why}"
                ) from error

    def _exported(self, args: Sequence[object]) -> Iterator[Any]:
        written = self.info.written
        for index, arg in enumerate(args):
            if not isinstance(arg, np.ndarray):
                yield arg
                continue
            # Without a description any argument may be written.
            writes = written[index] if index < len(written) else True
            if writes and not arg.flags.writeable:
                raise ValueError(
                    f"{self._named(index)}: the function writes to it, but the array is read-only"
                )
            if not arg.dtype.isnative:
                raise TypeError(
                    f"{self._named(index)}: expected native byte order, got dtype {arg.dtype.str}"
                )
            if arg.dtype.kind not in "biufc" or arg.dtype.isbuiltin != 1:  # of ml_dtypes
                try:
                    tensor = numpy_tensor(arg)
                except RunError as error:
                    raise TypeError(f"{self._named(index)}: {error}") from None
                yield tensor
            elif arg.flags.writeable:
                yield arg
            else:
                yield tvm_ffi.from_dlpack(_read_only_capsule(arg))


def _is_beyond_int64(value: object) -> bool:
    """Whether a value is a uint64 beyond the calling convention's int64, passed as bits."""
    return isinstance(value, (int, np.integer)) and 1 << 63 <= int(value) < 1 << 64


def _read_only_capsule(array: np.ndarray[Any, Any]) -> Any:
    try:
        # Since numpy 2.1, and 10 times faster than our own.
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:
        return numpy_capsule(array)
