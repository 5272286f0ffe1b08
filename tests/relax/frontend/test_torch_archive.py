"""``.pt2`` files of strangers: no code in them runs."""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch import load_exported_program  # noqa: E402
from tilewright.relax.frontend.torch.archive import check_archive  # noqa: E402
from tilewright.support.errors import ImportModelError  # noqa: E402

Members = dict[str, bytes]


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return torch.cat([self.linear(x), x.new_zeros(x.shape[0] * 2, 3)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    shapes = ({0: torch.export.Dim("n", min=2, max=64)},)
    program = torch.export.export(Scaled().eval(), (torch.randn(5, 4),), dynamic_shapes=shapes)
    torch.export.save(program, str(path))
    return path


def changed(saved: Path, where: Path, change: Callable[[Members], None]) -> Path:
    """A copy of the file whose members a function has changed."""
    with zipfile.ZipFile(saved) as archive:
        members = {item.filename: archive.read(item) for item in archive.infolist()}
    change(members)
    path = where / "hostile.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def name_of(members: Members, pattern: str) -> str:
    (name,) = [name for name in members if re.search(pattern, name)]
    return name


def in_model(old: str, new: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        name = name_of(members, r"models/.*\.json$")
        text = members[name].decode()
        assert old in text, text[:2000]
        members[name] = text.replace(old, new).encode()

    return change


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def torch_pickle(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_a_saved_program_passes(saved: Path) -> None:
    check_archive(saved, torch)
    program = load_exported_program(saved)
    x = torch.randn(7, 4)
    assert program.module()(x).shape == (21, 3)


def test_pickled_inputs_make_no_objects(saved: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def change(members: Members) -> None:
        members[name_of(members, r"sample_inputs/.*\.pt$")] = torch_pickle(((Touches(made),), {}))

    with pytest.raises(ImportModelError, match=r"can't be trusted.*holds more than tensors"):
        load_exported_program(changed(saved, tmp_path, change))
    assert not made.exists()


def test_pickled_weights_make_no_objects(saved: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def change(members: Members) -> None:
        name = name_of(members, r"weights/.*config\.json$")
        config = json.loads(members[name])
        for entry in config["config"].values():
            entry["use_pickle"] = True
            path = name_of(members, f"/{entry['path_name']}$")
            members[path] = torch_pickle(Touches(made))
        members[name] = json.dumps(config).encode()

    with pytest.raises(ImportModelError, match="holds more than tensors"):
        load_exported_program(changed(saved, tmp_path, change))
    assert not made.exists()


def test_objects_of_classes_are_refused(saved: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def change(members: Members) -> None:
        name = name_of(members, r"constants/.*config\.json$")
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        members[name] = json.dumps({"config": {"c": {**entry, "tensor_meta": None}}}).encode()
        members[name.rpartition("/")[0] + "/opaque_obj_0"] = pickle.dumps(Touches(made))

    with pytest.raises(ImportModelError, match="models may hold tensors only"):
        load_exported_program(changed(saved, tmp_path, change))
    assert not made.exists()


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os').system('touch made')",
        "eval('1')",
        "S('1')",
        "lambdify([], '1')()",
        "(lambda: 1)()",
        "[x for x in (1,)][0]",
        "s0.__class__",
        "9**9**9**9",
        "PowByNatural(9, 999999999)",
        "9**(99*99*99*99)",
        "Pow(Integer(9), Integer('99999999'))",
        "open",
        "1 if",
        "s0" + "+s0" * 10_000,
    ],
)
def test_formulas_are_arithmetic(saved: Path, tmp_path: Path, formula: str) -> None:
    with zipfile.ZipFile(saved) as archive:
        name = next(n for n in archive.namelist() if re.search(r"models/.*\.json$", n))
        texts = re.findall(r'"expr_str": ?"([^"]*)"', archive.read(name).decode())
    quoted = json.dumps(formula)
    path = changed(saved, tmp_path, in_model(json.dumps(texts[0]), quoted))
    with pytest.raises(ImportModelError) as caught:
        load_exported_program(path)
    if formula != "open":  # a name, which nothing gives a value
        assert "can't be trusted" in str(caught.value)


@pytest.mark.parametrize(
    "operator",
    [
        "torch.serialization.os.system",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.linear.__init__",
        "#extension:call",
        "math.__loader__",
    ],
)
def test_operators_are_those_of_models(saved: Path, tmp_path: Path, operator: str) -> None:
    path = changed(saved, tmp_path, in_model("torch.ops.aten.linear.default", operator))
    with pytest.raises(ImportModelError, match="can't be trusted"):
        load_exported_program(path)


def test_structures_name_no_modules(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "antimodule.py").write_text("raise SystemExit")
    context = json.dumps({"__enum__": True, "fqn": "antimodule:X", "name": "Y"})

    def change(members: Members) -> None:
        name = name_of(members, r"models/.*\.json$")
        value = json.loads(members[name])
        value["note"] = context
        members[name] = json.dumps(value).encode()

    with pytest.raises(ImportModelError, match="names classes of other modules"):
        load_exported_program(changed(saved, tmp_path, change))


def test_compiled_code_is_refused(saved: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        folder = next(iter(members)).partition("/")[0]
        members[f"{folder}/data/aotinductor/model/model.wrapper.so"] = b"\x7fELF"

    with pytest.raises(ImportModelError, match="is compiled code"):
        load_exported_program(changed(saved, tmp_path, change))


def test_two_members_of_one_name_are_refused(saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path, lambda members: None)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(archive.namelist()[0], b"")
    with pytest.raises(ImportModelError, match="two members of one name"):
        load_exported_program(path)


@pytest.mark.parametrize("length", [0, 10, 1000])
def test_a_torn_file_is_said_to_be_damaged(saved: Path, tmp_path: Path, length: int) -> None:
    path = tmp_path / "torn.pt2"
    path.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(ImportModelError, match="can't be read as an exported program"):
        load_exported_program(path)
