"""The ELF linker: what it writes loads, runs, and is what binutils expect."""

from __future__ import annotations

import ctypes
import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.codegen.elf import data_object, link_shared, undefined_symbols
from tilewright.codegen.llvm import binder, jit, package, pool
from tilewright.codegen.llvm.jit import compile_ll
from tilewright.runtime import Library
from tilewright.support.errors import BuildError

AARCH64 = "aarch64-unknown-linux-gnu"

# Constants, a table of addresses, data, zeros, calls within and to libm, another object's symbols.
MAIN = """
@weights = internal constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
@table = internal constant [2 x ptr] [ptr @twice, ptr @elsewhere]
@counter = internal global i64 5
@zeros = internal global [1000 x i64] zeroinitializer
@shared = external global i64
declare double @cos(double)
declare i64 @elsewhere(i64)

define internal i64 @twice(i64 %x) noinline {
  %r = mul i64 %x, 2
  ret i64 %r
}
define i64 @through_table(i64 %which, i64 %x) {
  %p = getelementptr ptr, ptr @table, i64 %which
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 %x)
  ret i64 %r
}
define i64 @count() {
  %c = load i64, ptr @counter
  %c1 = add i64 %c, 1
  store i64 %c1, ptr @counter
  %p = getelementptr i64, ptr @zeros, i64 999
  %z = load i64, ptr %p
  store i64 %c, ptr %p
  %s = load i64, ptr @shared
  %a = add i64 %z, %s
  %r = add i64 %a, %c1
  ret i64 %r
}
define double @weigh(i64 %i, double %x) {
  %p = getelementptr double, ptr @weights, i64 %i
  %w = load double, ptr %p
  %c = call double @cos(double %x)
  %r = fmul double %w, %c
  ret double %r
}
define i64 @call_elsewhere(i64 %x) {
  %r = call i64 @elsewhere(i64 %x)
  ret i64 %r
}
"""
OTHER = """
@shared = global i64 100
define i64 @elsewhere(i64 %x) {
  %r = add i64 %x, 1000
  ret i64 %r
}
"""
EXPORTS = ["through_table", "count", "weigh", "call_elsewhere"]


@pytest.fixture(scope="module")
def objects() -> list[bytes]:
    return [compile_ll(MAIN), compile_ll(OTHER)]


def results(address: dict[str, int]) -> list[float]:
    integer, real = ctypes.c_int64, ctypes.c_double
    table = ctypes.CFUNCTYPE(integer, integer, integer)(address["through_table"])
    count = ctypes.CFUNCTYPE(integer)(address["count"])
    weigh = ctypes.CFUNCTYPE(real, integer, real)(address["weigh"])
    call = ctypes.CFUNCTYPE(integer, integer)(address["call_elsewhere"])
    return [table(0, 21), table(1, 1), count(), count(), weigh(2, 0.5), call(7)]


