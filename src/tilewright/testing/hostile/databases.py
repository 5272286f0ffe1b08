"""Databases written with bad intent, or damaged by a disk.

A case is a good database with a few spoilt lines. Nothing may be run by it, nothing may end the
process; the records of all other lines are found and used; and what is appended is there
afterwards.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from rich.cells import cell_len

from tilewright import te, topi
from tilewright.cli import main as command
from tilewright.ir import IRModule
from tilewright.ir.contents import make_collectors
from tilewright.meta_schedule.database import JSONDatabase, TuningRecord
from tilewright.meta_schedule.database.json_file import RECORD_FILE, WORKLOAD_FILE
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.support.errors import TilewrightError
from tilewright.support.text import printable
from tilewright.target import Target
from tilewright.testing.hostile.kind import OWN_FILES, Case, Fault, Kind, Limits
from tilewright.testing.hostile.kind import folder as own_folder
from tilewright.testing.hostile.mutate import as_line, damaged_bytes, damaged_value, odd_value
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.attrs import AUTO_STEP, IS_SCHEDULED
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.instruction import PRIMITIVES

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


_ATTACKS = (
    "T.macro(T.serial).captured['__builtins__']['eval'](\"open('/tmp/tilewright-canary','w')\")",
    "'{0.__globals__[Any].__module__}'.format(T.serial)",
    "T.call_extern('abort', dtype='void')",
    "T.call_packed('ffi.ModuleLoadFromFile', '/tmp/tilewright-canary.so')",
    "T.call_llvm_intrin('llvm.trap', dtype='void')",
    "[0 for i in range(10**12)]",
    "pow(3, 10**8)",
    "(lambda: 0).__class__",
    "T.__builtins__",
    "-" * 20_000 + "1",
    "(" * 300 + "1" + ")" * 300,
    "'x' * 10**10",
    "1 << (1 << 40)",
)


# ---- the good database ---------------------------------------------------------------------------


def _matmul(n: int, relu: bool) -> PrimFunc:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, topi.nn.relu(c) if relu else c])


def _softmax() -> PrimFunc:
    x = te.placeholder((4, 16), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, axis=1)])


@lru_cache(maxsize=1)
def functions() -> tuple[PrimFunc, ...]:
    """The functions that the good database has records of."""
    return _matmul(8, relu=False), _matmul(16, relu=True), _softmax()


def _tiled(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, 4))
    j0, j1 = sch.split(j, sch.sample_tile(j, 2, 8))
    sch.reorder(i0, j0, k, i1, j1)
    sch.annotate(sch.fuse(i0, j0), AUTO_STEP, 16)
    sch.vectorize(j1)


def _cached(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    copied = sch.cache_read(block, 0, "local")
    written = sch.cache_write(block, 0, "local")
    sch.compute_at(copied, j)
    sch.reverse_compute_at(written, j)
    sch.decompose_reduction(block, k)
    sch.parallel(i)
    sch.annotate(block, "note", {"what": [1, 2.5, "x"], "why": None})


def _laid_out(sch: Schedule) -> None:
    block = sch.get_block("C")
    sch.reindex(block, ("read", 1))
    sch.transform_block_layout(block, lambda i, j, k: (i, j // 4, j % 4, k))
    loops = sch.get_loops(block)
    sch.split(loops[0], [None, sch.sample_categorical([1, 2, 4], [0.25, 0.5, 0.25])])


def _reduced(sch: Schedule) -> None:
    block = sch.get_block("C")
    _, _, k = sch.get_loops(block)
    outer, _ = sch.split(k, [None, 4])
    made = sch.rfactor(outer, 0)
    sch.unroll(sch.get_loops(made)[-1])
    for consumer in sch.get_consumers(made):
        sch.add_unit_loop(consumer)


def _located(sch: Schedule) -> None:
    for child in sch.get_child_blocks(sch.get_block("root")):
        sch.get_producers(child)
        loop = sch.sample_compute_location(child)
        with contextlib.suppress(TilewrightError):
            sch.compute_at(child, loop)
    sch.enter_postproc()


_SCHEDULES: dict[int, tuple[Callable[[Schedule], None], ...]] = {
    0: (_tiled, _cached, _laid_out, _reduced),
    1: (_tiled, _reduced, _located),
    2: (_located, _located),
}


@dataclass(frozen=True)
class Files:
    """The lines of a good database, and for each record its workload and time."""

    workloads: tuple[bytes, ...]
    records: tuple[bytes, ...]
    owners: tuple[tuple[int, float], ...]


@lru_cache(maxsize=1)
def good_files() -> Files:
    """Make the good database."""
    owners: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        database = JSONDatabase(work_dir=folder)
        for number, func in enumerate(functions()):
            workload = database.commit_workload(func)
            for schedule in _SCHEDULES[number]:
                sch = Schedule(workload.mod, seed=number)
                schedule(sch)
                seconds = 1e-6 * (len(owners) + 1)
                database.commit_tuning_record(
                    TuningRecord(sch.trace, workload, (seconds, 2 * seconds), TARGET)
                )
                owners.append((number, seconds))
        texts = [Path(folder, name).read_bytes() for name in (WORKLOAD_FILE, RECORD_FILE)]
    workloads, records = (tuple(text.splitlines()) for text in texts)
    return Files(workloads, records, tuple(owners))


# ---- what is made of it --------------------------------------------------------------------------


@dataclass(frozen=True)
class Spoilt:
    """Files with damage, and what must be found all the same: (workload, time) of records."""

    workloads: bytes
    records: bytes
    kept: tuple[tuple[int, float], ...]


def make(rng: Random) -> Case:
    """Spoil one to three lines, or add some."""
    label = rng.choice(tuple(_WAYS))
    return Case(label, _WAYS[label](rng, good_files()))


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _with_records(rng: Random, files: Files, spoil: Callable[[Random, bytes], bytes]) -> Spoilt:
    """Spoil records, in place or as further lines."""
    lines, kept = list(files.records), list(files.owners)
    for number in rng.sample(range(len(lines)), rng.randint(1, 3)):
        made = spoil(rng, files.records[number]).replace(b"\n", b" ")
        if rng.random() < 0.5:
            lines.append(made)
        else:
            lines[number] = made
            kept = [item for item in kept if item != files.owners[number]]
    return Spoilt(_joined(list(files.workloads)), _joined(lines), tuple(kept))


def _with_workload(rng: Random, files: Files, spoil: Callable[[Random, bytes], bytes]) -> Spoilt:
    """Spoil a workload: its own records may go with it."""
    lines = list(files.workloads)
    number = rng.randrange(len(lines))
    lines[number] = spoil(rng, lines[number]).replace(b"\n", b" ")
    kept = tuple(item for item in files.owners if item[0] != number)
    return Spoilt(_joined(lines), _joined(list(files.records)), kept)


def _json_damage(rng: Random, line: bytes) -> bytes:
    return as_line(damaged_value(rng, json.loads(line)))


def _trace_damage(rng: Random, line: bytes) -> bytes:
    """Exchange primitives and arguments, or put in instructions that nobody recorded."""
    record = json.loads(line)
    trace = record[1][0]
    names = [name for name, _ in PRIMITIVES.items()]
    handles = [f"${name}" for entry in trace for name in entry[2]] or ["$b0"]
    for _ in range(rng.randint(1, 3)):
        entry = rng.choice(trace)
        kind = rng.randrange(4)
        if kind == 0:
            entry[0] = rng.choice(names)
        elif kind == 1 and entry[1]:
            entry[1][rng.randrange(len(entry[1]))] = rng.choice([*handles, odd_value(rng)])
        elif kind == 2:
            trace.remove(entry)
            if not trace:
                break
        else:
            given = [
                rng.choice(["$v9", odd_value(rng), *rng.choices(handles, k=3)])
                for _ in PRIMITIVES.get(rng.choice(names)).parameters
            ]
            outputs = [rng.choice("blv") + str(100 + rng.randrange(900))]
            trace.insert(rng.randrange(len(trace) + 1), [rng.choice(names), given, outputs])
    return as_line(record)


def _script_damage(rng: Random, line: bytes) -> bytes:
    digest, text = json.loads(line)
    if rng.random() < 0.5:
        text = damaged_bytes(rng, text.encode()).decode(errors="replace")
    else:
        lines = text.split("\n")
        place = rng.randrange(2, len(lines))
        indent = " " * (len(lines[place]) - len(lines[place].lstrip()))
        attack = rng.choice(_ATTACKS)
        lines.insert(place, indent + rng.choice([f"T.evaluate({attack})", f"x = {attack}", attack]))
        text = "\n".join(lines)
    return as_line([digest, text])


def _odd_lines(rng: Random, files: Files) -> Spoilt:
    """Lines that are nothing, too much, or of another encoding."""
    lines = list(files.records)
    for _ in range(rng.randint(1, 4)):
        odd = rng.choice(
            (
                b"",
                b" \t\r",
                b"\xef\xbb\xbf" + files.records[0],
                "[1]".encode("utf-16"),
                b"[" * rng.choice((100, 1100, 100_000)),
                b'{"a":' * 2000,
                b"1" * 5000,
                b"-" * 100,
                b"0" * rng.choice((10, 1 << 20)),
                b'["' + b"x" * (1 << 20) + b'"]',
                files.records[0] + files.records[0],
                files.records[0] + b"\r",
                b"\x00" * 100,
            )
        )
        lines.insert(rng.randrange(len(lines) + 1), odd)
    torn = rng.random() < 0.5  # a writer was killed
    last = rng.choice(files.records)[: rng.randrange(1, 60)] if torn else b""
    return Spoilt(_joined(list(files.workloads)), _joined(lines) + last, files.owners)


_WAYS: dict[str, Callable[[Random, Files], Spoilt]] = {
    "record bytes": lambda rng, files: _with_records(rng, files, damaged_bytes),
    "record values": lambda rng, files: _with_records(rng, files, _json_damage),
    "traces": lambda rng, files: _with_records(rng, files, _trace_damage),
    "workload bytes": lambda rng, files: _with_workload(rng, files, damaged_bytes),
    "workload values": lambda rng, files: _with_workload(rng, files, _json_damage),
    "scripts": lambda rng, files: _with_workload(rng, files, _script_damage),
    "lines": _odd_lines,
    "files": lambda rng, files: Spoilt(
        damaged_bytes(rng, _joined(list(files.workloads)), 8),
        damaged_bytes(rng, _joined(list(files.records)), 8),
        (),
    ),
}


# ---- what is looked at ---------------------------------------------------------------------------


def check(spoilt: Spoilt) -> str:
    """Open, ask, apply, list and append; returns whether lines were set aside."""
    with quiet():
        return _checked(spoilt, own_folder())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Say nothing of each line that can't be read."""
    log = logging.getLogger("tilewright")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _checked(spoilt: Spoilt, folder: Path) -> str:
    for path in folder.iterdir():
        path.unlink()
    (folder / WORKLOAD_FILE).write_bytes(spoilt.workloads)
    (folder / RECORD_FILE).write_bytes(spoilt.records)
    database = JSONDatabase(work_dir=folder)
    _check_kept(database, spoilt, "when opened")
    for record in database.get_all_tuning_records():
        _replay(record)
    _apply(database, spoilt)
    _list(folder)
    _append(database, folder, spoilt)
    aside = len(list(folder.glob("*.corrupt")))
    return "lines set aside" if aside else "nothing set aside"


