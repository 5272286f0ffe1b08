"""``BasePyModule``: functions of Python, of loops and of graphs that call each other.

    @R.py_module
    class Model(BasePyModule):
        @T.prim_func
        def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")): ...

        @R.function
        def main(x: R.Tensor((4,), "float32")): ...

        @I.pyfunc
        def forward(self, x):
            y = self.call_tir(self.double, [x], R.Tensor((4,), "float32"))
            return self.main(torch.relu(y))

    Model(device=cpu()).forward(torch.ones(4))

Everything takes and gives PyTorch tensors, NumPy arrays or tensors of the runtime: results are what
the first tensor among the arguments is. Graphs call Python by ``R.call_py_func("name", x)``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from tilewright.driver import compile as compile_module
from tilewright.ir import IRModule, as_int
from tilewright.relax.execution.executable import build
from tilewright.relax.expr import Function
from tilewright.relax.script.declarations import as_struct_info
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo
from tilewright.runtime import (
    Device,
    Tensor,
    cpu,
    empty,
    from_dlpack,
    get_global_func,
    register_global_func,
)
from tilewright.script.ir import marked_functions
from tilewright.support.errors import RunError
from tilewright.support.registry import near_matches
from tilewright.target import Target
from tilewright.tir import PrimFunc

_latest: dict[str, Callable[..., Any]] = {}
"""Functions of Python by name, the latest of all modules: for graphs that no module runs."""

_running: ContextVar[BasePyModule | None] = ContextVar("_running", default=None)
"""The module whose graph runs: what the graph calls by name is that module's own function."""


def _called_by_graphs(name: str, *args: Any) -> Any:
    """Call the function of a name of the module that runs, with PyTorch tensors if it is loaded."""
    running = _running.get()
    own = {} if running is None else running.pyfuncs
    function = own[name] if name in own else _latest[name]
    return function(*(_torch(arg) if hasattr(arg, "__dlpack__") else arg for arg in args))


class PyModuleFactory:
    """What ``@R.py_module`` makes of a class: a call compiles its functions for a device."""

    def __init__(self, original_class: type[BasePyModule], ir_module: IRModule) -> None:
        self.original_class = original_class
        self.ir_module = ir_module

    def __call__(
        self, device: Device | None = None, target: Target | str | None = None
    ) -> BasePyModule:
        """Compile the functions; for the CPU unless told otherwise."""
        return self.original_class(self.ir_module, cpu() if device is None else device, target)

    def __getattr__(self, name: str) -> Any:
        """Return what the module has: ``functions``, ``script`` …"""
        if name == "ir_module":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.ir_module, name)


