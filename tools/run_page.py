"""Run the code of a page or notebook, and compare what it prints with what the page says.

    python tools/run_page.py README.md docs/tutorials/*.md      # exit status 1 if one is wrong
    python tools/run_page.py --write examples/notebooks/*.ipynb # write what is printed into them

The Python blocks of a page (the code cells of a notebook) are one program, run in an empty folder.
A ``text`` block right after a Python block is what that prints (and so is the output of a cell, if
there is one); ``...`` in it stands for anything. A block after a line ``<!-- not run: why -->`` is
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src"
# A block with the comment before it and what it prints after it.
BLOCK = re.compile(
    r"(?:^<!-- (?P<skipped>not run: [^\n]+?) -->\n+)?"
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n*^```text\n(?P<printed>.*?)^```\n)?",
    re.M | re.S,
)
MARK = "\0end of block\n"


@dataclass
class Block:
    """A piece of a page's program, and what it should print, if the page says so."""

    line: int
    code: str
    printed: str | None


class Page:
    """The program of a Markdown page."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        self._found = [each for each in BLOCK.finditer(self.text) if not each["skipped"]]
        self.blocks = [
            Block(self.text.count("\n", 0, each.start("code")) + 1, each["code"], each["printed"])
            for each in self._found
        ]

    def with_printed(self, printed: list[str]) -> str:
        """Return the text of the page with what its blocks print."""
        text = self.text
        for found, new in reversed(list(zip(self._found, printed, strict=True))):
            start, end = found.span("printed")
            if start != -1:
                text = text[:start] + new.rstrip() + "\n" * bool(new.strip()) + text[end:]
        return text


class Notebook:
    """The program of a notebook."""

    def __init__(self, path: Path) -> None:
        self.data: dict[str, Any] = json.loads(path.read_text())
        self._cells = [cell for cell in self.data["cells"] if cell["cell_type"] == "code"]
        self.blocks, line = [], 1
        for cell in self._cells:
            code = "".join(cell["source"]) + "\n"
            printed = ["".join(output["text"]) for output in cell["outputs"]]
            self.blocks.append(Block(line, code, "".join(printed) if printed else None))
            line += code.count("\n") + 1

    def with_printed(self, printed: list[str]) -> str:
        """Return the text of the notebook with what its cells print."""
        for cell, new in zip(self._cells, printed, strict=True):
            if cell["outputs"]:
                lines = new.splitlines(keepends=True)
                cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}]
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"


def program(blocks: list[Block], trials: int | None) -> str:
    """Return the blocks as one program, each in the line that it has in the page."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.code.splitlines()
        lines.append(f"print({MARK!r}, end='', flush=True)")
    text = "\n".join(lines) + "\n"
    if trials is not None:
        text = re.sub(r"(?<=max_trials_global=)\d+", str(trials), text)
    return text


def run(page: Page | Notebook, name: str, trials: int | None) -> list[str]:
    """Return what each block prints; raises ``SystemExit`` if the program fails."""
    with tempfile.TemporaryDirectory(prefix="tilewright-page-") as folder:
        path = Path(folder) / name
        path.write_text(program(page.blocks, trials))
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths = [str(SOURCE), *(str(Path(item).resolve()) for item in known if item)]
        done = subprocess.run(
            [sys.executable, str(path)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"{name}: its code fails\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout.split(MARK)[:-1]


def agrees(expected: str, printed: str) -> bool:
    """Whether a text is the expected one, in which ``...`` stands for anything."""
    parts = (re.escape(part) for part in expected.rstrip().split("..."))
    return re.fullmatch(".*?".join(parts), printed.rstrip(), re.S) is not None


def main() -> int:
    """Run pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write what is printed into the pages")
    parser.add_argument("--trials", type=int, help="tune with so many trials, whatever is written")
    options = parser.parse_args()
    wrong = 0
    for path in options.pages:
        page = Notebook(path) if path.suffix == ".ipynb" else Page(path)
        printed = run(page, path.name, options.trials)
        kept = []
        for block, text in zip(page.blocks, printed, strict=True):
            if block.printed is not None and agrees(block.printed, text):
                text = block.printed
            elif block.printed is not None and not options.write:
                wrong += 1
                print(f"{path}: the block of line {block.line} prints\n{text}")
                print("what the page says (tools/run_page.py --write mends it)\n" + block.printed)
            kept.append(text)
        if options.write:
            path.write_text(page.with_printed(kept))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
