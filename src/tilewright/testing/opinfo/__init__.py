"""PyTorch's operators, with the samples that PyTorch tests them with, against PyTorch itself.

``python -m tilewright.testing.opinfo`` takes the samples of PyTorch's database of operators
(``OpInfo``) that exercise Core ATen, exports each as a program, compiles that by rule and compares
what it computes. PyTorch's database needs the package ``expecttest``.
"""
