"""ONNX models. Needs the extra ``tilewright[onnx]``.

    import onnx
    from tilewright.relax.frontend.onnx import from_onnx

    mod = from_onnx(onnx.load("model.onnx"), shape_dict={"image": [1, 3, 224, 224]})

``onnx`` is imported when it is first needed, not with this package.
"""

from __future__ import annotations

from tilewright.relax.frontend.onnx.converters import CONVERTERS, Context, Converter, converts
from tilewright.relax.frontend.onnx.importer import from_onnx
from tilewright.relax.frontend.onnx.model import load_model, parse_model, require_onnx

register_converter = converts

__all__ = [
    "CONVERTERS",
    "Context",
    "Converter",
    "converts",
    "from_onnx",
    "load_model",
    "parse_model",
    "register_converter",
    "require_onnx",
]
