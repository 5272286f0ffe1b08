"""Compare public names and signatures with TVM's, and write `docs/coming-from-tvm.md`.

    python tools/tvm_names.py                # write the tables of the page
    python tools/tvm_names.py --check        # exit status 1 if the page is out of date
    python tools/tvm_names.py --list s_tir   # what isn't the same in packages of that name
    python tools/tvm_names.py --dump PYTHON  # read TVM's names anew, with the Python that has it

TVM's names are kept in `tools/tvm/names.json`, so nobody needs TVM for the first three; what this
project decided about them (what is out of scope, renamed, or left out, and why) is in
`tools/tvm/decisions.json`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, partial
from pathlib import Path
from typing import Any

from tvm_reader import UNKNOWN, named, signature_text

HERE = Path(__file__).parent
NAMES = HERE / "tvm" / "names.json"
DECISIONS = HERE / "tvm" / "decisions.json"
CALLED = HERE / "tvm" / "called.json"
BOUND = "TVM's arguments"  # the names there that tests call so
PAGE = HERE.parent / "docs" / "coming-from-tvm.md"
MARK = "<!-- Made by tools/tvm_names.py: what follows. -->\n"


def dump(python: str) -> None:
    """Run ``tvm_reader.py`` under the Python that has TVM, and keep what it says."""
    done = subprocess.run(
        [python, str(HERE / "tvm_reader.py")],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    NAMES.parent.mkdir(exist_ok=True)
    NAMES.write_text(json.dumps(json.loads(done.stdout), indent=0, sort_keys=True) + "\n")


# --- comparing ---

IN_ORDER = ("posonlyargs", "args")


@dataclass(frozen=True)
class Row:
    """One of TVM's names: where it is, what became of it, and what to know about that."""

    package: str
    name: str  # with a class before it, if it is a member
    state: str  # same, renamed, different, absent or out of scope
    how: str = ""

    @property
    def path(self) -> str:
        """The name with its package."""
        return f"{self.package}.{self.name}".lstrip(".")

    @property
    def is_member(self) -> bool:
        """Whether it is a member of a class."""
        return "." in self.name


