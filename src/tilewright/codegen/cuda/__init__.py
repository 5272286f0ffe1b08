"""The CUDA backend: kernels as CUDA C++ text, compiled by NVRTC, and the host code for them."""
