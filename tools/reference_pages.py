"""Write the pages of `docs/` that are made from the code.

python tools/reference_pages.py           # write docs/primitives.md and docs/errors.md
python tools/reference_pages.py --check   # exit status 1 if a page is out of date
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from pathlib import Path

from wrong_schedules import GALLERY

from tilewright.support.errors import ScheduleError
from tilewright.tir import schedule
from tilewright.tir.schedule import PRIMITIVES, Schedule
from tilewright.tir.schedule.reference import COMMON_PRECONDITIONS, Reference, reference

DOCS = Path(__file__).parent.parent / "docs"


def primitives_page() -> str:
    """Return the reference of the schedule primitives: a table and a section for each."""
    families: dict[str, list[Reference]] = {}
    for _, item in PRIMITIVES.items():
        families.setdefault(item.function.__module__, []).append(reference(item))
    lines = [
        "# Schedule primitives",
        "",
        "Made from the registry by `tools/reference_pages.py`; edit the docstrings, not this page.",
        "",
        "Every primitive keeps the meaning of the program or refuses with a `ScheduleError`, and a",
        "refused one leaves the schedule as it was. A block can be given by its name.",
        "",
        "Common preconditions, not repeated below:",
        "",
        *(f"- {item}" for item in COMMON_PRECONDITIONS),
        "",
        f"{sum(map(len, families.values()))} primitives:",
        "",
        "| primitive | what it does | arguments | preconditions | example |",
        "|---|---|---|---|---|",
    ]
    for module in sorted(families):
        lines += [_row(about) for about in sorted(families[module], key=lambda item: item.name)]
    lines += _others()
    for module in sorted(families):
        told = (importlib.import_module(module).__doc__ or module).strip().split("\n\n")[0]
        lines += ["", f"## {' '.join(told.split()).rstrip('.')}"]
        for about in sorted(families[module], key=lambda item: item.name):
            lines += _section(about)
    return "\n".join(lines) + "\n"


def _others() -> list[str]:
    """What a schedule has besides primitives, and functions that help to write schedules."""
    methods = {
        f"sch.{name}": getattr(Schedule, name)
        for name in dir(Schedule)
        if not name.startswith("_")
        and name not in PRIMITIVES
        and inspect.getdoc(getattr(Schedule, name))
    }
    functions = {
        name: getattr(schedule, name)
        for name in schedule.__all__
        if inspect.isfunction(getattr(schedule, name))
    }
    lines = ["", "Besides primitives:", "", "| name | what it does |", "|---|---|"]
    for name, item in sorted({**methods, **functions}.items()):
        told = (inspect.getdoc(item) or "").split("\n\n")[0]
        lines.append(f"| `{name}` | {' '.join(told.split())} |".replace("||", "\\|\\|"))
    return lines


def _row(about: Reference) -> str:
    arguments = about.signature[len(about.name) + 1 :].rpartition(") ->")[0]
    example = f"[`{about.action}`](#{about.name})" if about.action else f"[below](#{about.name})"
    conditions = "; ".join(about.preconditions or ()) or "none"
    cells = [f"`{about.name}`", about.summary, f"`{arguments}`", conditions, example]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(about: Reference) -> list[str]:
    lines = ["", f"### {about.name}", "", "```python", about.signature, "```", about.summary]
    if about.text:
        lines += ["", about.text]
    if about.preconditions:
        lines += ["", "Preconditions:", "", *(f"- {item}" for item in about.preconditions)]
    if about.before:
        called = f" `{about.action}`" if about.action else ""
        lines += ["", "```python", about.before, "```", f"After{called}:", ""]
        lines += ["```python", about.after, "```"]
    return lines


def errors_page() -> str:
    """Return the gallery of wrong schedules with what their authors see."""
    lines = [
        "# What a wrong schedule tells you",
        "",
        "Made by `tools/reference_pages.py` from `tools/wrong_schedules.py`: each schedule is run,",
        "and the text below it is the error's. After each of them the schedule is as it was before",
        "the refused call.",
    ]
    for number, (program, mistake) in enumerate(GALLERY, 1):
        body = inspect.getsource(mistake).split('"""', 2)[2]
        body = re.sub(r"  # type: ignore.*", "", body)  # what readers are to see
        told = inspect.cleandoc(mistake.__doc__ or "").rstrip(".")
        sch = Schedule(program())
        try:
            mistake(sch)
        except ScheduleError as error:
            shown = str(error)
        else:
            raise SystemExit(f"{mistake.__name__} is not refused")
        lines += ["", f"## {number}. {told}", "", "```python", inspect.cleandoc(body), "```"]
        lines += ["```text", shown.rstrip(), "```"]
    return "\n".join(lines) + "\n"


PAGES = {"primitives.md": primitives_page, "errors.md": errors_page}


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    check = parser.parse_args().check
    stale = []
    DOCS.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    for name in stale:
        print(f"docs/{name} {'is out of date: run make docs' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