class Decisions:
    """What this project decided about names; each by a pattern of paths such as ``te.*scan``."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.out_of_scope: dict[str, str] = data["out of scope"]
        self.renamed: dict[str, str] = data["renamed"]
        self.different: dict[str, str] = data["different"]
        self.absent: dict[str, str] = data["absent"]
        self.ignored_parameters = frozenset(data["ignored parameters"])
        self.own_defaults: dict[str, str] = data["own defaults"]
        self.floor: dict[str, float] = data["floor"]
        self.parameters: dict[str, str] = data["parameters behind *args"]
        self.elsewhere: dict[str, str] = data["members of another class"]

    def why(self, table: dict[str, str], path: str) -> tuple[str, str] | None:
        """Return the pattern of a table that a path matches, and what it says."""
        for pattern, reason in table.items():
            if expression_of(pattern).match(path):
                return pattern, reason
        return None


@cache
def expression_of(patterns: str) -> re.Pattern[str]:
    """Compile patterns of paths, which spaces separate."""
    return re.compile("|".join(map(translate, patterns.split())))


@cache
def parameters_of(text: str) -> ast.arguments:
    """Parse parameters as ``signature_text`` writes them."""
    function = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.args


def differences(
    theirs: str, ours: str, ignored: Iterable[str] = (), own_defaults: Iterable[str] = ()
) -> list[str]:
    """Say what a call written for their parameters would stumble over.

    Each of their parameters must be accepted at its place, by its name and with its default;
    further ones of ours must be optional. Parameters that are ``ignored`` may be missing,
    ``own_defaults`` may differ, and nobody says the name ``_``.
    """
    wanted, given = _Parameters(theirs), _Parameters(ours)
    for name in own_defaults:
        if name in wanted.defaults and name in given.defaults:
            wanted.defaults[name] = "..."
    found = []
    place = 0
    for name in wanted.positional:
        if name in ignored and name not in given.all:
            continue
        if place < len(given.positional) and name in (given.positional[place], "_"):
            found += _default(name, wanted, given)
        elif name in given.all:
            found.append(
                f"`{name}` has another place"
                if name in given.positional
                else f"`{name}` by name only"
            )
        elif not (given.takes_rest and given.takes_names):
            found.append(f"no `{name}`")
            continue  # what follows may be in order apart from that
        place += 1
    for name in wanted.by_name:
        if name in given.all:
            found += _default(name, wanted, given)
        elif name not in ignored and not given.takes_names:
            found.append(f"no `{name}`")
    if wanted.takes_rest and not given.takes_rest:
        found.append(f"no `*{wanted.rest}`")
    extra = [n for n in given.all if n not in wanted.all and n not in given.defaults]
    return found + [f"`{name}` is required" for name in extra if not wanted.takes_rest]


class _Parameters:
    """Parameters by kind."""

    def __init__(self, text: str) -> None:
        parsed = parameters_of(text)
        self.positional = [a.arg for a in (*parsed.posonlyargs, *parsed.args)]
        self.by_name = [a.arg for a in parsed.kwonlyargs]
        self.all = [*self.positional, *self.by_name]
        self.takes_rest = parsed.vararg is not None
        self.rest = parsed.vararg.arg if parsed.vararg else ""
        self.takes_names = parsed.kwarg is not None
        last = self.positional[len(self.positional) - len(parsed.defaults) :]
        self.defaults = {n: ast.unparse(d) for n, d in zip(last, parsed.defaults)}
        pairs = zip(self.by_name, parsed.kw_defaults)
        self.defaults |= {n: ast.unparse(d) for n, d in pairs if d is not None}


def _default(name: str, wanted: _Parameters, given: _Parameters) -> list[str]:
    theirs, ours = wanted.defaults.get(name), given.defaults.get(name)
    if theirs is None or theirs == ours or "..." in (theirs, ours):
        return []
    if ours is None:
        return [f"`{name}` is required"]
    try:
        if ast.literal_eval(theirs) == ast.literal_eval(ours):
            return []
    except ValueError:
        pass
    return [f"`{name}={theirs}` is `{ours}`"]


class Comparison:
    """All of TVM's names beside ours."""

    def __init__(self, names: dict[str, Any], decisions: Decisions) -> None:
        self.names, self.decisions = names, decisions
        self.public = {
            e["class"]
            for found in names["packages"].values()
            for e in found.values()
            if isinstance(e, dict)
        }
        self.excluded: Counter[str] = Counter()

    def rows(self) -> list[Row]:
        """Compare every name."""
        return [row for package in self.names["packages"] for row in self._package(package)]

    def _package(self, package: str) -> Iterator[Row]:
        for name, entry in self.names["packages"][package].items():
            row = self._compare(package, name, entry)
            yield row
            if isinstance(entry, dict) and row.state != "out of scope":
                yield from self._members(package, name, entry["class"])

    def _compare(self, package: str, name: str, entry: Any) -> Row:
        theirs = self.names["classes"][entry["class"]]["init"] if isinstance(entry, dict) else entry
        row = self._decided(Row(package, name, ""))
        if row.state:
            return row
        theirs = self.decisions.parameters.get(row.path, theirs)
        renamed = self.decisions.renamed.get(row.path)
        state = "renamed" if renamed else "same"
        how = f"`{renamed}`" if renamed else ""
        try:
            found = named(f"tilewright.{renamed or row.path}")
        except (ImportError, AttributeError):
            return self._missing(row)
        callable_there = isinstance(entry, (dict, str))
        return self._judge(row, state, how, theirs, callable_there, found)

    def _decided(self, row: Row) -> Row:
        for state, table in (
            ("out of scope", self.decisions.out_of_scope),
            ("absent", self.decisions.absent),
        ):
            why = self.decisions.why(table, row.path)
            if why and (state == "out of scope" or not _exists(row.path)):
                self.excluded[why[0]] += state == "out of scope"
                return Row(row.package, row.name, state, why[1])
        return row

    def _missing(self, row: Row) -> Row:
        return Row(row.package, row.name, "absent", "not yet")

    def _judge(
        self, row: Row, state: str, how: str, theirs: str | None, calls: bool, found: Any
    ) -> Row:
        told = self.decisions.why(self.decisions.different, row.path)
        if told:
            return Row(row.package, row.name, "different", told[1])
        if calls and not callable(found):
            return Row(row.package, row.name, "different", "no function here")
        if calls and theirs not in (None, UNKNOWN):
            ours = signature_text(found)
            told_of = (
                differences(
                    theirs, ours, self.decisions.ignored_parameters, self.decisions.own_defaults
                )
                if ours is not None
                else []
            )
            if told_of:
                return Row(row.package, row.name, "different", "; ".join(told_of))
        return Row(row.package, row.name, state, how)

    def _members(self, package: str, name: str, key: str) -> Iterator[Row]:
        """Compare members, but for those that another public class has already."""
        about = self.names["classes"][key]
        found = dict(about["members"])
        for base in about["bases"]:
            if base not in self.public:
                found = {**self.names["classes"][base]["members"], **found}
        path = f"{package}.{name}".lstrip(".")
        try:
            cls = named(f"tilewright.{self.decisions.renamed.get(path, path)}")
        except (ImportError, AttributeError):
            cls = None
        for member, theirs in found.items():
            row = self._decided(Row(package, f"{name}.{member}", ""))
            if row.state:
                yield row
            elif cls is None:
                yield Row(package, row.name, "absent", "with its class")
            else:
                yield self._member(row, cls, member, theirs)

    def _member(self, row: Row, cls: Any, member: str, theirs: str | None) -> Row:
        renamed = self.decisions.renamed.get(row.path)
        here = renamed or member
        state, how = ("renamed", f"`{renamed}`") if renamed else ("same", "")
        if not isinstance(cls, type):
            return Row(row.package, row.name, "absent", "no class here")
        if here not in fields_of(cls) and not hasattr(cls, here):
            other = self.decisions.why(self.decisions.elsewhere, row.path.rpartition(".")[0])
            if other is None or cls is (owner := named(f"tilewright.{other[1]}")):
                return self._missing(row)
            found_row = self._member(row, owner, member, theirs)
            if found_row.state != "same":
                return found_row
            return Row(row.package, row.name, "renamed", f"`{other[1]}.{member}`")
        found = inspect.getattr_static(cls, here, None)
        if isinstance(found, (property, types.MemberDescriptorType)) or not hasattr(cls, here):
            called = theirs is not None and theirs != UNKNOWN
            how = "an attribute here" if called else how
            return Row(row.package, row.name, "different" if called else state, how)
        value = getattr(cls, here)
        if theirs is None and inspect.isfunction(value):
            return Row(row.package, row.name, "different", "a method here")
        if inspect.isfunction(found):
            value = partial(value, None)  # without the object itself
        return self._judge(row, state, how, theirs, theirs is not None, value)


