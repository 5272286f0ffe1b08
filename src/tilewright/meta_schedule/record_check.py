"""Checks records of untrusted databases: does the schedule compute the right results?

:class:`RecordChecker` lets a child process replay, compile and run a record and its unscheduled
program, under limits of time and memory. The child receives a record and a workload as text and
answers with text, so no failure of it affects the parent. Programs that are not contained
(``containment.py``) are refused before code generation.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tilewright import driver
from tilewright.ir import structural_hash
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.containment import contained
from tilewright.meta_schedule.database import TuningRecord, Workload
from tilewright.meta_schedule.runner import LocalRunner, Reference, Runner, RunnerInput
from tilewright.meta_schedule.runner.on_device import reference_target
from tilewright.meta_schedule.runner.traits import traits_of
from tilewright.support.errors import TilewrightError, TuneError, VerifyError
from tilewright.support.limits import limit_memory
from tilewright.target import Target

RIGHT, WRONG, REFUSED, SKIPPED = "right", "wrong", "refused", "skipped"
VERDICTS = (RIGHT, WRONG, REFUSED, SKIPPED)

_LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """The verdict on a record: one of ``VERDICTS``, and why it isn't ``right``."""

    verdict: str
    problem: str | None = None


class RecordChecker:
    """Checks records in a child process: ``with RecordChecker() as checker: checker.check(it)``.

    A program that calls external functions is refused, unless their names are in ``allow_extern``.
    A record may take ``timeout_sec`` seconds, and the child ``memory_bytes`` more of address space
    than it starts with.
    """

    def __init__(
        self,
        *,
        allow_extern: Collection[str] = (),
        timeout_sec: float = 600.0,
        memory_bytes: int = 16 << 30,
    ) -> None:
        if timeout_sec <= 0 or memory_bytes <= 0:
            raise TuneError("RecordChecker needs a positive time and memory")
        self.allow_extern = frozenset(allow_extern)
        self.timeout_sec = timeout_sec
        self.memory_bytes = memory_bytes
        self._process: Any = None
        self._connection: Connection | None = None

    def check(self, record: TuningRecord) -> Verdict:
        """Replay and run one record."""
        try:
            question = json.dumps([record.workload.as_json(), record.as_json()]).encode()
        except TilewrightError as error:
            return Verdict(WRONG, str(error))
        connection = self._connection or self._start()
        try:
            connection.send_bytes(question)
            if not connection.poll(self.timeout_sec):
                self._process.terminate()
                self.close()
                return Verdict(WRONG, f"its check took longer than {self.timeout_sec:g} s")
            verdict, problem = json.loads(connection.recv_bytes(_LONGEST_ANSWER))
        except (EOFError, OSError, ValueError):
            return Verdict(WRONG, f"the process that checked it {self._death()}")
        if verdict not in VERDICTS or not isinstance(problem, (str, type(None))):
            self.close()
            return Verdict(WRONG, "the process that checked it gave no answer")
        return Verdict(verdict, problem)

    def _start(self) -> Connection:
        self._connection, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Forked, so that the child has everything imported already.
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve,
            args=(theirs, self._connection, self.allow_extern, self.memory_bytes),
            daemon=False,
        )
        self._process.start()
        theirs.close()
        return self._connection

    def _death(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        self.close()
        if code is None:
            return "gave no answer"
        return f"died ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"

    def close(self) -> None:
        """End the child process."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is not None:
            process.join(2.0)  # without questions it ends by itself, and its runner before it
            if process.is_alive():
                process.kill()
            process.join()

    def __enter__(self) -> RecordChecker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(
    connection: Connection, parents: Connection, allow_extern: Collection[str], memory: int
) -> None:
    """Answer requests, in the child."""
    parents.close()  # so that the end of the parent is the end of the connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the runner's process ends too
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    limit_memory(memory)
    here, runner = Target("native"), LocalRunner()
    try:
        while True:
            try:
                workload, record = json.loads(connection.recv_bytes())
            except EOFError:
                return
            found = _checked(workload, record, here, runner, allow_extern)
            connection.send_bytes(json.dumps([found.verdict, found.problem]).encode())
    finally:
        runner.close()


def _checked(
    workload: object, record: object, here: Target, runner: Runner, allow_extern: Collection[str]
) -> Verdict:
    try:
        known = TuningRecord.from_json(record, Workload.from_json(workload))
        return check_here(known, here, runner, allow_extern)
    except TilewrightError as error:
        return Verdict(WRONG, str(error)[: _LONGEST_ANSWER // 16])
    except (MemoryError, RecursionError) as error:
        return Verdict(WRONG, f"it needs more than it may have: {type(error).__name__} {error}")
    except Exception as error:  # whatever a stranger's record brings about is its verdict
        return Verdict(WRONG, f"{type(error).__name__}: {error}"[: _LONGEST_ANSWER // 16])


def check_here(
    record: TuningRecord, here: Target, runner: Runner, allow_extern: Collection[str] = ()
) -> Verdict:
    """Check a record in this process; only ``runner`` runs its code."""
    target = record.target or here
    lacking = sorted(target.features - here.features)
    if target.kind != here.kind or target.triple not in ("", here.triple) or lacking:
        return Verdict(
            SKIPPED,
            f"it is for {target.mcpu or target.kind}"
            + (f", this machine lacks {' '.join(lacking)}" if lacking else ""),
        )
    mod = record.workload.mod
    if structural_hash(mod) != record.workload.hash:
        return Verdict(WRONG, "the workload's program does not have the hash it is kept under")
    try:
        guarded = contained(mod, allow_extern)
    except VerifyError as error:
        return Verdict(REFUSED, str(error))
    infos = record.args_info or arg_infos(mod["main"])
    module = driver.compile(guarded, reference_target(target))
    traits = traits_of(mod["main"], infos)
    reference = Reference(record.workload.hash, module, infos, traits=traits)
    candidate = driver.compile(record.schedule().mod, target)
    (made,) = runner.run([RunnerInput(module=candidate, reference=reference)])
    result = made.result()
    return Verdict(RIGHT) if result.error is None else Verdict(WRONG, result.error)


__all__ = [
    "REFUSED",
    "RIGHT",
    "SKIPPED",
    "VERDICTS",
    "WRONG",
    "RecordChecker",
    "Verdict",
    "check_here",
]
