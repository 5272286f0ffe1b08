"""Deliberately broken kernels, which checking must reject.

``python -m tilewright.testing.mutants --count 200`` takes right candidates of some operators (by
rule and from a search, ``subjects.py``), changes one thing in each (``mutations.py``: a bound, an
index, a predicate, an initial value …) and runs the results as the tuner does (``campaign.py``).
All broken ones must be rejected, and all unchanged ones accepted. Whether a change breaks a program
at all is decided by the reference interpreter, which takes no part in the tuner's checks: what
gives the same results there, on inputs of several kinds, isn't counted.
"""