def _check_kept(database: JSONDatabase, spoilt: Spoilt, when: str) -> None:
    found = {record.run_secs[0] for record in database.get_all_tuning_records() if record.run_secs}
    lost = [seconds for _, seconds in spoilt.kept if seconds not in found]
    if lost:
        raise Fault(f"{len(lost)} records of lines without damage are lost {when}: {lost}")


def _replay(record: TuningRecord) -> None:
    """A trace replays, or refuses; the program that it makes is well formed."""
    try:
        sch = Schedule(record.workload.mod)
        record.trace.apply_to_schedule(sch)
    except TilewrightError as error:
        str(error)
        return
    verify(sch.mod)
    json.dumps(record.as_json())


def _apply(database: JSONDatabase, spoilt: Spoilt) -> None:
    mod = IRModule({f"f{number}": func for number, func in enumerate(functions())})
    made = MetaScheduleApplyDatabase(database=database, target=TARGET)(mod)
    verify(made)
    for number in {number for number, _ in spoilt.kept}:
        if not made[f"f{number}"].attrs.get(IS_SCHEDULED):
            raise Fault(f"function {number} has a good record and stays unscheduled")


def _list(folder: Path) -> None:
    for arguments in (["list", "--json"], ["best", "--trace"]):
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                command(["db", arguments[0], str(folder), *arguments[1:]])
        except SystemExit as end:
            if end.code not in (0, None):
                raise Fault(f"`db {arguments[0]}` ended with {end.code}") from None


