"""PyTorch models, through ``torch.export``. Needs the extra ``tilewright[torch]``.

    import torch
    from tilewright.relax.frontend.torch import from_exported_program

    exported = torch.export.export(model.eval(), (torch.randn(1, 3, 224, 224),))
    mod = from_exported_program(exported)

PyTorch is imported when it is first needed, not with this package.
"""

from __future__ import annotations

from tilewright.relax.frontend.torch.converters import (
    CONVERTERS,
    Context,
    Converter,
    converts,
)
from tilewright.relax.frontend.torch.exported import load_exported_program, location
from tilewright.relax.frontend.torch.graph import find_convertible, from_graph_nodes
from tilewright.relax.frontend.torch.importer import from_exported_program

register_converter = converts

__all__ = [
    "CONVERTERS",
    "Context",
    "Converter",
    "find_convertible",
    "from_exported_program",
    "from_graph_nodes",
    "load_exported_program",
    "location",
    "register_converter",
]
