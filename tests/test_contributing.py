"""The recipes of CONTRIBUTING.md, followed word by word in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
_BLOCK = re.compile(r"^```python\n# (\S+\.py)(, at its end)?\n(.*?)^```$", re.M | re.S)
# What can't be a page: a generator of code, and how other packages add things.
PROSE = ("Add a backend",)
# Tests over all things of a kind, which a new one must pass.
OF_ALL = {
    "tests/conformance/cases_roll.py": [
        "tests/conformance/test_primitives.py::test_is_covered[roll]",
        "tests/conformance/test_primitives.py::test_has_an_example[roll]",
        "tests/conformance/test_primitives.py::test_example[roll-1]",
        "tests/conformance/test_primitives.py::test_accepts[roll-1]",
        "tests/conformance/test_primitives.py::test_accepts[roll-2]",
        "tests/conformance/test_primitives.py::test_refuses[roll-1]",
        "tests/conformance/test_primitives.py::test_refusal_changes_nothing[roll-1]",
        "tests/testing/test_schedule_fuzz.py::test_every_primitive_has_a_drawer_or_a_reason",
    ],
    "tests/kernels/case_any_of.py": [
        "tests/kernels/test_apply_kernels.py::test_each_kernel_has_its_case",
        "tests/kernels/test_apply_kernels.py::test_kernels_and_rules_come_in_any_order[any_of]",
        "tests/kernels/test_apply_kernels.py::test_rules_do_without_kernels[any_of]",
    ],
    "tests/relax/test_frac.py": [
        "tests/relax/test_ops.py::test_the_legalisation_takes_the_attributes_by_name[frac]",
        "tests/testing/test_graphs.py::test_every_operator_of_graphs_is_drawn",
    ],
}


class Block(NamedTuple):
    """A file as the page gives it."""

    path: str
    appended: bool
    text: str

    def write(self, project: Path) -> None:
        """Write what the page says into a copy of the project."""
        path = project / self.path
        assert path.exists() == self.appended, f"{self.path} is there already, or isn't"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() + "\n\n" if self.appended else ""
        path.write_text(before + self.text)


def blocks_of(text: str) -> list[Block]:
    return [Block(path, bool(end), code) for path, end, code in _BLOCK.findall(text)]


BLOCKS = blocks_of(TEXT)


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{project / 'src'}{os.pathsep}{project}"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with all that the page adds."""
    made = tmp_path_factory.mktemp("project")
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, made / folder, copy_function=shutil.copy2)
    shutil.copy2(ROOT / "pyproject.toml", made)
    for block in BLOCKS:
        block.write(made)
    return made


@pytest.mark.parametrize("title", re.findall(r"^## (Add .*)$", TEXT, re.M))
def test_every_recipe_has_its_files_and_their_test(title: str) -> None:
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    if title in PROSE:
        assert not blocks_of(section)
        return
    paths = [block.path for block in blocks_of(section)]
    assert any(path.startswith("src/") for path in paths)
    assert any(path.startswith("tests/") for path in paths)


def test_no_block_is_left_out() -> None:
    assert len(BLOCKS) == len(re.findall(r"^ *```python$", TEXT, re.M))


def test_the_recipes_work(project: Path) -> None:
    tests = [b.path for b in BLOCKS if re.search(r"tests/.*/test_\w+\.py", b.path)]
    for path, others in OF_ALL.items():
        assert path in {block.path for block in BLOCKS}
        tests += others
    done = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_stubs_tell_type_checkers_of_new_names(project: Path) -> None:
    shutil.copytree(ROOT / "tools", project / "tools")
    for tool in ("package_stubs.py", "schedule_stub.py"):
        done = run(project, f"tools/{tool}")
        assert done.returncode == 0, done.stdout + done.stderr
    found = "".join(path.read_text() for path in (project / "src").rglob("*.pyi"))
    for name in ("SplitFirstLoop", "LimitDepth", "MutateToNext", "ShortCode", "NewestDatabase",
                 "OneThread", "frac"):  # fmt: skip
        assert re.search(rf"import {name} as {name}\b", found), name
    assert "def roll(" in found
