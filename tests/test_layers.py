"""The layers of the package: each imports only from those before it."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tilewright"

# One row per layer; packages in one row don't import each other, except downwards inside `tir`.
LAYERS = [
    ["support"],
    ["ir"],
    ["target", "arith"],
    ["script"],
    ["tir"],
    ["te"],
    ["topi"],
    ["runtime"],
    ["codegen"],
    ["driver"],
    ["scheduling"],
    ["kernels"],
    ["dlight"],
    ["meta_schedule"],
    ["relax"],
    ["torch"],
    ["compiling"],
    ["s_tir"],
    ["cli"],
    ["testing"],
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
# `runtime` runs what a build made; it must not need the compiler.
ONLY = {"runtime": {"runtime", "support"}}
# Within `tir`: who must not know whom.
APART = [
    ("tir.analysis", "tir.schedule"),
    ("tir.analysis", "tir.transform"),
    ("tir.schedule", "tir.transform"),
    ("tir.transform", "tir.schedule"),
]
# Names of a layer above in a lower one: dialects say here which module has their words, TVM's users
# import tuning of models from `meta_schedule`, and build by `tirx.build`.
NAMED_ABOVE = {
    ("script.scope", "tir.script"),
    ("script.scope", "relax.script"),
    ("meta_schedule.relax_integration", "relax.tuning.models"),
    ("relax.frontend.torch", "torch.dynamo"),
    ("tir", "driver.pipelines"),
}

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
    if path != SOURCE / "__init__.py"  # what users import: it names all packages
}


class Import(NamedTuple):
    """A module of ours that another one names, in a statement or by a text."""

    module: str
    line: int
    stated: bool


def module_of(name: str) -> str | None:
    """The module that a dotted name is, or is something in; without the package's own name."""
    parts = name.split(".")[1:] if name.split(".")[0] == "tilewright" else []
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts) or None


def named_in(tree: ast.AST) -> Iterator[Import]:
    """What is imported, at the top, for annotations or inside of functions, or named by a text."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"tilewright(\.\w+)+", node.value) else []
        for name in names:
            found = module_of(name)
            if found is not None:
                yield Import(found, node.lineno, not isinstance(node, ast.Constant))


@functools.cache
def named_by(module: str) -> tuple[Import, ...]:
    """What a module names."""
    return tuple(named_in(ast.parse(MODULES[module].read_text())))


def imported_in(tree: ast.AST) -> set[str]:
    """What import statements name, wherever they stand."""
    return {item.module for item in named_in(tree) if item.stated}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or not: what is left when ends are taken away."""
    left = {module: {*names} - {module} for module, names in imports.items()}
    while True:
        wanted = set().union(*left.values())
        ends = {module for module, names in left.items() if module not in wanted or not names}
        if not ends:
            return [sorted(left)] if left else []
        left = {m: names - ends for m, names in left.items() if m not in ends}


@pytest.mark.parametrize("package", sorted(RANK))
def test_imports_and_names_only_downwards(package: str) -> None:
    wrong = []
    for module, path in MODULES.items():
        if module.split(".")[0] != package:
            continue
        for item in named_by(module):
            name = item.module.split(".")[0]
            if name == package or (module, item.module) in NAMED_ABOVE:
                continue
            if name not in ONLY.get(package, RANK) or RANK[name] >= RANK[package]:
                wrong.append(f"{path.relative_to(SOURCE)}:{item.line} names {item.module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("package", "other"), APART)
def test_parts_of_tir_do_not_know_each_other(package: str, other: str) -> None:
    wrong = [
        f"{module}:{item.line} names {item.module}"
        for module in MODULES
        if module.startswith(package)
        for item in named_by(module)
        if item.module.startswith(other)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_by_a_detour() -> None:
    found = circles({m: {item.module for item in named_by(m) if item.stated} for m in MODULES})
    assert not found, found


def test_circles_are_found() -> None:
    annotation = "if TYPE_CHECKING:\n    from tilewright.ir.node import Node"
    inside = "def f():\n    import tilewright.tir.stmt"
    assert imported_in(ast.parse(annotation)) == {"ir.node"}
    assert imported_in(ast.parse(inside)) == {"tir.stmt"}
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    (text,) = named_in(ast.parse("x = 'tilewright.relax.tuning.models'"))
    assert text.module == "relax.tuning.models"


def test_every_package_has_its_layer() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(RANK)


def test_importing_the_package_is_light() -> None:
    heavy = "torch onnx xgboost llvmlite cuda.bindings ray matplotlib sqlalchemy psycopg"
    code = (
        "import sys; started = set(sys.modules); import tilewright; "  # .pth files import, too
        f"print(*[name for name in {heavy.split()!r} if name in {{*sys.modules}} - started])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
