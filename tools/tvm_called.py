"""Find which of TVM's names the tests call, and whether TVM would take their arguments.

    python tools/tvm_called.py tests/topi   # run these tests, and keep what they call
    python tools/tvm_called.py              # run again those that the record names
    python tools/tvm_called.py --list topi  # names that no test calls with TVM's arguments

This is a plugin of pytest, off but for these commands, as the tests are compiled for it: each call
in their text goes through ``tried``, so that it's known what is called, of which object, and with
what. The evaluator of script tells its calls likewise. A name is called if a test that passes calls
it, the call returns, and TVM's signature binds the arguments. Calls that this project makes itself
don't count, but for those of methods that a class of the tests overrides.

`tools/tvm/called.json` says of each name a test that calls it. The everyday suite only looks that
these tests are there.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from traced_calls import trace
from tvm_names import BOUND, CALLED, Comparison, Row, compared, member_of, signatures, title
from tvm_reader import UNKNOWN, named

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"


@cache
def signature_of(text: str) -> inspect.Signature:
    """Make a signature of TVM's parameters."""
    return inspect.signature(eval(f"lambda {text}: None", {}))


def takes(text: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call binds to TVM's parameters; where nobody knows these, each call does."""
    if text == UNKNOWN:
        return True
    try:
        signature_of(text).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def maker_of(cls: type) -> tuple[Any, Any]:
    """What makes objects of a class, which may be what makes those of its base."""
    return inspect.getattr_static(cls, "__init__"), inspect.getattr_static(cls, "__new__")


class Names:
    """Objects that TVM's names stand for here, and members of classes by their names."""

    def __init__(self, rows: list[Row], comparison: Comparison) -> None:
        self.objects: dict[int, list[str]] = defaultdict(list)
        self.kept: list[Any] = []  # so that no other object gets an id of these
        self.members: dict[str, list[tuple[type, Any, str]]] = defaultdict(list)
        self.signatures = signatures(rows, comparison)
        for row in rows:
            if row.path not in self.signatures:
                continue
            if row.is_member:
                cls, member = member_of(row, comparison.decisions)
                function = inspect.getattr_static(cls, member, None)
                function = getattr(function, "__func__", function)
                for each in {member, getattr(function, "__name__", member)}:
                    self.members[each].append((cls, function, row.path))
            else:
                value = named(f"tilewright.{row.how.strip('`') or row.path}")
                self.kept.append(value)
                self.objects[id(value)].append(row.path)

    def of(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, bool]]:
        """Give the names that a call uses, and whether TVM would take its arguments."""
        for path in self._objects(function):
            yield path, takes(self.signatures[path], args, kwargs)
        owner = getattr(function, "__self__", None)
        bound = isinstance(function, (types.MethodType, types.BuiltinMethodType))
        name = getattr(function, "__name__", None)
        for cls, plain, path in self.members.get(name, ()) if isinstance(name, str) else ():
            if bound:
                if isinstance(owner, cls) or (isinstance(owner, type) and issubclass(owner, cls)):
                    yield path, takes(self.signatures[path], args, kwargs)
            elif function is plain:  # a static method, or `Class.method(object)`
                first = args[1:] if args and isinstance(args[0], cls) else args
                yield path, takes(self.signatures[path], first, kwargs)
        if bound and name == "__init__":
            for base in type(owner).__mro__:
                if maker_of(base)[0] is getattr(function, "__func__", None):
                    for path in self.objects.get(id(base), ()):
                        yield path, takes(self.signatures[path], args, kwargs)

    def _objects(self, function: Any) -> Iterator[str]:
        yield from self.objects.get(id(function), ())
        if isinstance(function, type):
            for base in function.__mro__[1:]:
                if maker_of(base) == maker_of(function):
                    yield from self.objects.get(id(base), ())


