"""ONNX's own backend tests, through the importer and the compiler."""