def _exists(path: str) -> bool:
    try:
        named(f"tilewright.{path}")
    except (ImportError, AttributeError):
        return False
    return True


@cache
def fields_of(cls: type) -> frozenset[str]:
    """Attributes that objects of a class get: annotated, in slots, or assigned by its methods."""
    found: set[str] = set()
    for each in cls.__mro__[:-1]:
        found.update(getattr(each, "__annotations__", ()), getattr(each, "__slots__", ()))
        text = classes_of(each.__module__).get(each.__qualname__, "")
        found.update(re.findall(r"\bself\.(\w+)\b(?=[^=\n]*=)", text))
    return frozenset(found)


@cache
def classes_of(module: str) -> dict[str, str]:
    """Return the source of each class of a module, by its qualified name."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or not file.endswith(".py"):
        return {}
    text = Path(file).read_text()
    lines, found = text.splitlines(keepends=True), {}

    def visit(body: Iterable[ast.stmt], outer: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                found[outer + node.name] = "".join(lines[node.lineno - 1 : node.end_lineno])
                visit(node.body, f"{outer}{node.name}.")

    visit(ast.parse(text).body, "")
    return found


# --- what can be called ---


def signatures(rows: Iterable[Row], comparison: Comparison) -> dict[str, str]:
    """Return TVM's parameters of what is the same or renamed here and can be called there."""
    found: dict[str, str] = {}
    names = comparison.names
    for row in rows:
        if row.state not in ("same", "renamed"):
            continue
        top, _, member = row.name.partition(".")
        entry = names["packages"][row.package][top]
        about = names["classes"][entry["class"]] if isinstance(entry, dict) else {}
        text = about["init"] if isinstance(entry, dict) else entry
        if member:
            classes = (about, *(names["classes"][base] for base in about["bases"]))
            text = next(each["members"][member] for each in classes if member in each["members"])
        text = comparison.decisions.parameters.get(row.path, text)
        if text is not None:
            found[row.path] = text
    return found


def member_of(row: Row, decisions: Decisions) -> tuple[Any, str]:
    """Return the class here that has a member, and the member's name in it."""
    path = row.path.rpartition(".")[0]
    cls = named(f"tilewright.{decisions.renamed.get(path, path)}")
    member = decisions.renamed.get(row.path, row.name.partition(".")[2])
    if member not in fields_of(cls) and not hasattr(cls, member):
        told = decisions.why(decisions.elsewhere, path)
        assert told is not None
        cls = named(f"tilewright.{told[1]}")
    return cls, member


def called_by_tests(rows: Iterable[Row], comparison: Comparison) -> tuple[str, float]:
    """Say how many of the names that can be called tests call with TVM's arguments; and percent.

    `tools/tvm_called.py` has found that out.
    """
    callables = signatures(rows, comparison)
    called = json.loads(CALLED.read_text())[BOUND]
    good, total = len(callables.keys() & called.keys()), len(callables)
    return f"{good} of the {total} callable ones ({100 * good / total:.1f} %)", 100 * good / total


# --- the page ---


def share(rows: Iterable[Row]) -> tuple[int, int]:
    """Count the names that are the same or renamed, and those in scope."""
    counted = [row for row in rows if row.state != "out of scope"]
    return sum(row.state in ("same", "renamed") for row in counted), len(counted)


