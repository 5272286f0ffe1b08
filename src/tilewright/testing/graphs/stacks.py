"""Where a process is that gives no result: its Python stacks, and what its threads do."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
from pathlib import Path
from types import FrameType

_ANSWERS = b"the interpreter answers: Python code was running\n"
_SILENT = "the interpreter doesn't answer: native code was running, or it waited in the system\n"
_SECONDS = 3.0
"""How long a process has to answer: a busy machine lets it wait."""


class Stacks:
    """Made before a fork; the child calls ``answer``, the parent ``ask`` when it waits too long."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)

    def answer(self) -> None:
        """In the child: write all stacks when asked, in native code as well."""
        signal.signal(signal.SIGUSR1, self._interpreter)
        # Stacks are written at once; Python's own handler, which comes next, has to wait for the
        # interpreter. That it ran tells Python code from native code.
        faulthandler.register(signal.SIGUSR1, self._file, all_threads=True, chain=True)

    def _interpreter(self, number: int, frame: FrameType | None) -> None:
        os.write(self._file.fileno(), _ANSWERS)

    def ask(self, pid: int) -> str:
        """In the parent: the stacks of a child that lives, and what its threads are doing."""
        threads = _threads(pid)
        os.kill(pid, signal.SIGUSR1)
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until and _ANSWERS not in self._read():
            time.sleep(0.02)
        text = self._read()
        native = "" if _ANSWERS in text else _SILENT
        return f"{text.decode(errors='replace')}{native}{threads}"

    def _read(self) -> bytes:
        return os.pread(self._file.fileno(), 1 << 16, 0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _threads(pid: int) -> str:
    """State and processor time of each thread: little time of a running one is a busy machine."""
    ticks = os.sysconf("SC_CLK_TCK")
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        seconds = (int(fields[11]) + int(fields[12])) / ticks
        lines.append(f"thread {task.name}: state {fields[0]}, {seconds:.1f} s of processor time")
    return "\n".join(lines)
