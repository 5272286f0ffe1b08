"""Functions by name, for the whole process: Python's, and those of other tvm-ffi libraries.

Compiled code calls them (``call_packed``), and so do other libraries and languages that share
tvm-ffi. Functions that Python registered here are returned as they are, not wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.runtime.ffi import tvm_ffi
from tilewright.support.errors import RunError, UnknownNameError
from tilewright.support.registry import near_matches

_OURS: dict[str, Callable[..., Any]] = {}


def register_global_func(
    func_name: str | Callable[..., Any],
    f: Callable[..., Any] | None = None,
    override: bool = False,
) -> Any:
    """Register a function under a name, or under its own; also as a decorator.

        @tilewright.register_global_func("my.scale")
        def scale(x, out): ...

    Tensors arrive as ``tilewright.runtime.Tensor``, which NumPy and PyTorch read without a copy.
    They belong to the caller: what is to outlive the call must be copied.

    Raises ``RunError`` if the name is taken and ``override`` isn't set.
    """
    if callable(func_name):
        return register_global_func(func_name.__name__, func_name, override)
    name = func_name

    def register(function: Callable[..., object]) -> Callable[..., Any]:
        if not callable(function):
            raise RunError(f"{name!r} must be a function, got {type(function).__name__}")
        if not override and tvm_ffi.get_global_func(name, allow_missing=True) is not None:
            raise RunError(
                f"there is a global function {name!r} already; override=True replaces it"
            )
        tvm_ffi.register_global_func(name, function, override)
        _OURS[name] = function
        return function

    return register if f is None else register(f)


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """Return a function by name.

    Raises ``UnknownNameError`` (a ``RunError`` and a ``ValueError``) if there is none, unless
    ``allow_missing``: then it returns ``None``.
    """
    if name in _OURS:
        return _OURS[name]
    found = tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None and not allow_missing:
        known = near_matches(name, list(_OURS))
        raise UnknownNameError(f"there is no global function {name!r}; {known}")
    return found


def remove_global_func(name: str) -> None:
    """Forget a function.

    Raises ``RunError`` if there is none.
    """
    get_global_func(name)
    _OURS.pop(name, None)
    tvm_ffi.remove_global_func(name)


def _print_buffer(tensor: Any, is_string: bool, is_scalar: bool) -> int:
    """Print memory, as ``T.print_buffer`` asks for it."""
    values = tensor.numpy()
    if is_string:
        print(values.tobytes().partition(b"\0")[0].decode("utf-8", "replace"))
    else:
        print(values.reshape(-1)[0] if is_scalar else values)
    return 0


register_global_func("tilewright.print_buffer", _print_buffer, override=True)

__all__ = ["get_global_func", "register_global_func", "remove_global_func"]
