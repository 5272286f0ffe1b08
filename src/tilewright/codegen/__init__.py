"""Code generators and what they share: the LLVM backend, and the linker for libraries."""