def percent(rows: Iterable[Row]) -> str:
    good, total = share(rows)
    return f"{good} of {total}" + (f" ({100 * good / total:.1f} %)" if total else "")


def page(rows: list[Row], comparison: Comparison) -> str:
    """Return the generated part of the page."""
    top = [row for row in rows if not row.is_member]
    members = [row for row in rows if row.is_member]
    lines = [
        f"## Name by name: TVM {comparison.names['version']}",
        "",
        "A name is *the same* if it takes TVM's parameters: each at its place, by its name, with",
        "its default. Packages are those of the version above; older versions' `tvm.tir` (now",
        "`tirx` and `s_tir`), `tvm.arith` (`sym`), `tvm.meta_schedule` and `tvm.dlight` have the",
        "same names here.",
        "",
        f"Same or renamed: {percent(top)} of the names in scope, and {percent(members)} of the",
        f"members of their classes. Tests call {called_by_tests(rows, comparison)[0]} with TVM's",
        "arguments.",
        "",
        "| package | names | members |",
        "|---|---|---|",
    ]
    packages = list(dict.fromkeys(row.package for row in rows))
    for package in packages:
        of = [[r for r in group if r.package == package] for group in (top, members)]
        lines.append(
            f"| `{title(package)}` | {percent(of[0])} | {percent(of[1]) if of[1] else ''} |"
        )
    for package in packages:
        lines += section(package, [row for row in rows if row.package == package])
    lines += ["", "## Defaults of our own", "", "| parameter | why |", "|---|---|"]
    own = comparison.decisions.own_defaults
    lines += [f"| `{name}` | {reason} |" for name, reason in own.items()]
    lines += ["", "## Out of scope", "", "| names | how many | why |", "|---|---|---|"]
    for pattern, reason in comparison.decisions.out_of_scope.items():
        shown = ", ".join(f"`{each}`" for each in pattern.split())
        lines.append(f"| {shown} | {comparison.excluded[pattern]} | {reason} |")
    return "\n".join(lines) + "\n"


def title(package: str) -> str:
    return f"tvm.{package}".rstrip(".")


def section(package: str, rows: list[Row]) -> list[str]:
    """Write the part of a package: what is the same, then a table of the rest."""
    same = [row.name for row in rows if row.state == "same"]
    rest = [row for row in rows if row.state not in ("same", "out of scope")]
    lines = ["", f"### {title(package)}"]
    if same:
        lines += [
            "",
            f"The same ({len(same)}): {', '.join(f'`{each}`' for each in grouped(same))}.",
        ]
    if rest:
        lines += ["", "| name | | |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {row.state} | {row.how} |" for row in rest]
    return lines


def grouped(names: list[str]) -> Iterator[str]:
    """Write members after their class: ``Target (current, export)``."""
    members: dict[str, list[str]] = {}
    for name in names:
        cls, _, member = name.partition(".")
        members.setdefault(cls, []).extend([member] if member else [])
    for cls, found in members.items():
        yield f"{cls} ({', '.join(found)})" if found else cls


def compared() -> tuple[list[Row], Comparison]:
    """Compare all names with what is decided about them."""
    warnings.simplefilter("ignore")
    comparison = Comparison(
        json.loads(NAMES.read_text()), Decisions(json.loads(DECISIONS.read_text()))
    )
    return comparison.rows(), comparison


def shortfalls(rows: list[Row], comparison: Comparison) -> Iterator[str]:
    """Say where the share of names that are the same, or called by tests, is below its floor."""
    decisions = comparison.decisions
    called, percents = called_by_tests(rows, comparison)
    if percents < decisions.floor["called"]:
        yield f"tests call {called}: less than {decisions.floor['called']} %"
    for kind, is_member in (("names", False), ("members", True)):
        good, total = share(row for row in rows if row.is_member == is_member)
        if 100 * good < decisions.floor[kind] * total:
            yield f"{good} of {total} {kind} are the same: less than {decisions.floor[kind]} %"


def main() -> int:
    """Write or check the page, list names, or read TVM's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    parser.add_argument("--list", metavar="PACKAGE", help="show what isn't the same")
    parser.add_argument("--dump", metavar="PYTHON", help="read TVM's names anew")
    options = parser.parse_args()
    if options.dump:
        dump(options.dump)
    rows, comparison = compared()
    if options.list is not None:
        for row in rows:
            if title(row.package).startswith(title(options.list)) and row.state not in (
                "same",
                "out of scope",
            ):
                print(f"{row.path:60} {row.state:10} {row.how}")
        return 0
    text = PAGE.read_text()
    made = text.partition(MARK)[0] + MARK + page(rows, comparison)
    short = list(shortfalls(rows, comparison))
    stale = made != text
    if options.check:
        print(*short, *["docs/coming-from-tvm.md is out of date: make docs"] * stale, sep="\n")
        return int(stale or bool(short))
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
