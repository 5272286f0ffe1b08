"""A PostgreSQL server of one's own, for tests and benchmarks: ``with server() as url``.

Needs ``initdb`` and ``postgres`` in PATH. Its files are in a temporary folder, it listens on a
socket there and nowhere else, and it ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tilewright.support.errors import TuneError

_PROGRAMS = ("initdb", "postgres")
_PATIENCE = 60.0
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


def missing() -> str | None:
    """Return why there can be no server, if so."""
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"PostgreSQL isn't installed: no {' and no '.join(absent)} in PATH" if absent else None


@contextmanager
def server(*, careful: bool = False) -> Iterator[str]:
    """Start an empty server; gives the URL of a database, to which ``&…`` may be added.

    Only a ``careful`` one waits for the disk, as servers do whose data must survive a power cut.
    Raises ``TuneError`` if it can't be started.
    """
    reason = missing()
    if reason is not None:
        raise TuneError(reason)
    # PostgreSQL refuses to be run by root.
    user = "nobody" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="tilewright-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        made = subprocess.run(
            ["initdb", "-D", folder / "data", "-U", "tilewright", "-A", "trust", "-E", "UTF8",
             "--no-locale", "--no-sync", "--no-instructions"],
            user=user, cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode:
            raise TuneError(f"initdb failed: {made.stderr.strip()[-500:]}")
        process = subprocess.Popen(
            ["postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=",
             "-c", f"fsync={'on' if careful else 'off'}"],
            user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,
        )  # fmt: skip
        try:
            _wait(process, folder)
            yield f"postgresql://tilewright@/postgres?host={quote(name, safe='')}"
        finally:
            process.send_signal(signal.SIGINT)  # open connections are closed
            process.wait(_PATIENCE)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGQUIT)


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until the last line of the server's own note says that it is ready."""
    note = folder / "data" / "postmaster.pid"
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise TuneError(f"the server ended with {process.returncode}")
        if note.exists() and note.read_text().rstrip().endswith("ready"):
            return
        time.sleep(0.02)
    process.kill()
    raise TuneError(f"the server isn't ready after {_PATIENCE:g} s")
