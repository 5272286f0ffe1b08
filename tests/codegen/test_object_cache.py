"""The cache of compiled objects."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_an_unwritable_cache_only_costs_time(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    for _ in range(2):
        assert compile_cached(TEXT, triple=TRIPLE, cpu="x86-64")
    assert len(compiled) == 2
