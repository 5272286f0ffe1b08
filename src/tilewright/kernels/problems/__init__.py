"""What kernels are for, one operator a file: reading it from a function, and its formulas.

Kernels of all targets recognise a function by these and then work on what was read: a frozen
dataclass of buffers and options.
"""
