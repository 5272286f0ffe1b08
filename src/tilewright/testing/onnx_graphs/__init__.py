"""Random ONNX models, judged node by node by ONNX's reference implementation.

``python -m tilewright.testing.onnx_graphs`` draws models of all versions from 7 on: most operators
on numbers, initial values, constants and inputs in their place, branches, loops, scans, functions,
odd names, names for sizes. Each node is judged by what the reference makes of our operands, so that
a fault is that of the node that is named. Needs the extra ``tilewright[onnx]``.
"""