class Recorder:
    """The plugin: what each test calls."""

    def __init__(self) -> None:
        self.names: Names | None = None
        self.test: str | None = None
        self.now: set[tuple[str, bool]] = set()
        self.ran: set[str] = set()
        self.partly: set[str] = set()
        self.failed = False
        # Names, by the test that calls them: with TVM's arguments, and with others.
        self.called: dict[str, set[str]] = defaultdict(set)
        self.otherwise: dict[str, set[str]] = defaultdict(set)

    def tried(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function for a test, and note that."""
        result = function(*args, **kwargs)
        self.note(function, args, kwargs, sys._getframe(1).f_code.co_filename)
        return result

    def decorator(self, function: Any) -> Any:
        """Note what a test decorates with: it sees the frame of the test, not one of ours."""
        self.note(function, (None,), {}, sys._getframe(1).f_code.co_filename)
        return function

    def entered(self, this: Any) -> None:
        """Note that this project calls a method which a class of the tests has in place of ours."""
        code = sys._getframe(1).f_code
        if self.names is not None:
            for cls, _, path in self.names.members.get(code.co_name, ()):
                if isinstance(this, cls):
                    given = [None] * (code.co_argcount - 1)
                    self._noted(
                        path, takes(self.names.signatures[path], given, {}), code.co_filename
                    )

    def note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], file: str) -> None:
        if self.names is None:
            return
        for path, fits in self.names.of(function, args, kwargs):
            self._noted(path, fits, file)

    def _noted(self, path: str, fits: bool, file: str) -> None:
        if self.test is None:  # while a file is imported
            self._keep(str(Path(file).relative_to(ROOT)), path, fits)
        else:
            self.now.add((path, fits))

    def _keep(self, test: str, path: str, fits: bool) -> None:
        (self.called if fits else self.otherwise)[test].add(path)

    def pytest_sessionstart(self) -> None:
        """Look the names up, and note the calls that script in the tests makes.

        Not before: `tests/conftest.py` says how nodes are made.
        """
        self.names = Names(*compared())
        from tilewright.script.evaluation import Evaluation

        guard = Evaluation.guard

        def noting(this: Any, node: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            result = guard(this, node, function, *args, **kwargs)
            if isinstance(node, ast.Call) and this.source.name.startswith(str(TESTS)):
                self.note(function, args, kwargs, this.source.name)
            return result

        Evaluation.guard = noting  # type: ignore[method-assign]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Forget nothing of tests some of whose cases don't run."""
        self.partly.update(item.nodeid.partition("[")[0] for item in items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid.partition("[")[0]
        self.now, self.failed = set(), False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed = self.failed or not report.passed

    def pytest_runtest_logfinish(self) -> None:
        assert self.test is not None
        if not self.failed:
            self.ran.add(self.test)
            for path, fits in self.now:
                self._keep(self.test, path, fits)
        self.test = None

    def pytest_sessionfinish(self) -> None:
        assert self.names is not None
        record = json.loads(CALLED.read_text())
        for kind, found in ((BOUND, self.called), ("others", self.otherwise)):
            record[kind] = self._joined(record[kind], found, self.names.signatures)
        CALLED.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")

    def _joined(
        self, known: dict[str, str], found: dict[str, set[str]], names: Container[str]
    ) -> dict[str, str]:
        """Keep what is known of tests that didn't run; prefer tests that call many names."""
        kept = {
            path: test
            for path, test in known.items()
            if path in found.get(test, ()) or (test not in self.ran - self.partly and path in names)
        }
        for test in sorted(found, key=lambda each: (-len(found[each]), each)):
            for path in found[test]:
                kept.setdefault(path, test)
        return kept


def record(arguments: list[str]) -> int:
    """Run tests, and keep what they call."""
    recorder = Recorder()
    trace(TESTS, recorder.tried, recorder.decorator, recorder.entered)
    options = ["--assert=plain", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    return int(pytest.main([*options, *arguments], plugins=[recorder]))


def main() -> int:
    """Run tests and count, or list what they don't call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="tests, and options for pytest")
    parser.add_argument("--list", metavar="PACKAGE", help="show what isn't called")
    options, more = parser.parse_known_args()
    known = json.loads(CALLED.read_text())
    status = 0
    if options.list is None:
        status = record([*(options.tests or sorted(set(known[BOUND].values()))), *more])
        known = json.loads(CALLED.read_text())
    called, otherwise = known[BOUND], known["others"]
    rows, comparison = compared()
    texts = signatures(rows, comparison)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.path not in texts:
            continue
        state = "called" if row.path in called else "ours" if row.path in otherwise else "never"
        counts[title(row.package)][state] += 1
        wanted = options.list is not None and title(row.package).startswith(title(options.list))
        if wanted and state != "called":
            print(f"{row.path:60} {state:6} {texts[row.path]}")
    counts["all"] = sum(counts.values(), Counter())
    for package, found in counts.items():
        shown = f"{found['called']} of {found.total()} with TVM's arguments"
        print(f"{package:45} {shown}, {found['ours']} with ours only, {found['never']} never")
    return status


if __name__ == "__main__":
    sys.exit(main())
