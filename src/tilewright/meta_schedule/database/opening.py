"""Where a database is, as a user names it: a folder of text files, or a URL."""

from __future__ import annotations

import os
from pathlib import Path

from tilewright.meta_schedule.database.base import is_url
from tilewright.meta_schedule.database.json_file import JSONDatabase
from tilewright.meta_schedule.database.sql import SQLDatabase
from tilewright.support.errors import TuneError


def open_place(
    place: str | os.PathLike[str],
    *,
    allow_missing: bool = True,
    module_equality: str = "structural",
) -> JSONDatabase | SQLDatabase:
    """Open the database in a folder, or behind a URL such as ``sqlite:///records.db``.

    Raises ``TuneError`` if it can't be read or, unless ``allow_missing``, if there is none.
    """
    if is_url(place):
        return SQLDatabase(str(place), allow_missing=allow_missing, module_equality=module_equality)
    if not allow_missing and not Path(place).is_dir():
        raise TuneError(f"there is no folder {os.fspath(place)}")
    made = JSONDatabase(work_dir=place, module_equality=module_equality)
    if not allow_missing and not made.path_workload.exists():
        raise TuneError(
            f"there is no database in {os.fspath(place)}: no file {made.path_workload.name}"
        )
    return made
