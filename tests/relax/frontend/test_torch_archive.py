"""``.pt2`` files of strangers: no code in them runs."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    with saved.open("rb") as file:
        check_archive(file, torch)
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
        "9^9^9^9",
        "(((9**4000)**4000)**4000)**4000",
        "floor(1e999999999)",
        "Float('1e999999999')",
        "Rational('1e400000000')",
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
        "torch.ops.aten.linear.overloads",
        "torch.ops.aten.save.default",
        "_operator.call",
        "_operator.attrgetter",
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
    factory = {"default_factory_module": "antimodule", "default_factory_name": "X"}
    # Texts in texts, whose letters may be written in another way.
    texts = [context, context.replace("_", r"\u005f"), json.dumps([1, {"context": factory}])]
    for text in texts:

        def change(members: Members, text: str = text) -> None:
            name = name_of(members, r"models/.*\.json$")
            value = json.loads(members[name])
            value["note"] = text
            members[name] = json.dumps(value).encode()

        with pytest.raises(ImportModelError, match="names classes of modules"):
            load_exported_program(changed(saved, tmp_path, change))


def renamed(members: Members, pattern: str, old: str, new: str) -> str:
    """Give a member another name; returns it."""
    name = name_of(members, pattern)
    other = name.replace(old, new)
    members[other] = members.pop(name)
    return other


@pytest.mark.parametrize(("old", "new"), [(".pt", ".PT"), ("/data/", "/DATA/")])
def test_names_in_capitals_are_looked_through(
    saved: Path, tmp_path: Path, old: str, new: str
) -> None:
    made = tmp_path / "made"

    def change(members: Members) -> None:
        name = renamed(members, r"sample_inputs/.*\.pt$", old, new)
        members[name] = torch_pickle(((Touches(made),), {}))

    with pytest.raises(ImportModelError, match="holds more than tensors"):
        load_exported_program(changed(saved, tmp_path, change))
    assert not made.exists()


def test_weights_named_in_capitals_are_looked_through(saved: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def change(members: Members) -> None:
        name = name_of(members, r"weights/.*config\.json$")
        config = json.loads(members[name])
        for entry in config["config"].values():
            members[name_of(members, f"/{entry['path_name']}$")] = torch_pickle(Touches(made))
            entry.update(use_pickle=True, path_name=entry["path_name"].upper())
        members[name] = json.dumps(config).encode()

    with pytest.raises(ImportModelError, match="holds more than tensors"):
        load_exported_program(changed(saved, tmp_path, change))
    assert not made.exists()


@pytest.mark.parametrize("suffix", [".JSON", ".other"])
def test_models_are_looked_through_by_their_folder(
    saved: Path, tmp_path: Path, suffix: str
) -> None:
    def change(members: Members) -> None:
        in_model("torch.ops.aten.linear.default", "torch.serialization.os.system")(members)
        renamed(members, r"models/.*\.json$", ".json", suffix)

    with pytest.raises(ImportModelError, match="is no operator of a model"):
        load_exported_program(changed(saved, tmp_path, change))


def test_guards_dont_end_the_text_that_they_are_put_in(saved: Path, tmp_path: Path) -> None:
    guard = """2 >= 1 or L['a" + str(exit()) + "'].size()[0] >= 2"""

    def change(members: Members) -> None:
        name = name_of(members, r"models/.*\.json$")
        members[name] = json.dumps(json.loads(members[name]) | {"guards_code": [guard]}).encode()

    with pytest.raises(ImportModelError, match="is no formula of sizes"):
        load_exported_program(changed(saved, tmp_path, change))


def test_a_second_directory_of_members_is_the_one_looked_through(
    saved: Path, tmp_path: Path
) -> None:
    """Some readers look for the table where the file says, others before the file's end."""
    made = tmp_path / "made"

    def change(members: Members) -> None:
        name = name_of(members, r"sample_inputs/.*\.pt$")
        members[name] = torch_pickle(((Touches(made),), {}))

    hostile = bytearray(changed(saved, tmp_path, change).read_bytes())
    fine = changed(saved, tmp_path, lambda members: None).read_bytes()
    end = fine.rindex(b"PK\x05\x06")
    (table,) = struct.unpack_from("<I", fine, end + 16)
    # Those of the second kind find the members as far behind as the other table is long.
    front = bytes(end - table) + fine[:table]
    last = hostile.rindex(b"PK\x05\x06")
    (place,) = struct.unpack_from("<I", hostile, last + 16)
    struct.pack_into("<I", hostile, last + 16, place + len(front))
    while hostile[place : place + 4] == b"PK\x01\x02":
        lengths = struct.unpack_from("<HHH", hostile, place + 28)
        (where,) = struct.unpack_from("<I", hostile, place + 42)
        struct.pack_into("<I", hostile, place + 42, where + len(front))
        place += 46 + sum(lengths)
    path = tmp_path / "two.pt2"
    path.write_bytes(front + hostile[:place] + fine[table:end] + hostile[place:])
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path) as new:
        name = next(n for n in old.namelist() if n.endswith(".pt"))
        assert old.read(name) == new.read(name)
    with pytest.raises(ImportModelError, match="holds more than tensors"):
        load_exported_program(path)
    assert not made.exists()


def test_members_much_larger_unpacked_are_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            zeros = bytes(1 << 25) if item.filename.endswith(".pt") else None
            new.writestr(item.filename, zeros or old.read(item))
    with pytest.raises(ImportModelError, match="much larger unpacked"):
        load_exported_program(path)


class Pair(NamedTuple):
    a: Any
    b: Any


class SumOfPair(torch.nn.Module):
    def forward(self, pair: Pair) -> Any:
        return pair.a + pair.b


def test_inputs_of_classes_that_the_caller_has_registered_pass(tmp_path: Path) -> None:
    torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="tests.Pair")
    pair = Pair(torch.ones(3), torch.ones(3))
    path = tmp_path / "pair.pt2"
    torch.export.save(torch.export.export(SumOfPair(), (pair,)), str(path))
    assert load_exported_program(path).module()(pair).tolist() == [2.0] * 3


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
