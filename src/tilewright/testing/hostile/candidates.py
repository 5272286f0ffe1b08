"""Candidates that crash, hang, exhaust memory or print, while they are built and while they run.

A case gives a builder and a runner a row of candidates, good and bad ones in any order. The good
ones must have their results; each bad one must cost itself and nothing else, with a reason, and in
time.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from tilewright import driver, te
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, TensorArg
from tilewright.codegen.llvm.package import build_module
from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.builder import BuilderInput, LocalBuilder
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner, Reference, RunnerInput
from tilewright.runtime import Module
from tilewright.target import Target
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits
from tilewright.tir import PrimFunc

_SIZE = 64
_MEMORY = 3 << 30
_BUILD_SECONDS, _RUN_SECONDS = 6.0, 6.0
_SLACK = 60.0  # seconds beyond all limits, on a busy machine
GOOD = "good"


def _allocate() -> None:
    held = []
    while True:
        held.append(bytearray(64 << 20))


def _print() -> None:
    for stream in (1, 2):
        os.write(stream, b"\x80\x04garbage\x00\n" * 2000)


def _die(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _raise() -> None:
    raise RuntimeError("\x1b[31mgarbage\x00" * 100)


BUILDS: dict[str, tuple[Callable[[], object], bool]] = {
    "crash": (lambda: ctypes.string_at(0), True),
    "abort": (os.abort, True),
    "exit": (lambda: os._exit(0), True),
    "kill": (_die(signal.SIGKILL), True),
    "hang": (lambda: time.sleep(1e6), True),
    "spin": (lambda: [None for _ in iter(int, 1)], True),
    "memory": (_allocate, True),
    "raise": (_raise, True),
    "print": (_print, False),
}
"""What may happen while a candidate is built, and whether that makes it a bad one."""

_TEXT = '@text = constant [7 x i8] c"\\80\\04\\ff\\01\\02!\\00"\ndeclare i32 @puts(ptr)\n'


def _writing(data: bytes) -> tuple[str, str]:
    """Return a kernel that writes into every descriptor, as into that of the runner's answers."""
    escaped = "".join(f"\\{byte:02x}" for byte in data)
    before = (
        f'@data = constant [{len(data)} x i8] c"{escaped}"\ndeclare i64 @write(i32, ptr, i64)\n'
    )
    body = (
        f"br label %l\nl:\n%i = phi i32 [0, %0], [%j, %l]\n"
        f"%r = call i64 @write(i32 %i, ptr @data, i64 {len(data)})\n%j = add i32 %i, 1\n"
        "%c = icmp slt i32 %j, 64\nbr i1 %c, label %l, label %e\ne:\nret i32 0"
    )
    return before, body


def _prefixed(data: bytes) -> bytes:
    return struct.pack("<q", len(data)) + data


# Ends the process that loads it; and a time that nobody measured.
_PICKLE = _prefixed(b"cos\n_exit\n(I77\ntR.")
_FORGED = _prefixed(
    b'{"token": "", "problem": null, "results": [{"run_secs": [1e-9], "error": null, "reason": '
    b'null, "error_ratio": 0.0, "trusted": true, "slowdown": 1.0, "cold": false, "verified": '
    b'true, "inputs": [], "seed": null}]}'
)
RUNS: dict[str, tuple[str, str]] = {
    "crash": ("", "store volatile float 1.0, ptr null\nret i32 0"),
    "exit": ("declare void @_exit(i32)\n", "call void @_exit(i32 0)\nret i32 0"),
    "abort": ("declare void @abort()\n", "call void @abort()\nret i32 0"),
    "hang": ("declare i32 @pause()\n", "br label %l\nl:\n%r = call i32 @pause()\nbr label %l"),
    "spin": ("", "br label %l\nl:\nstore volatile float 1.0, ptr %b\nbr label %l"),
    "memory": (
        "declare ptr @malloc(i64)\n",
        "br label %l\nl:\n%m = call ptr @malloc(i64 67108864)\n"
        "store volatile float 1.0, ptr %m\nbr label %l",
    ),
    "stack": (
        "define i32 @deep(i32 %n) noinline {\n%m = add i32 %n, 1\n%p = alloca [4096 x i8]\n"
        "store volatile i32 %m, ptr %p\n%r = call i32 @deep(i32 %m)\n%v = load volatile i32, ptr %p"
        "\n%s = add i32 %r, %v\nret i32 %s\n}\n",
        "%r = call i32 @deep(i32 0)\nret i32 %r",
    ),
    "print": (
        _TEXT,
        "br label %l\nl:\n%i = phi i32 [0, %0], [%j, %l]\n%r = call i32 @puts(ptr @text)\n"
        "%j = add i32 %i, 1\n%c = icmp slt i32 %j, 20000\nbr i1 %c, label %l, label %e\n"
        "e:\nret i32 0",
    ),
    "pickle": _writing(_PICKLE),
    "forge": _writing(_FORGED),
    "length": _writing(b"\xff" * 16),
    "fail": ("", "ret i32 5"),
    "wrong": ("", "ret i32 0"),
}
"""Kernels that are no good: what comes before them, and what is in them."""


