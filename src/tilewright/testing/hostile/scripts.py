"""Hostile script texts: a program, or an error that says what is wrong, and nothing else.

Valid programs are printed and then changed: a few characters, a few tokens, a few nodes of their
syntax tree, or an expression that attacks in place of one of theirs. What still parses and is well
formed must print to text that parses to an equal program.
"""

from __future__ import annotations

import ast
import copy
import io
import tokenize
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

from tilewright import relax, script
from tilewright.ir import BaseFunc, IRModule, structural_equal
from tilewright.ir.contents import make_collectors
from tilewright.script.scope import load_dialect
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits
from tilewright.testing.hostile.script_corpus import ATTACKS, programs
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify

_CHARACTERS = "()[]{}:,.*+-/%<>=@'\"\\#_0123456789 \n\t\r\x0c\x00éxTIRA"


def make(rng: Random) -> Case:
    """Draw a text."""
    text = rng.choice(programs())
    label = rng.choice(list(_MUTATIONS))
    return Case(label, _MUTATIONS[label](rng, text))


def _characters(rng: Random, text: str) -> str:
    found = list(text)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(found))
        width = rng.choice((0, 1, 1, 1, 5))
        found[place : place + width] = rng.choice(("", rng.choice(_CHARACTERS)))
    return "".join(found)


def _cut(rng: Random, text: str) -> str:
    """Lose or repeat lines, or the end."""
    lines = text.splitlines(keepends=True)
    first = rng.randrange(len(lines))
    last = min(len(lines), first + rng.randint(1, 4))
    how = rng.randrange(4)
    if how == 0:
        return "".join(lines[:first]) + lines[first][: rng.randrange(len(lines[first]) + 1)]
    if how == 1:
        return "".join(lines[:first] + lines[last:])
    if how == 2:
        return "".join(lines[:last] + lines[first:])
    other = rng.randrange(len(lines))
    lines[first], lines[other] = lines[other], lines[first]
    return "".join(lines)


def _tokens(rng: Random, text: str) -> str:
    found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    named = [item for item in found if item.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER,
                                                     tokenize.STRING)]  # fmt: skip
    lines = text.splitlines(keepends=True)
    # From the back, so that the places of those before stay right.
    chosen = rng.sample(named, min(len(named), rng.randint(1, 3)))
    for item in sorted(chosen, key=lambda token: token.start, reverse=True):
        (row, start), (last, end) = item.start, item.end
        if row != last:
            continue
        new = rng.choice(("", rng.choice(named).string, rng.choice(named).string, item.string * 2))
        lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)


def _expressions(tree: ast.AST) -> list[tuple[Any, str, int | None]]:
    """Places of expressions: the node that holds one, its field, and the position in a list."""
    found: list[tuple[Any, str, int | None]] = []
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                found.append((node, name, None))
            elif isinstance(value, list):
                found += [
                    (node, name, k) for k, item in enumerate(value) if isinstance(item, ast.expr)
                ]
    return found


def _put(place: tuple[Any, str, int | None], value: ast.expr) -> None:
    node, name, position = place
    if position is None:
        setattr(node, name, value)
    else:
        getattr(node, name)[position] = value


def _get(place: tuple[Any, str, int | None]) -> ast.expr:
    node, name, position = place
    found: ast.expr = getattr(node, name) if position is None else getattr(node, name)[position]
    return found


def _tree(rng: Random, text: str) -> str:
    """Put expressions in the place of others, and move statements."""
    tree = ast.parse(text)
    donor = rng.choice((tree, tree, ast.parse(rng.choice(programs()))))
    for _ in range(rng.randint(1, 3)):
        places = _expressions(tree)
        if rng.random() < 0.7:
            # A copy: an expression put inside itself would have no end.
            _put(rng.choice(places), copy.deepcopy(_get(rng.choice(_expressions(donor)))))
        else:
            _move_statement(rng, tree)
    return _unparsed(tree, text)


def _move_statement(rng: Random, tree: ast.AST) -> None:
    bodies = [
        body for node in ast.walk(tree) if isinstance(body := getattr(node, "body", None), list)
    ]
    source, goal = rng.choice(bodies), rng.choice(bodies)
    item = rng.choice(source)
    inserted = copy.deepcopy(item)
    if rng.random() < 0.5 and len(source) > 1:
        source.remove(item)
    goal.insert(rng.randint(0, len(goal)), inserted)


def _attack(rng: Random, text: str) -> str:
    """Put expressions that attack, or are odd, in the place of others."""
    tree = ast.parse(text)
    for _ in range(rng.choice((1, 1, 2))):
        _put(rng.choice(_expressions(tree)), ast.Name(f"({rng.choice(ATTACKS)})", ast.Load()))
    return _unparsed(tree, text)


def _bare(rng: Random, text: str) -> str:
    """An attack as a text of its own, or a line of a program."""
    attack = rng.choice(ATTACKS)
    if rng.random() < 0.3:
        return rng.choice(("", "x = ", "T.evaluate(", "for i in ")) + attack
    lines = text.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    start = rng.choice(("", "x = ", "assert ", "return ", "@", "for i in ", "with ", "if "))
    end = ":\n" + indent + "    pass\n" if start in ("for i in ", "with ", "if ") else "\n"
    lines.insert(place, indent + start + attack + end)
    return "".join(lines)


def _unparsed(tree: ast.AST, text: str) -> str:
    try:
        return ast.unparse(tree)
    except (AttributeError, ValueError, TypeError, KeyError, RecursionError):
        return text  # a tree that has no text


_MUTATIONS: dict[str, Callable[[Random, str], str]] = {
    "characters": _characters,
    "lines": _cut,
    "tokens": _tokens,
    "tree": _tree,
    "attack": _attack,
    "bare attack": _bare,
}


def check(text: str) -> str:
    """Parse a text; what parses and is well formed must print and parse again."""
    try:
        program = script.parse(text)
    except TilewrightError as error:
        _render(error)
        return type(error).__name__
    if not isinstance(program, (BaseFunc, IRModule)):
        return "no program"
    try:
        if isinstance(program, (PrimFunc, IRModule)):
            verify(program)
        if isinstance(program, IRModule):
            relax.verify_graph(program)
    except TilewrightError as error:
        _render(error)
        return f"{type(error).__name__} of verify"
    metadata = load_dialect("relax").metadata_of(program)
    again = script.parse(script.to_text(program), {"metadata": metadata})
    if not structural_equal(program, again, map_free_vars=True):
        raise Fault(f"the printed form parses to another program:\n{script.to_text(program)}")
    return "program"


def _render(error: TilewrightError) -> None:
    if not str(error):
        raise Fault(f"an error without a message: {error!r}")


def prepare() -> None:
    """Load what parsing imports on first use, so that the hook sees what text causes only."""
    warnings.simplefilter("ignore")
    for name in script.DIALECTS:
        load_dialect(name)
    Target("native")
    Registry._load_plugins()
    for text in programs():
        check(text)
    make_collectors()


# The Python parser looks for the text's file when it reports an error.
_HARMLESS = ("open ('<unknown>', 'rb'",)
KIND = Kind(make, check, Limits(seconds=10.0, memory=1 << 30, harmless=_HARMLESS), prepare)
