"""ONNX's own backend tests, through the importer and the compiler.

``python -m tilewright.testing.onnx_backend`` prints how many pass, and the reasons for those that
don't. Inputs that decide sizes are fixed at import. Needs the extra ``tilewright[onnx]``.
"""