def _append(database: JSONDatabase, folder: Path, spoilt: Spoilt) -> None:
    """What a database says it has kept is there when it is opened again."""
    func, seconds = functions()[0], 0.125
    workload = database.commit_workload(func)
    trace = Schedule(workload.mod).trace
    database.commit_tuning_record(TuningRecord(trace, workload, (seconds,), TARGET))
    again = JSONDatabase(work_dir=folder)
    _check_kept(again, spoilt, "when opened again")
    if seconds not in {r.run_secs[0] for r in again.get_all_tuning_records() if r.run_secs}:
        raise Fault("a record that was appended is lost")


def prepare() -> None:
    """Import all that a check needs, by checking what is good."""
    with contextlib.suppress(TilewrightError):
        PRIMITIVES.get("looks for plug-ins")
    make_collectors()
    cell_len("\u4e00")  # tables of wide characters
    printable("\x1b")  # and of escapes
    files = good_files()
    check(Spoilt(_joined(list(files.workloads)), _joined(list(files.records)), files.owners))


def _harmless() -> tuple[str, ...]:
    """Events that files of ours cause, and the Python parser when it reports an error."""
    # Log records tell their place, and keys of dictionaries are identities.
    usual = ("open ('<unknown>'", "sys._getframe ", "builtins.id ")
    return (*usual, *OWN_FILES)


KIND = Kind(make, check, Limits(seconds=20.0, harmless=_harmless()), prepare)
