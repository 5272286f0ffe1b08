"""The cache of compiled objects."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import numpy as np
import pytest

from tilewright import driver, te
from tilewright.codegen.llvm import jit, object_cache
from tilewright.codegen.llvm.object_cache import compile_cached

TEXT = "define i64 @f() { ret i64 1 }"
TRIPLE = "x86_64-unknown-linux-gnu"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really compiled."""
    seen: list[str] = []
    real = jit.compile_ll

    def recording(text: str, **options: str) -> bytes:
        seen.append(text)
        return real(text, **options)

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(object_cache, "compile_ll", recording)
    return seen


def test_an_object_is_compiled_once(compiled: list[str]) -> None:
    first = compile_cached(TEXT, triple=TRIPLE, cpu="x86-64")
    assert compile_cached(TEXT, triple=TRIPLE, cpu="x86-64") == first
    assert compiled == [TEXT]
    compile_cached(TEXT, triple=TRIPLE, cpu="znver4")
    assert compiled == [TEXT, TEXT]


def test_a_damaged_entry_is_made_again(compiled: list[str], tmp_path: Path) -> None:
    first = compile_cached(TEXT, triple=TRIPLE, cpu="x86-64")
    [entry] = (tmp_path / "objects").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert compile_cached(TEXT, triple=TRIPLE, cpu="x86-64") == first
    assert len(compiled) == 2


def test_an_entry_in_the_place_of_another_is_made_again(
    compiled: list[str], tmp_path: Path
) -> None:
    compile_number(1)
    [first] = (tmp_path / "objects").iterdir()
    code = compile_number(2)
    [second] = set((tmp_path / "objects").iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert compile_number(2) == code
    assert len(compiled) == 3


def test_an_unwritable_cache_only_costs_time(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    for _ in range(2):
        assert compile_cached(TEXT, triple=TRIPLE, cpu="x86-64")
    assert len(compiled) == 2


def test_a_full_disk_is_not_filled_further(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert compile_cached(TEXT, triple=TRIPLE, cpu="x86-64")
    assert list((tmp_path / "objects").iterdir()) == []


def numbered(number: int) -> str:
    return f"define i64 @f() {{ ret i64 {number} }}"


def compile_number(number: int) -> bytes:
    return compile_cached(numbered(number), triple=TRIPLE, cpu="x86-64")


def test_what_was_used_least_recently_goes(compiled: list[str], tmp_path: Path) -> None:
    sizes = [len(compile_number(number)) + 32 for number in range(10)]
    folder = tmp_path / "objects"
    for age, number in enumerate(reversed(range(10))):
        # Number 0 is the oldest; times are set, so that the test needs no waiting.
        [entry] = [e for e in folder.glob("*.o") if e.read_bytes()[32:] == compile_number(number)]
        os.utime(entry, (1000 - age, 1000 - age))
    compile_number(0)  # a hit renews
    assert object_cache.trim_cache(sum(sizes)) == sum(sizes)
    left = object_cache.trim_cache(sum(sizes) - 1)
    assert left <= 0.8 * sum(sizes)
    compiled.clear()
    for number in (0, 9, 8):
        compile_number(number)
    assert compiled == []
    compile_number(1)
    assert compiled == [numbered(1)]


def test_writing_keeps_to_the_bound(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "_limit", lambda: 4000)
    for number in range(30):
        compile_number(number)
    assert sum(e.stat().st_size for e in (tmp_path / "objects").glob("*.o")) <= 4000


def test_abandoned_files_go_and_fresh_ones_stay(compiled: list[str], tmp_path: Path) -> None:
    compile_number(1)
    old, fresh = (tmp_path / "objects" / f"{name}.o.1.2.tmp" for name in ("old", "fresh"))
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    fresh.write_bytes(b"")
    object_cache.trim_cache()
    assert fresh.exists() and not old.exists()


def test_one_trims_at_a_time(compiled: list[str], tmp_path: Path) -> None:
    compile_number(1)
    with (tmp_path / "objects" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert object_cache.trim_cache(0) == -1
    assert object_cache.trim_cache(0) == 0


def test_no_cache(compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MEGABYTES", "0")
    for _ in range(2):
        compile_number(1)
    assert len(compiled) == 2 and not (tmp_path / "objects").exists()


def test_processes_share_a_cache(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers, readers and trimming at once: whoever asks gets the right code."""
    expected = [jit.compile_ll(numbered(n), triple=TRIPLE, cpu="x86-64") for n in range(4)]
    monkeypatch.setattr(object_cache, "_limit", lambda: 2 * len(expected[0]))
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            right = all(compile_number(n % 4) == expected[n % 4] for n in range(40))
            os._exit(0 if right else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def test_builds_find_their_objects(compiled: list[str]) -> None:
    a = te.placeholder((3,), name="A")
    func = te.create_prim_func([a, te.compute((3,), lambda i: a[i] * 2.0, name="B")])
    for _ in range(2):
        result = np.zeros(3, "float32")
        driver.compile(func)["main"](np.ones(3, "float32"), result)
        assert result.tolist() == [2.0] * 3
    kernels = [text for text in compiled if "main.kernel" in text and "define hidden" in text]
    assert len(kernels) == 1
