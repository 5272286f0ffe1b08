"""Libraries in a tar: one file with the library and what lies beside it, never unpacked."""

from __future__ import annotations

import io
import pickle
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relax, te
from tilewright.runtime import beside, package
from tilewright.runtime.ffi import tvm_ffi
from tilewright.script import relax as R
from tilewright.support.errors import BuildError, RunError

ONES = np.ones((2, 4), "float32")


@R.function
def twice(x: R.Tensor(("n", 4), "float32")):
    y = R.add(x, x)
    return y


def add_one() -> tvm.runtime.Module:
    a = te.placeholder((1024,), name="A")
    b = te.compute((1024,), lambda i: a[i] + 1.0, name="B")
    func = te.create_prim_func([a, b]).with_attr("global_symbol", "add_one")
    return tvm.compile(tvm.IRModule.from_expr(func), target="llvm")


def executable() -> relax.Executable:
    return relax.build(tvm.IRModule({"main": twice}), "llvm")


def test_a_program_exports_a_tar_as_tvms_do(tmp_path: Path) -> None:
    path = str(tmp_path / "lib.tar")
    func = add_one()
    func.export_library(path)
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["library.so"]
    loaded = tvm.runtime.load_module(path)
    a = tvm.runtime.tensor(np.random.uniform(size=1024).astype("float32"), tvm.cpu())
    b = tvm.runtime.tensor(np.zeros(1024, dtype="float32"), tvm.cpu())
    loaded["add_one"](a, b)
    np.testing.assert_equal(b.numpy(), a.numpy() + 1)
    assert loaded.time_evaluator("add_one", tvm.cpu(), number=3)(a, b).mean > 0
    assert pickle.loads(pickle.dumps(loaded)).implements_function("add_one")
    with pytest.raises(RunError, match="has no function 'stats'"):
        loaded["stats"]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["lib.tar"]


def test_graphs_have_one_file(tmp_path: Path) -> None:
    ex = executable()
    path = ex.export_library(tmp_path / "m.tar")
    assert [item.name for item in tmp_path.iterdir()] == ["m.tar"]
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["library.so", "library.so.json"]
    library = tvm.runtime.load_module(path)
    assert library["stats"]() == ex.stats() == relax.load_executable(path).stats()
    for given in (library, relax.load_executable(path), pickle.loads(pickle.dumps(library))):
        machine = relax.VirtualMachine(given, tvm.cpu())
        np.testing.assert_array_equal(machine["main"](ONES).numpy(), 2 * ONES)
    executable().export_library(path)  # over the old one
    np.testing.assert_array_equal(relax.load_executable(path)["main"](ONES), 2 * ONES)


def test_packages_for_other_machines(tmp_path: Path) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    path = relax.build(tvm.IRModule({"main": twice}), target).export_library(tmp_path / "arm.tar")
    with tarfile.open(path) as tar:
        assert tar.extractfile("library.so").read()[18:20] == b"\xb7\x00"  # type: ignore[union-attr]
    with pytest.raises(BuildError, match="can't be loaded"):
        tvm.runtime.load_module(path)


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("backwards", [False, True])
def test_tars_that_others_made(tmp_path: Path, form: int, backwards: bool) -> None:
    parts = list(members(executable().export_library(tmp_path / "m.tar")).items())
    made = tmp_path / "other.tar"
    with tarfile.open(made, "w", format=form) as tar:
        for name, data in reversed(parts) if backwards else parts:
            (tmp_path / name).write_bytes(data)
            info = tar.gettarinfo(tmp_path / name, name)
            info.mtime = 12  # a whole number needs no extended header
            tar.addfile(info, io.BytesIO(data))
    np.testing.assert_array_equal(relax.load_executable(made)["main"](ONES), 2 * ONES)


def test_tars_that_the_systems_command_made(tmp_path: Path) -> None:
    for name, data in members(executable().export_library(tmp_path / "m.tar")).items():
        (tmp_path / name).write_bytes(data)
    command = ["tar", "cf", "made.tar", "library.so", "library.so.json"]
    try:
        subprocess.run(command, check=True, cwd=tmp_path)
    except FileNotFoundError:
        pytest.skip("needs tar")
    np.testing.assert_array_equal(relax.load_executable(tmp_path / "made.tar")["main"](ONES), 2)


def entry(name: str, data: bytes = b"", **changed: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in changed.items():
        setattr(info, key, value)
    return info, data


def written(path: Path, *entries: tuple[tarfile.TarInfo, bytes], form: int | None = None) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT if form is None else form) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_ffi, "load_module", None)