@dataclass(frozen=True)
class Row:
    """Candidates by name, in order; whether they are built or run."""

    builds: bool
    names: tuple[str, ...]


def make(rng: Random) -> Case:
    """Draw a row of candidates; few of them use up their time."""
    builds = rng.random() < 0.5
    table = list(BUILDS if builds else RUNS)
    slow = ("hang", "spin")
    names = [rng.choice([name for name in table if name not in slow]) for _ in range(3)]
    names += [GOOD] * 3 + ([rng.choice(slow)] if rng.random() < 0.3 else [])
    rng.shuffle(names)
    return Case("builder" if builds else "runner", Row(builds, tuple(names)))


def _double() -> PrimFunc:
    a = te.placeholder((_SIZE,), name="A")
    return te.create_prim_func([a, te.compute((_SIZE,), lambda i: a[i] * 2.0, name="B")])


@lru_cache(maxsize=1)
def _target() -> Target:
    return Target("native").with_options(num_cores=1)


@lru_cache(maxsize=1)
def _good() -> Module:
    return driver.compile(_double(), _target())


def _bad(name: str) -> Module:
    before, body = RUNS[name]
    args = (
        TensorArg("A", "float32", (_SIZE,), written=False), TensorArg("B", "float32", (_SIZE,)),
    )  # fmt: skip
    text = f"{before}define i32 @kernel(ptr %a, ptr %b) {{\n{body}\n}}"
    return build_module(text, [FunctionSpec("main", args, "kernel")])


def check(row: Row) -> str:
    """Build or run the candidates, and look at what became of each."""
    start = time.monotonic()
    slow = sum(name in ("hang", "spin") for name in row.names)
    names, problems = (_built if row.builds else _run)(row.names)
    for name, problem in zip(names, problems):
        bad = name != GOOD and not (row.builds and not BUILDS[name][1])
        if bad and problem is None:
            raise Fault(f"the candidate {name!r} passed, among {', '.join(names)}")
        if not bad and problem is not None:
            raise Fault(f"a good candidate failed, among {', '.join(names)}: {problem}")
    limit = (_BUILD_SECONDS if row.builds else _RUN_SECONDS) * (slow + 1) + _SLACK
    if time.monotonic() - start > limit:
        raise Fault(f"it took more than {limit:g} s")
    return "each cost itself"


def _built(names: tuple[str, ...]) -> tuple[tuple[str, ...], list[str | None]]:
    module = _good()

    def build(candidate: BuilderInput) -> Module:
        faulthandler.disable()  # no report of what is meant to happen
        name = str(candidate.mod.attrs["name"])
        if name != GOOD:
            BUILDS[name][0]()
        return module

    mods = [IRModule({"main": _double()}, {"name": name}) for name in names]
    builder = LocalBuilder(2, _BUILD_SECONDS, build, memory_bytes=_MEMORY)
    with _unheard():
        built = builder.build([BuilderInput(mod, _target()) for mod in mods])
    return names, [result.error for result in built]


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep what candidates print from the terminal."""
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    try:
        yield
    finally:
        for stream, copy in zip((1, 2), kept):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


def _run(names: tuple[str, ...]) -> tuple[tuple[str, ...], list[str | None]]:
    reference = Reference("double", _good(), arg_infos(_double()))
    runner = LocalRunner(
        _RUN_SECONDS, EvaluatorConfig(1, 2, 0.5, retries=0), num_threads=1,
        memory_bytes=_MEMORY,
    )  # fmt: skip
    inputs = [
        RunnerInput(module=_good() if name == GOOD else _bad(name), reference=reference)
        for name in names
    ]
    try:
        return names, [
            result.error if result.run_secs is None else None for result in runner.run(inputs)
        ]
    finally:
        runner.close()


# Processes and their ends are what this is about: none of that is a fault.
KIND = Kind(make, check, Limits(seconds=120.0, memory=0, watch=False))
