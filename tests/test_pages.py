"""The code of pages and notebooks runs and prints what they say; their links lead somewhere."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.everyday import few

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [ROOT / "README.md", ROOT / "docs" / "coming-from-tvm.md", *TUTORIALS, *NOTEBOOKS]
# What others show as well, and takes long.
LONG = (
    "compile_a_pytorch_model.md",
    "from_pytorch.ipynb",
    "tune_a_hugging_face_model.md",
    "tune_an_operator.ipynb",
)

FENCED = re.compile(r"^(\s*)(```|~~~).*?^\1\2\s*$", re.M | re.S)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")
# Files that texts name: `tir/schedule/instruction.py`, from wherever they stand.
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|pyi|md|json|ipynb))`")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(page: Path) -> str:
    """The prose of a page: without its blocks of code."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return FENCED.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """What links may name after ``#``: headings, as GitHub makes anchors of them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text_of(page), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def dead_links(page: Path) -> Iterator[str]:
    """Links within the project that lead nowhere."""
    prose = re.sub(r"`[^`\n]*`(?!\])", "", text_of(page))
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        if not place.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(place):
            yield f"{target}: no such heading"


@few("page", RUN, *(page for page in RUN if page.name not in LONG), ids=named)
def test_code_runs_and_prints_what_the_page_says(page: Path) -> None:
    if "import torch" in page.read_text():
        pytest.importorskip("torch")
    if "import onnx" in page.read_text():
        pytest.importorskip("onnx")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "run_page.py"), "--trials", "4", str(page)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(dead_links(page))


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=named)
def test_files_that_are_named_are_there(page: Path) -> None:
    folders = ("src", "tests", "tools", "docs", "examples", "benchmarks")
    files = [str(p) for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file()]
    missing = [
        name
        for name in NAMED.findall(text_of(page))
        if not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not missing


REFERENCE = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
DOCUMENTED = re.findall(r"^\.\. automodule:: (tilewright\.\S+)$", REFERENCE, re.M)


def test_reference_has_all_public_packages() -> None:
    source = ROOT / "src" / "tilewright"
    internal = {"codegen", "support"}
    packages = {path.parent.name for path in source.glob("*/__init__.py")} - internal
    assert packages <= {name.split(".")[1] for name in DOCUMENTED}


def undocumented(inventory: bytes) -> Iterator[str]:
    """Public classes and functions that a site's list of names doesn't have."""
    compressed = inventory.split(b"\n", 4)[4]
    names = {line.split(" ")[0] for line in zlib.decompress(compressed).decode().splitlines()}
    for module in map(importlib.import_module, DOCUMENTED):
        for public in getattr(module, "__all__", ()):
            item = getattr(module, public)
            home = f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '')}"
            known = {f"{module.__name__}.{public}", home} & names
            if (inspect.isclass(item) or inspect.isfunction(item)) and not known:
                yield f"{module.__name__}.{public}"


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    missing = [name for name in ("sphinx", "myst_parser", "furo") if not find_spec(name)]
    assert not missing, f"not installed: {missing}; pip install -e '.[docs]' (make install-dev)"
    options = ["-W", "--keep-going", "-q", "-E", "-c", str(ROOT / "docs"), "-d", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    assert not list(undocumented((tmp_path / "site" / "objects.inv").read_bytes()))


def test_dead_links_are_found(tmp_path: Path) -> None:
    page, wrong, other = (tmp_path / name for name in ("page.md", "wrong.md", "other.md"))
    other.write_text("# A heading: `code`\n```\n# no heading\n```\n# A heading: `code`\n")
    good = "[1](other.md) [2](other.md#a-heading-code) [3](other.md#a-heading-code-1) [4](#top)"
    page.write_text(f"# Top\n{good} [x](https://example.org) `[y](nowhere.md)`\n")
    assert not list(dead_links(page))
    wrong.write_text("[1](nowhere.md) ![2](other.md#no-heading) [`3`](#top)\n")
    assert list(dead_links(wrong)) == [
        "nowhere.md: no such file",
        "other.md#no-heading: no such heading",
        "#top: no such heading",
    ]


PAGE = """
```python
x = 1
print("one", x)
```
```text
one 1
```
<!-- not run: it would fail -->
```python
raise ValueError
```

```python
print(x + 1, "and so on")
```

```text
3 ... on
```
"""


def test_a_page_that_is_wrong_is_told_and_mended(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    tool = [sys.executable, str(ROOT / "tools" / "run_page.py")]
    done = subprocess.run([*tool, str(page)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "line 15 prints\n2 and so on\n" in done.stdout
    subprocess.run([*tool, "--write", str(page)], check=True)
    assert page.read_text() == PAGE.replace("3 ... on", "2 and so on")
    page.write_text(PAGE.replace("3 ...", "2 ..."))
    assert subprocess.run([*tool, str(page)]).returncode == 0
    page.write_text(PAGE.replace("x + 1", "x + y"))
    done = subprocess.run([*tool, str(page)], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'page.md", line 15' in done.stderr
    assert "NameError: name 'y' is not defined" in done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_notebooks_are_of_version_4(path: Path) -> None:
    book = json.loads(path.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", each) for each in ids)
    for cell in book["cells"]:
        assert isinstance(cell["source"], list)
        assert isinstance(cell["metadata"], dict)
        if cell["cell_type"] == "code":
            assert cell["execution_count"] is None
            assert {output["output_type"] for output in cell["outputs"]} <= {"stream"}
        else:
            assert cell["cell_type"] == "markdown"
            assert set(cell) == {"cell_type", "id", "metadata", "source"}