GOOD = ("library.so", "library.so.json")
KINDS = {
    "symlink": tarfile.SYMTYPE, "link": tarfile.LNKTYPE, "folder": tarfile.DIRTYPE,
    "device": tarfile.CHRTYPE, "fifo": tarfile.FIFOTYPE, "sparse": tarfile.GNUTYPE_SPARSE,
    "contiguous": tarfile.CONTTYPE, "unknown": b"Z",
}  # fmt: skip


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GOOD)
def test_only_plain_files_are_taken(tmp_path: Path, kind: str, name: str) -> None:
    parts = members(executable().export_library(tmp_path / "m.tar"))
    strange = entry(name, type=KINDS[kind], linkname="/etc/passwd")
    entries = [entry(other, data) for other, data in parts.items() if other != name]
    path = written(tmp_path / "x.tar", strange, *entries)
    for load in (tvm.runtime.load_module, relax.load_executable):
        with pytest.raises(BuildError, match=r"is no plain file in it|is damaged"):
            load(path)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    "name",
    ["../library.so", "/tmp/library.so", "./library.so", "library.so/", "a/library.so", "lib0.o",
     "library.so.json.x", "LIBRARY.SO", "", " ", "library.so\n", "libr\xe4ry.so", "a" * 99],
)  # fmt: skip
def test_no_other_names_are_taken(tmp_path: Path, name: str) -> None:
    parts = members(executable().export_library(tmp_path / "m.tar"))
    before = sorted(tmp_path.rglob("*"))
    for entries in (
        [entry(name, parts["library.so"])],
        [*(entry(other, data) for other, data in parts.items()), entry(name, b"x")],
    ):
        path = written(tmp_path / "m.tar", *entries)
        for load in (tvm.runtime.load_module, relax.load_executable):
            with pytest.raises(BuildError, match="can't be loaded"):
                load(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_and_extended_headers(tmp_path: Path, form: int) -> None:
    parts = members(executable().export_library(tmp_path / "m.tar"))
    path = written(tmp_path / "x.tar", entry("d" * 90 + "/" + "e" * 90, b"x"), form=form)
    with pytest.raises(BuildError, match="can't be loaded"):
        tvm.runtime.load_module(path)
    info, data = entry("library.so", parts["library.so"])
    info.pax_headers = {"path": "../../elsewhere"}
    path = written(tmp_path / "y.tar", (info, data), form=tarfile.PAX_FORMAT)
    with pytest.raises(BuildError, match="can't be loaded"):
        tvm.runtime.load_module(path)


@pytest.mark.usefixtures("nothing_runs")
def test_each_member_is_there_once(tmp_path: Path) -> None:
    parts = members(executable().export_library(tmp_path / "m.tar"))
    library, text = (entry(name, parts[name]) for name in GOOD)
    for entries in ([library, library], [library, text, text], [text], []):
        path = written(tmp_path / "x.tar", *entries)
        with pytest.raises(BuildError, match=r"can't be loaded"):
            tvm.runtime.load_module(path)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    "size", [b"77777777777\0", b"\x80" + b"\0" * 10 + b"\1", b"-0000000001\0", b"\xff" * 12,
             b"\0" * 12, b"0000000000x\0", b" " * 12]
)  # fmt: skip
def test_sizes_that_are_none(tmp_path: Path, size: bytes) -> None:
    data = bytearray(add_one().export_library(tmp_path / "m.tar").read_bytes())
    data[124:136] = size
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(BuildError, match="can't be loaded: it is damaged"):
        tvm.runtime.load_module(tmp_path / "x.tar")


@pytest.mark.usefixtures("nothing_runs")
def test_packages_that_are_cut_off_or_changed(tmp_path: Path) -> None:
    data = add_one().export_library(tmp_path / "m.tar").read_bytes()
    size = len(members(tmp_path / "m.tar")["library.so"])
    path = tmp_path / "x.tar"
    changed = bytearray(data)
    changed[2000] ^= 1
    for wrong in (data[:512], data[:511], data[:300], data[: 512 + size - 1], b"", bytes(changed)):
        path.write_bytes(wrong)
        with pytest.raises(BuildError, match="can't be loaded"):
            tvm.runtime.load_module(path)
    named = bytearray(data)
    named[3] ^= 1  # the header's checksum sees it
    path.write_bytes(named)
    with pytest.raises(BuildError, match="is damaged"):
        tvm.runtime.load_module(path)


def test_the_end_of_a_tar_may_be_missing(tmp_path: Path) -> None:
    data = add_one().export_library(tmp_path / "m.tar").read_bytes()
    size = len(members(tmp_path / "m.tar")["library.so"])
    end = 512 + -(-size // 512) * 512
    (tmp_path / "x.tar").write_bytes(data[:end])
    with pytest.raises(BuildError, match="is damaged"):
        tvm.runtime.load_module(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(data[: end + 512])
    assert tvm.runtime.load_module(tmp_path / "x.tar").implements_function("add_one")


def test_what_lies_beside_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = executable().export_library(tmp_path / "m.tar")
    monkeypatch.setattr(beside, "_LARGEST_FILE", 100)
    with pytest.raises(BuildError, match="more than 100 bytes"):
        relax.load_executable(path)
    with pytest.raises(BuildError, match="more than 100 bytes"):
        tvm.runtime.load_module(path)["stats"]


def test_members_belong_together(tmp_path: Path) -> None:
    first = members(executable().export_library(tmp_path / "m.tar"))
    a = te.placeholder((7,), name="A")
    other = tvm.compile(te.create_prim_func([a, te.compute((7,), lambda i: a[i] + 2)]))
    second = members(other.export_library(tmp_path / "n.tar"))
    (tmp_path / "x.tar").write_bytes(package.packed(second["library.so"], first["library.so.json"]))
    with pytest.raises(BuildError, match="belongs to another library"):
        relax.load_executable(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(package.packed(first["library.so"]))
    with pytest.raises(BuildError, match="no signatures"):
        relax.load_executable(tmp_path / "x.tar")


def test_packages_are_checked_always(tmp_path: Path) -> None:
    path = add_one().export_library(tmp_path / "m.tar")
    with pytest.raises(BuildError, match="checked always"):
        tvm.runtime.load_module(path, checked=False)


def test_libraries_may_have_any_name(tmp_path: Path) -> None:
    path = add_one().export_library(tmp_path / "m.so").rename(tmp_path / "m.tar")
    assert tvm.runtime.load_module(path).implements_function("add_one")
    packed = add_one().export_library(tmp_path / "n.tar").rename(tmp_path / "n.so")
    assert tvm.runtime.load_module(packed).implements_function("add_one")
