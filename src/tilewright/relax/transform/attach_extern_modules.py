"""``AttachExternModules``: functions of other libraries are there when the graph runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import IRModule, Pass


class AttachExternModules(Pass):
    """Compile and load the external modules that ``export_tvm(allow_extern=True)`` returned.

    Their functions are then global functions of this process, by their names; the module stays as
    it is.
    """

    def __init__(self, extern_modules: Sequence[Any]) -> None:
        self.extern_modules = list(extern_modules)

    def transform(self, mod: IRModule) -> IRModule:
        """Load them.

        Raises ``BuildError`` if one can't be compiled or loaded.
        """
        for module in self.extern_modules:
            module.load()
        return mod
