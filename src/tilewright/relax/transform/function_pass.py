"""Passes made of functions on graph functions or on dataflow blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from tilewright.ir import IRModule, Pass, PassContext
from tilewright.relax.branches import map_blocks
from tilewright.relax.expr import BindingBlock, DataflowBlock, Function
from tilewright.support.errors import VerifyError

TransformFunction = Callable[[Function, IRModule, PassContext], Function]
TransformBlock = Callable[[DataflowBlock, IRModule, PassContext], DataflowBlock]


class FunctionPass(Pass):
    """Apply ``pass_func(function, mod, context)`` to each graph function that is no fusion group.

    It runs where the context's ``opt_level`` is at least its own.
    """

    def __init__(self, pass_func: TransformFunction, opt_level: int = 0, name: str = "") -> None:
        self.pass_func = pass_func
        self.opt_level = opt_level
        self._name = name or getattr(pass_func, "__name__", type(self).__name__)

    @property
    def name(self) -> str:
        """The name given when the pass was made."""
        return self._name

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the functions.

        Raises ``VerifyError`` if one is rebuilt to something else.
        """
        context = PassContext.current()
        if context.opt_level < self.opt_level:
            return mod

        def rebuild(function: Function) -> Function:
            if function.is_primitive:
                return function
            made = self.pass_func(function, mod, context)
            if not isinstance(made, Function):
                raise VerifyError(
                    f"{self.name} must return a graph function, got {type(made).__name__}"
                )
            return made

        return mod.map_functions(lambda _, function: rebuild(function), Function)


class DataflowBlockPass(FunctionPass):
    """Apply ``pass_func(block, mod, context)`` to each dataflow block.

    It must bind the variables of the block that are used outside of it.
    """

    def __init__(self, pass_func: TransformBlock, opt_level: int = 0, name: str = "") -> None:
        super().__init__(
            self._rebuild, opt_level, name or getattr(pass_func, "__name__", "DataflowBlockPass")
        )
        self.block_func = pass_func

    def _rebuild(self, function: Function, mod: IRModule, context: PassContext) -> Function:
        def rebuilt(block: BindingBlock) -> BindingBlock:
            if not isinstance(block, DataflowBlock):
                return block
            made = self.block_func(block, mod, context)
            if not isinstance(made, DataflowBlock):
                raise VerifyError(
                    f"{self.name} must return a DataflowBlock, got {type(made).__name__}"
                )
            return made

        body = map_blocks(function.body, rebuilt)
        return function if body is function.body else function.replace(body=body)


@overload
def function_pass(pass_func: object, opt_level: int = 0, name: str = "") -> Any: ...


@overload
def function_pass(*, opt_level: int = 0, name: str = "") -> Callable[[Any], Any]: ...


def function_pass(pass_func: object = None, opt_level: int = 0, name: str = "") -> Any:
    """Make a ``FunctionPass`` of a function, or a class of passes of a class.

    A function takes ``(function, mod, context)``. A class has that as its method
    ``transform_function``; its objects are passes.

        @relax.transform.function_pass(opt_level=1)
        def rename(function, mod, context): ...

    Raises ``VerifyError`` for what is neither, and a class without the method.
    """
    return _decorated(FunctionPass, "transform_function", pass_func, opt_level, name)


@overload
def dataflowblock_pass(pass_func: object, opt_level: int = 0, name: str = "") -> Any: ...


@overload
def dataflowblock_pass(*, opt_level: int = 0, name: str = "") -> Callable[[Any], Any]: ...


def dataflowblock_pass(pass_func: object = None, opt_level: int = 0, name: str = "") -> Any:
    """Make a ``DataflowBlockPass`` of a function, or a class of passes of a class.

    A function takes ``(block, mod, context)``. A class has that as its method
    ``transform_dataflowblock``; its objects are passes.

    Raises ``VerifyError`` for what is neither, and a class without the method.
    """
    return _decorated(DataflowBlockPass, "transform_dataflowblock", pass_func, opt_level, name)


def _decorated(
    kind: type[FunctionPass], method: str, target: object, opt_level: int, name: str
) -> Any:
    if target is None:
        return lambda target: _decorated(kind, method, target, opt_level, name)
    if not callable(target):
        raise VerifyError(f"a pass is made of a function or class, got {type(target).__name__}")
    if not isinstance(target, type):
        return kind(target, opt_level, name)
    if not hasattr(target, method):
        raise VerifyError(f"{target.__name__} must define {method}")

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.inner = target(*args, **kwargs)
        kind.__init__(self, getattr(self.inner, method), opt_level, name or target.__name__)

    made = type(target.__name__, (kind,), {"__init__": __init__, "__doc__": target.__doc__})
    made.__module__ = target.__module__
    return made
