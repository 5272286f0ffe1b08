"""Passes made of functions on graph functions or on dataflow blocks."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import InfoPass, IRModule, PassContext, PassInfo, pass_decorator
from tilewright.relax.branches import map_blocks
from tilewright.relax.expr import BindingBlock, DataflowBlock, Function
from tilewright.support.errors import VerifyError

TransformFunction = Callable[[Function, IRModule, PassContext], Function]
TransformBlock = Callable[[DataflowBlock, IRModule, PassContext], DataflowBlock]


class FunctionPass(InfoPass):
    """Apply ``pass_func(function, mod, context)`` to each graph function that is no fusion group.

    Without a function, a subclass defines ``transform_function``.
    """

    def __init__(self, pass_info: PassInfo, pass_func: TransformFunction | None = None) -> None:
        super().__init__(pass_info, pass_func)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Rebuild one function.

        Raises ``NotImplementedError`` if the pass was made without a function.
        """
        if self._function is None:
            raise NotImplementedError(f"{type(self).__name__} must define transform_function")
        made: Function = self._function(func, mod, ctx)
        return made

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the functions.

        Raises ``VerifyError`` if one is rebuilt to something else.
        """
        return _each_function(mod, self.transform_function, self.name)


class DataflowBlockPass(FunctionPass):
    """Apply ``pass_func(block, mod, context)`` to each dataflow block.

    It must bind the variables of the block that are used outside of it. Without a function, a
    subclass defines ``transform_dataflowblock``.
    """

    def __init__(self, pass_info: PassInfo, pass_func: TransformBlock | None = None) -> None:
        super().__init__(pass_info)
        self._block_function = pass_func

    def transform_dataflowblock(
        self, block: DataflowBlock, mod: IRModule, ctx: PassContext
    ) -> DataflowBlock:
        """Rebuild one block.

        Raises ``NotImplementedError`` if the pass was made without a function.
        """
        if self._block_function is None:
            raise NotImplementedError(f"{type(self).__name__} must define transform_dataflowblock")
        return self._block_function(block, mod, ctx)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Rebuild the blocks of one function.

        Raises ``VerifyError`` if one is rebuilt to something else.
        """
        return _each_block(func, mod, ctx, self.transform_dataflowblock, self.name)


def _each_function(mod: IRModule, transform: TransformFunction, name: str) -> IRModule:
    context = PassContext.current()

    def rebuilt(_: object, function: Function) -> Function:
        if function.is_primitive:
            return function
        made = transform(function, mod, context)
        if not isinstance(made, Function):
            raise VerifyError(f"{name} must return a graph function, got {type(made).__name__}")
        return made

    return mod.map_functions(rebuilt, Function)


def _each_block(
    function: Function, mod: IRModule, context: PassContext, transform: TransformBlock, name: str
) -> Function:
    def rebuilt(block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return block
        made = transform(block, mod, context)
        if not isinstance(made, DataflowBlock):
            raise VerifyError(f"{name} must return a DataflowBlock, got {type(made).__name__}")
        return made

    body = map_blocks(function.body, rebuilt)
    return function if body is function.body else function.replace(body=body)


function_pass = pass_decorator(
    "function_pass",
    FunctionPass,
    "transform_function",
    """Make a ``FunctionPass`` of a function, or a class of passes of a class.

    A function takes ``(function, mod, context)``. A class has that as its method
    ``transform_function``; its objects are passes. In a ``Sequential`` they run where the context's
    level is at least ``opt_level``, by default 0.

        @relax.transform.function_pass(opt_level=1)
        def rename(function, mod, context): ...

    Raises ``VerifyError`` for what is neither, and a class without the method.
    """,
)


dataflowblock_pass = pass_decorator(
    "dataflowblock_pass",
    DataflowBlockPass,
    "transform_dataflowblock",
    """Make a ``DataflowBlockPass`` of a function, or a class of passes of a class.

    A function takes ``(block, mod, context)``. A class has that as its method
    ``transform_dataflowblock``; its objects are passes, as for :func:`function_pass`.

    Raises ``VerifyError`` for what is neither, and a class without the method.
    """,
)