def test_library_computes_what_the_jit_computes(objects: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(link_shared(objects, EXPORTS))
    library = ctypes.CDLL(str(path))
    address = {n: ctypes.cast(getattr(library, n), ctypes.c_void_p).value or 0 for n in EXPORTS}
    expected = [42, 1001, 106, 112, 3 * math.cos(0.5), 1007]
    assert results(address) == expected
    assert results(Library(objects, EXPORTS).addresses) == expected


def test_only_exports_can_be_seen(objects: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(link_shared(objects, ["count"]))
    library = ctypes.CDLL(str(path))
    assert hasattr(library, "count")
    assert not hasattr(library, "weigh") and not hasattr(library, "elsewhere")


def test_many_exports_are_found(tmp_path: Path) -> None:
    names = [f"function_{i}" for i in range(200)]
    text = "\n".join(f"define i64 @{name}() {{ ret i64 {i} }}" for i, name in enumerate(names))
    path = tmp_path / "x.so"
    path.write_bytes(link_shared([compile_ll(text)], names))
    library = ctypes.CDLL(str(path))
    assert [getattr(library, name)() for name in names] == list(range(200))


def test_output_depends_on_input_alone(objects: list[bytes]) -> None:
    assert link_shared(objects, EXPORTS) == link_shared(objects, EXPORTS)


def test_tvm_ffi_symbols_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(package.link_library([compile_ll(USES_SUPPORT)], ["f"]))
    script = f"""
import ctypes
library = ctypes.CDLL({str(path)!r})
print(library.f())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "-1", done.stderr


# Refused for its number of arguments; without tvm-ffi no message can be raised.
USES_SUPPORT = """
declare i32 @tw_bind(ptr, ptr, i32, ptr)
declare i32 @tw_parallel_launch(ptr, ptr, i64, i32)
@name = internal constant [2 x i8] c"f\\00"
@table = internal constant { ptr, ptr, ptr, ptr, i32, i32 }
  { ptr @name, ptr null, ptr null, ptr @name, i32 0, i32 0 }
define internal i32 @task(ptr %c, i64 %b, i64 %e) {
  ret i32 0
}
define i32 @f() {
  %a = call i32 @tw_parallel_launch(ptr @task, ptr null, i64 2, i32 2)
  %r = call i32 @tw_bind(ptr @table, ptr null, i32 1, ptr null)
  %s = add i32 %r, %a
  ret i32 %s
}
"""


def test_support_objects_are_linked_in_where_needed() -> None:
    used = undefined_symbols(compile_ll(USES_SUPPORT))
    assert set(used) == {"tw_bind", "tw_parallel_launch"}
    data = package.link_library([compile_ll(USES_SUPPORT)], ["f"])
    assert b"pthread_create\0" in data and b"snprintf\0" in data
    plain = package.link_library([compile_ll("define i32 @f() { ret i32 1 }")], ["f"])
    assert b"pthread_create\0" not in plain


def test_binutils_accept_the_file(objects: list[bytes], tmp_path: Path) -> None:
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf is not installed")
    for name, data in {
        "host": link_shared(objects, EXPORTS),
        "arm": link_shared([compile_ll(t, triple=AARCH64) for t in (MAIN, OTHER)], EXPORTS),
    }.items():
        path = tmp_path / f"{name}.so"
        path.write_bytes(data)
        done = subprocess.run([readelf, "-aW", str(path)], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert "Shared library: [libm.so.6]" in done.stdout
        assert "through_table" in done.stdout
        assert "BIND_NOW" in done.stdout or "NOW" in done.stdout


def test_aarch64_branches_and_addresses() -> None:
    """Decode the code of a function that calls another: ``bl`` must lead to it."""
    text = """
@value = internal global i64 77
define internal i64 @callee() noinline {
  %v = load i64, ptr @value
  ret i64 %v
}
define i64 @caller() {
  %r = call i64 @callee()
  %s = add i64 %r, 1
  ret i64 %s
}
"""
    data = link_shared([compile_ll(text, triple=AARCH64, passes="none")], ["caller"])
    start = data.find(struct.pack("<q", 77))
    assert start > 0
    words = {at: struct.unpack_from("<I", data, at)[0] for at in range(0x10000, len(data) - 3, 4)}
    [branch] = [at for at, word in words.items() if word >> 26 == 0b100101]
    offset = words[branch] & 0x3FFFFFF
    callee = branch + 4 * (offset - (1 << 26) if offset >> 25 else offset)
    pages = [at for at in range(callee, callee + 16, 4) if words[at] & 0x9F000000 == 0x90000000]
    word, load = words[pages[0]], words[pages[0] + 4]
    page = (word >> 29 & 3) | (word >> 5 & 0x7FFFF) << 2
    address = (pages[0] & ~0xFFF) + (page << 12) + ((load >> 10 & 0xFFF) << 3)
    assert address == start  # addresses are offsets in the file


def test_aarch64_support_objects_link() -> None:
    data = link_shared(
        [pool.pool_object(AARCH64), binder.binder_object(AARCH64)],
        [*pool.POOL_SYMBOLS, *binder.BINDER_SYMBOLS],
    )
    assert data[18:20] == b"\xb7\x00"


@pytest.mark.parametrize(
    ("texts", "exports", "message"),
    [
        (["define void @f() { ret void }"], ["g"], "no object defines the symbols to export: g"),
        (["define void @f() { ret void }"] * 2, ["f"], "symbol f is defined twice"),
        (
            ["@x = thread_local global i64 1\ndefine ptr @f() { ret ptr @x }"],
            ["f"],
            "thread-local storage is not supported",
        ),
    ],
)
def test_what_cannot_be_linked_is_refused(
    texts: list[str], exports: list[str], message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        link_shared([compile_ll(text) for text in texts], exports)


def test_other_files_are_refused(objects: list[bytes]) -> None:
    with pytest.raises(BuildError, match="little-endian ELF64"):
        link_shared([b"hello"], [])
    with pytest.raises(BuildError, match="relocatable objects"):
        link_shared([link_shared(objects, EXPORTS)], [])
    with pytest.raises(BuildError, match="must all be for one of x86-64, AArch64"):
        link_shared([objects[0], compile_ll(OTHER, triple=AARCH64)], [])


def test_absolute_code_is_refused() -> None:
    """Code for a fixed address (the static relocation model) names what to do."""
    machine = jit.parse(OTHER)
    del machine
    target = __import__("llvmlite.binding", fromlist=["Target"]).Target.from_triple(
        "x86_64-unknown-linux-gnu"
    )
    static = target.create_target_machine(reloc="static", codemodel="small")
    text = """
@x = internal global [4 x i64] zeroinitializer
define ptr @f(i64 %i) {
  %p = getelementptr i64, ptr @x, i64 %i
  ret ptr %p
}
"""
    with pytest.raises(BuildError, match=r"R_X86_64_32S? .*PIC relocation model"):
        link_shared([static.emit_object(jit.parse(text))], ["f"])


def test_data_objects_hold_aligned_constants(tmp_path: Path) -> None:
    data = data_object({"one": b"abc", "two": bytes(range(200))})
    path = tmp_path / "x.so"
    path.write_bytes(link_shared([data], ["one", "two"]))
    library = ctypes.CDLL(str(path))
    for name, content in {"one": b"abc", "two": bytes(range(200))}.items():
        found = (ctypes.c_char * len(content)).in_dll(library, name)
        assert found.raw == content and ctypes.addressof(found) % 64 == 0
    with pytest.raises(BuildError, match="no objects for machine 'z80'"):
        data_object({}, machine="z80")
