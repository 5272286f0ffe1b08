"""NVIDIA GPUs from Python: what they are, their memory, streams, events and graphs.

Everything goes through the driver (``libcuda.so.1``), which is looked for when it is first needed;
no toolkit and no package of CUDA's is. Kernels are launched by compiled code, which finds the
driver by itself.
"""
