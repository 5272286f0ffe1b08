"""Reading arrays that a cost model was written as; the file may be a stranger's."""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import IO, Any

import numpy as np

from tilewright.meta_schedule.feature import is_feature_names
from tilewright.support.errors import TuneError


def read_arrays(file: str | os.PathLike[str] | IO[bytes], name: str) -> dict[str, Any]:
    """Return the arrays of an ``.npz`` file that is called ``name``.

    Raises ``TuneError`` if it can't be read, or its ``names`` aren't those of the features.
    """
    try:
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise TuneError(f"{name} can't be read: it holds a single array")
        with stored:
            arrays = {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise TuneError(f"{name} can't be read: {error}") from error
    names = arrays.get("names")
    if names is None or names.ndim != 1 or not is_feature_names(names.tolist()):
        raise TuneError(f"{name} holds a cost model of other features")
    return arrays
