"""Enumerations of ``arith``: how hard to try, what to ask for, how a comparison came out."""

from __future__ import annotations

import enum


class ProofStrength(enum.IntEnum):
    """How hard ``Analyzer.can_prove`` tries; symbolic bounds are always used here."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(enum.Flag):
    """Parts of simplification that may be asked for (see ``Analyzer.enabled_extensions``)."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


class CompareResult(enum.IntEnum):
    """What ``Analyzer.try_compare`` knows of two values: a bit each for equal, less and greater."""

    INCONSISTENT = 0
    EQ = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    NE = 6
    UNKNOWN = 7


class IterMapLevel(enum.IntEnum):
    """What ``detect_iter_map`` asks of a map of the inputs to the indices.

    ``Surjective``: no part of an input is used twice. ``Bijective``: every input is used, too, and
    the box of indices is filled. ``NoCheck``: each index by itself is a sum of splits.
    """

    Bijective = 0
    Surjective = 1
    NoCheck = 3
