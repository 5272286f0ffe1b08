"""Random graphs of operators, built by rule and compared with NumPy.

``python -m tilewright.testing.graphs --count 1000 --seed 0`` draws graphs (``draw*.py``), each
operator with a meaning of its own in NumPy (``meaning*.py``: no code is shared with the operators'
rules), builds them by rule, runs them on one thread and on two with inputs that end where memory
ends (``runtime/guarded_memory.py``), and compares each result (``compare.py``). A graph whose
result is wrong, or that kills its process, is reported with the smallest part of it that does
(``shrink.py``).
"""
