"""The model that ships with the package: trees that know what the machine model gets wrong.

``benchmarks/cost_model.py`` gathers its data and trains it. The file begins with the hash of what
follows, so that a damaged one isn't taken for a model.
"""

from __future__ import annotations

import hashlib
import io
import os
from functools import cache
from pathlib import Path

import numpy as np

from tilewright.meta_schedule.cost_model._arrays import read_arrays
from tilewright.meta_schedule.cost_model.forest import MAX_DEPTH, Forest
from tilewright.meta_schedule.feature import FEATURE_NAMES
from tilewright.support.errors import TuneError

_HASH_BYTES = 32
PATH = Path(__file__).with_name("pretrained.forest")


@cache
def pretrained_forest() -> Forest:
    """Return the trees that ship with the package."""
    return read_forest(PATH)


def read_forest(path: str | os.PathLike[str]) -> Forest:
    """Read a file that ``write_forest`` wrote.

    Raises ``TuneError`` if it is missing, damaged, or of other features.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TuneError(f"{os.fspath(path)} can't be read: {error.strerror}") from error
    content = data[_HASH_BYTES:]
    if hashlib.sha256(content).digest() != data[:_HASH_BYTES]:
        raise TuneError(f"{os.fspath(path)} is damaged: its checksum is that of something else")
    arrays = read_arrays(io.BytesIO(content), os.fspath(path))
    try:
        forest = Forest(
            int(arrays["depth"]),
            int(arrays["groups"]),
            arrays["features"].astype(np.int32),
            arrays["thresholds"].astype(np.float32),
            arrays["leaves"].astype(np.float32),
        )
        _check(forest)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise TuneError(f"{os.fspath(path)} is damaged: {error}") from error
    return forest


def _check(forest: Forest) -> None:
    """Raise ``ValueError`` unless the compiled function reads within the arrays and the rows."""
    if not 0 < forest.depth <= MAX_DEPTH:
        raise ValueError(f"its trees are {forest.depth} deep")
    count = len(forest.leaves) if forest.leaves.ndim else 0
    shape = (count, 1 << forest.depth)
    if any(x.shape != shape for x in (forest.features, forest.thresholds, forest.leaves)):
        raise ValueError("its arrays don't fit each other")
    if forest.groups < 1 or count % forest.groups:
        raise ValueError(f"{count} trees are no {forest.groups} groups")
    if ((forest.features < 0) | (forest.features >= len(FEATURE_NAMES))).any():
        raise ValueError("its trees ask for features that there are none of")
    if not (np.isfinite(forest.leaves).all() and np.isfinite(forest.thresholds).all()):
        raise ValueError("its numbers aren't finite")


def write_forest(forest: Forest, path: str | os.PathLike[str]) -> None:
    """Write trees to a file."""
    content = io.BytesIO()
    np.savez_compressed(
        content,
        names=np.array(FEATURE_NAMES),
        depth=np.array(forest.depth),
        groups=np.array(forest.groups),
        features=forest.features.astype(np.int16),
        thresholds=forest.thresholds,
        leaves=forest.leaves,
    )
    data = content.getvalue()
    Path(path).write_bytes(hashlib.sha256(data).digest() + data)
