"""What lies beside an exported library of graphs: a JSON file, ``model.so.json``.

In a package, ``model.tar``, it is a member. It says which functions the library has
(``relax.executable`` reads that) and what they run (the ``stats`` of a library). Its checksum ties
it to the library's content. Like a seal that detects damage, not malice, so whoever reads a part of
it checks its types and bounds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.runtime.package import (
    BESIDE,
    is_package,
    open_library,
    packed,
    read_member,
    write_file,
)
from tilewright.support.errors import BuildError

FORMAT = "tilewright-executable-2"
#: Bytes of the file and characters of its statistics: far more than any graph needs.
_LARGEST_FILE, _LARGEST_TEXT = 64 << 20, 4 << 20


def beside_path(path: Path) -> Path:
    """Return the path of the file beside a library."""
    return path.with_name(path.name + ".json")


def beside_checksum(data: Mapping[str, Any], library: bytes) -> str:
    """Return the hash of the file's data and of its library, whose checksum is given."""
    parts = {key: value for key, value in data.items() if key != "checksum"}
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode() + library).hexdigest()


def write_beside(path: Path, data: Mapping[str, Any], library: bytes) -> None:
    """Write the file beside a library, whose checksum is given."""
    made = {"format": FORMAT, **data}
    made["checksum"] = beside_checksum(made, library)
    text = json.dumps(made, indent=1)
    if not is_package(path):
        beside_path(path).write_text(text)
        return
    with open_library(path) as (file, size):
        content = file.read(size)
    write_file(path, packed(content, text.encode()))


def read_beside(path: Path) -> dict[str, Any]:
    """Read what was written beside a library; ``BuildError`` unless it is of our format."""
    beside = beside_path(path)
    try:
        data = json.loads(_content(path))
    except OSError as error:
        raise BuildError(f"no signatures beside {path}: {beside}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{beside} is damaged: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BuildError(f"{beside} is not of format {FORMAT}; compile the model again")
    return data


def has_beside(path: Path) -> bool:
    """Whether something lies beside a library, or is in the package with it."""
    try:
        _content(path)
    except OSError:
        return False
    except ValueError:
        pass  # too large: reading it says so
    return True


def _content(path: Path) -> bytes:
    if path.is_file() and is_package(path):
        return read_member(path, BESIDE, _LARGEST_FILE)
    with beside_path(path).open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"it has more than {_LARGEST_FILE} bytes")
    return content


def check_beside(path: Path, data: Mapping[str, Any], library: bytes) -> None:
    """Raise ``BuildError`` if what lies beside a library was written for one with other content."""
    if data.get("checksum") != beside_checksum(data, library):
        raise BuildError(
            f"{beside_path(path)} is damaged or belongs to another library than {path.name}: "
            "copy both files, or compile the model again"
        )


def statistics_in(path: Path, data: Mapping[str, Any]) -> str | None:
    """Return the statistics among what lies beside a library, or ``None``.

    Raises ``BuildError`` unless they are a text of bounded length that a terminal just prints.
    """
    text = data.get("statistics")
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _LARGEST_TEXT or not _is_plain(text):
        raise BuildError(f"{beside_path(path)} is damaged: its statistics are no plain text")
    return text


def _is_plain(text: str) -> bool:
    return text.replace("\n", "").isprintable()