class BasePyModule:
    """The functions of a module, compiled, beside functions of Python.

    All of them are attributes: ``module.main(x)``. Graphs may call methods that ``@I.pyfunc``
    marks. ``target`` is that of the device if left out.
    """

    @classmethod
    def of_script(cls, ir_mod: IRModule) -> PyModuleFactory:
        """Take the functions that were parsed in the class's body; they are no methods of it."""
        for name in ir_mod:
            if name in cls.__dict__:
                delattr(cls, name)
        return PyModuleFactory(cls, ir_mod)

    def __init__(
        self, ir_mod: IRModule, device: Device, target: Target | str | None = None
    ) -> None:
        self.ir_mod = ir_mod
        self.device = device
        self.target = target if target is not None else _TARGETS.get(device.kind, device.kind)
        self.pyfuncs: dict[str, Callable[..., Any]] = {}
        tensor_functions = _only(ir_mod, PrimFunc)
        self.compiled_tir_funcs: dict[str, Callable[..., Any]] = {}
        if tensor_functions:
            module = compile_module(IRModule(tensor_functions), self.target)
            self.compiled_tir_funcs = {name: module[name] for name in tensor_functions}
        self.relax_func_names = list(_only(ir_mod, Function))
        # Names that graphs call must be there before; what they compute is compiled here.
        for name, function in marked_functions(type(self)).items():
            self.add_python_function(name, function)
        self._executable = build(ir_mod, self.target) if self.relax_func_names else None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of the module or of Python."""
        known = self.__dict__
        if name in known.get("relax_func_names", ()):
            return partial(self._call_graph, name)
        if name in known.get("pyfuncs", ()):
            found: Callable[..., Any] = known["pyfuncs"][name]
            return found
        if name in known.get("compiled_tir_funcs", ()):
            kernel: Callable[..., Any] = known["compiled_tir_funcs"][name]
            return kernel
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def _call_graph(self, name: str, *args: Any) -> Any:
        assert self._executable is not None
        before = _running.set(self)
        try:
            return _like(self._executable[name](*args), args)
        finally:
            _running.reset(before)

    def add_python_function(self, name: str, func: Callable[..., Any]) -> None:
        """Add a function, which graphs may call by name, with PyTorch tensors if that is loaded.

        Graphs of this module call this one, whatever other modules have under its name. One whose
        first parameter is ``self`` gets the module there.

        Raises ``RunError`` for what is no function, and a name that a global function or one of
        the module has already.
        """
        if not callable(func):
            raise RunError(f"{name!r} must be a function, got {type(func).__name__}")
        if name in self.ir_mod:
            raise RunError(f"the module has a function {name!r} already; choose another name")
        code = getattr(func, "__code__", None)
        takes_self = code is not None and code.co_varnames[:1] == ("self",)
        bound = MethodType(func, self) if takes_self else func
        register_global_func(name, partial(_called_by_graphs, name), override=name in _latest)
        self.pyfuncs[name] = _latest[name] = bound

    def call_py_func(self, func_name: str, args: Sequence[Any]) -> Any:
        """Call a function of Python.

        Raises ``RunError`` if there is none of that name.
        """
        if func_name not in self.pyfuncs:
            raise RunError(
                f"no function of Python is named {func_name!r}; "
                f"{near_matches(func_name, list(self.pyfuncs))}"
            )
        return self.pyfuncs[func_name](*args)

    def call_tir(self, tir_func: str | Callable[..., Any], args: Sequence[Any], out_ty: Any) -> Any:
        """Call a function of loops, by name or as ``module.name``: it writes into new tensors.

        ``out_ty`` describes these, one or a list. Sizes that aren't numbers are those of the first
        argument with as many dimensions.

        Raises ``RunError`` if there is no such function, or no such argument.
        """
        if isinstance(tir_func, str) and tir_func not in self.compiled_tir_funcs:
            raise RunError(
                f"no function of loops is named {tir_func!r}; "
                f"{near_matches(tir_func, list(self.compiled_tir_funcs))}"
            )
        function = self.compiled_tir_funcs[tir_func] if isinstance(tir_func, str) else tir_func
        return self._write(function, args, out_ty)

    def call_dps_packed(self, func_name: str, args: Sequence[Any], out_ty: Any) -> Any:
        """Call a global function, which writes into new tensors; see ``call_tir``.

        A function of this module, or method of its class, is called in place of a global function
        of that name, and gives its result itself.
        """
        own = None if hasattr(BasePyModule, func_name) else getattr(self, func_name, None)
        if callable(own):
            return own(*args)
        return self._write(get_global_func(func_name), args, out_ty)

    def _write(self, function: Callable[..., Any], args: Sequence[Any], out_ty: Any) -> Any:
        given = args if isinstance(args, (list, tuple)) else [args]
        several = isinstance(out_ty, (list, tuple))
        info = None if several else as_struct_info(out_ty)
        if isinstance(info, TupleStructInfo):
            several, out_ty = True, info.fields
        infos = [as_struct_info(item) for item in (out_ty if several else [out_ty])]
        outputs = tuple(self._empty(item, given) for item in infos)
        function(*given, *outputs)
        return _like(outputs if several else outputs[0], given)

    def _empty(self, info: object, args: Sequence[Any]) -> Tensor:
        if not isinstance(info, TensorStructInfo) or not info.has_shape:
            raise RunError(f"a new tensor has sizes that are numbers, not {info!r}")
        stated = [as_int(extent) for extent in info.shape]
        shapes = (tuple(arg.shape) for arg in args if hasattr(arg, "shape"))
        like = next((shape for shape in shapes if len(shape) == len(stated)), None)
        if None in stated and like is None:
            raise RunError(
                f"no argument has as many dimensions as {info!r}, so its sizes must be numbers"
            )
        sizes = stated if like is None else [n if m is None else m for m, n in zip(stated, like)]
        return empty(tuple(int(n or 0) for n in sizes), info.dtype, self.device)

    def _convert_pytorch_to_tvm(self, tensors: Any) -> Any:
        """Return tensors of the runtime that share memory with PyTorch's; of a list, a list."""
        if isinstance(tensors, (list, tuple)):
            return [self._convert_pytorch_to_tvm(item) for item in tensors]
        return from_dlpack(tensors.detach() if hasattr(tensors, "detach") else tensors)

    def _convert_tvm_to_pytorch(self, tvm_tensors: Any) -> Any:
        """Return PyTorch's tensors that share memory with the runtime's; of a list, a list."""
        if isinstance(tvm_tensors, (list, tuple)):
            return [self._convert_tvm_to_pytorch(item) for item in tvm_tensors]
        return importlib.import_module("torch").from_dlpack(tvm_tensors)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return a function by name: of loops, of graphs or of Python; ``None`` if none has it."""
        names = (*self.compiled_tir_funcs, *self.relax_func_names, *self.pyfuncs)
        return getattr(self, name) if name in names else None

    def list_functions(self) -> dict[str, list[str]]:
        """Return the names of functions, by kind: ``tir``, ``relax`` and ``python``."""
        return {
            "tir": list(self.compiled_tir_funcs),
            "relax": list(self.relax_func_names),
            "python": list(self.pyfuncs),
        }

    def script(self, **options: Any) -> str:
        """Return the module's script; options as of ``IRModule.script``."""
        return self.ir_mod.script(**options)

    def show(
        self, style: str | None = None, black_format: bool | None = None, **kwargs: Any
    ) -> None:
        """Print the module's script; options as of ``IRModule.show``."""
        options = {"style": style, "black_format": black_format}
        given = {name: value for name, value in options.items() if value is not None}
        self.ir_mod.show(**given, **kwargs)


_TARGETS = {"cpu": "llvm"}


def _only(mod: IRModule, kind: type) -> Mapping[str, Any]:
    return {name: f for name, f in mod.functions.items() if isinstance(f, kind)}


def _torch(value: Any) -> Any:
    torch = sys.modules.get("torch")
    return value if torch is None else torch.from_dlpack(value)


def _like(value: Any, args: Sequence[Any]) -> Any:
    """A result in the form of the first tensor among the arguments."""
    if isinstance(value, tuple):
        return tuple(_like(item, args) for item in value)
    first = next((arg for arg in args if hasattr(arg, "__dlpack__")), None)
    if isinstance(first, np.ndarray):
        return from_dlpack(value).numpy()
    if type(first).__module__.partition(".")[0] == "torch":
        return _torch(value)
    return value
