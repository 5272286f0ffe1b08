"""The LLVM backend: from lowered TensorIR to LLVM IR text, objects and modules."""
