"""The layers of the package: each imports only from those before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tilewright"

# One row per layer; packages in one row don't import each other, except downwards inside `tir`.
LAYERS = [
    ["support"],
    ["ir"],
    ["target", "arith", "script"],
    ["tir"],
    ["te"],
    ["topi"],
    ["runtime"],
    ["codegen"],
    ["backend"],
    ["driver"],
    ["scheduling"],
    ["kernels"],
    ["dlight"],
    ["meta_schedule"],
    ["relax"],
    ["report"],
    ["cli"],
    ["testing"],
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
# `runtime` runs what a build made; it must not need the compiler.
ONLY = {"runtime": {"runtime", "support"}}


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Packages of ours that a module imports when it is imported, with line numbers."""
    found = []
    type_checking: set[ast.AST] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            type_checking.update(inner for child in node.body for inner in ast.walk(child))
    for node in ast.walk(tree):
        if node in type_checking:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilewright"):
            parts = (node.module or "").split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            found += [(name, node.lineno) for name in names if name in RANK]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "tilewright" and len(parts) > 1:
                    found.append((parts[1], node.lineno))
    return found


@pytest.mark.parametrize("package", sorted(RANK))
def test_imports_only_downwards(package: str) -> None:
    wrong = []
    for path in (SOURCE / package).rglob("*.py"):
        for name, line in imports_of(path):
            allowed = ONLY.get(package)
            if name == package:
                continue
            if (allowed is not None and name not in allowed) or RANK[name] >= RANK[package]:
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_every_package_has_its_layer() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(RANK)


def test_importing_the_package_is_light() -> None:
    heavy = "torch onnx xgboost llvmlite cuda ray matplotlib"
    code = (
        "import sys, tilewright; "
        f"print(*[name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
