"""Random ONNX models, judged node by node by ONNX's reference implementation."""
