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
    converts_complex,
    is_known,
)
from tilewright.relax.frontend.torch.exported import load_exported_program, location
from tilewright.relax.frontend.torch.fx import dynamo_capture_subgraphs, from_fx
from tilewright.relax.frontend.torch.graph import (
    find_convertible,
    from_graph_nodes,
    main_device,
)
from tilewright.relax.frontend.torch.importer import (
    ExportedProgramImporter,
    from_exported_program,
)
from tilewright.relax.frontend.torch.pairs import Complex
from tilewright.support.later import imported_later

register_converter = converts
register_complex_converter = converts_complex

__all__ = [
    "CONVERTERS",
    "Complex",
    "Context",
    "Converter",
    "ExportedProgramImporter",
    "dynamo_capture_subgraphs",
    "find_convertible",
    "from_exported_program",
    "from_fx",
    "from_graph_nodes",
    "is_known",
    "load_exported_program",
    "location",
    "main_device",
    "register_complex_converter",
    "register_converter",
    "relax_dynamo",
]

# TVM's users import it from here; it is the backend of a package above.
__getattr__ = imported_later(__name__, {"relax_dynamo": "tilewright.torch.dynamo"})
