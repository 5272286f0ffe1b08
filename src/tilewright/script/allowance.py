"""What script text that isn't the user's own source may use, and how much of it.

Text from elsewhere (a database, a file, a message) is evaluated under an *allow-list*. A value is
of a built-in Python type or of a class that a dialect has registered here; an attribute is one that
was registered with its class, or a name of a dialect's vocabulary; a function is one of these
vocabularies, a bounded builtin (``bounded.py``), a lambda of the text or what the caller passed as
``extra_vars``. Functions and modules stand before ``(`` or ``.`` only, they are no values. What is
not listed does not resolve.

Work is bounded as well. Every step costs, and so does the size of what it gives: a value is
weighed as the tree that a reader of it would walk, since a few lines can make a graph of shared
nodes that is as large as one likes. The bound grows with the syntax of the text (comments and long
strings buy nothing), of which no program's printed form needs more than three steps per node, up to
an absolute one. What would not even fit as a syntax tree is refused before it is read.
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from tilewright.ir import Node
from tilewright.support.errors import ParseError

BASE_WORK = 300_000
WORK_PER_NODE = 8
MAX_WORK = 8_000_000
"""The most steps that any text may take; printed programs of ``MAX_SIGNS`` need 2 to 5 million."""

MAX_SIGNS = 3_000_000
"""The most words, signs and lines of a text, which bounds its syntax tree (500 bytes for each).

A ResNet-50 that is lowered to loops over flat buffers has 175,000 of them, in 650 kB."""

MAX_BITS = 4096
"""The longest integer that text may compute."""

_KEY_SIZE = 64
_REMEMBERED = 32

CONTAINERS = (list, tuple, dict, set)
SCALARS = (type(None), bool, int, float, str, bytes, type(...))
BUILTIN = (*CONTAINERS, *SCALARS, range, slice)

_ATTRIBUTES: dict[type, frozenset[str]] = {}
_NAMESPACES: dict[type, Callable[[Any], Iterable[str]]] = {}
_VOCABULARIES: list[types.ModuleType] = []
_CONSTRUCTORS: set[type] = set()
_PRICES: dict[type, tuple[int, Callable[[Any], object] | None]] = {}


class Decorator:
    """Base of what a dialect offers to stand after ``@``; nothing else in text may name it."""


def register_values(*classes: type, attributes: str = "") -> None:
    """Let text use values of these classes, and their attributes of these names."""
    for cls in classes:
        _ATTRIBUTES[cls] = frozenset(attributes.split())
    _attributes_of.clear()


def register_namespace(cls: type, names: Callable[[Any], Iterable[str]]) -> None:
    """Let text use values of a class, and the attributes that ``names`` gives for each value."""
    register_values(cls)
    _NAMESPACES[cls] = names


def register_vocabulary(module: types.ModuleType) -> None:
    """Let text use the names that a module exports in ``__all__`` or makes in ``__getattr__``."""
    if module not in _VOCABULARIES:
        _VOCABULARIES.append(module)


def register_constructors(*classes: type) -> None:
    """Let text call these classes, where a vocabulary has them."""
    _CONSTRUCTORS.update(classes)


def register_price(cls: type, steps: int, weighed: Callable[[Any], object] | None = None) -> None:
    """Let a value cost more to make than its size says: so many steps, and the size of another."""
    _PRICES[cls] = steps, weighed


_attributes_of: dict[type, frozenset[str] | None] = {}


def attributes_of(cls: type) -> frozenset[str] | None:
    """Return the attributes of a class that text may use, ``None`` if it may not use the class."""
    if cls not in _attributes_of:
        listed = [_ATTRIBUTES[base] for base in cls.__mro__ if base in _ATTRIBUTES]
        _attributes_of[cls] = frozenset().union(*listed) if listed else None
    return _attributes_of[cls]


def is_value(value: object) -> bool:
    """Whether text may have a value of this type; what is inside is not looked at."""
    return type(value) in BUILTIN or attributes_of(type(value)) is not None


def may_name(owner: object, name: str) -> bool:
    """Whether text may write ``owner.name``, as far as the name says it."""
    if name.startswith("_"):
        return False
    if isinstance(owner, types.ModuleType):
        exported = getattr(owner, "__all__", ())
        return owner in _VOCABULARIES and (name in exported or name not in vars(owner))
    namespace = _NAMESPACES.get(type(owner))
    return name in (namespace(owner) if namespace else attributes_of(type(owner)) or ())


def may_be_named(value: object) -> bool:
    """Whether what an attribute gives may be used: as a value, a function or a vocabulary."""
    if isinstance(value, types.ModuleType):
        return value in _VOCABULARIES
    if isinstance(value, type):
        return value in _CONSTRUCTORS
    return isinstance(value, (types.FunctionType, types.MethodType)) or is_value(value)


_SIGN = re.compile(r"\w+|[^\w\s]|\n")


def check_length(text: str) -> None:
    """Refuse text whose syntax tree would take up the memory; comments count too."""
    if len(text) > MAX_SIGNS and any(islice(_SIGN.finditer(text), MAX_SIGNS, None)):
        raise ParseError(f"text from elsewhere may have {MAX_SIGNS} words and signs, not more")


def count_syntax(body: Iterable[ast.stmt]) -> int:
    """Count the statements and expressions of a program."""
    counted = (ast.stmt, ast.expr)
    return sum(isinstance(node, counted) for stmt in body for node in ast.walk(stmt))


class Budget:
    """The work that evaluating one text may still cost.

    ``count`` gives the number of nodes of its syntax; it is asked when the text turns out to need
    more than every text may have.
    """

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        self.limit = BASE_WORK
        self.left = self.limit
        self._count = count
        self._sizes: dict[int, tuple[Any, int]] = {}

    def _grow(self) -> None:
        """Allow what the syntax of the text is worth."""
        count, self._count = self._count, None
        if count is not None:
            more = min(WORK_PER_NODE * count(), MAX_WORK - BASE_WORK)
            self.limit += more
            self.left += more

    def spend(self, amount: int = 1) -> None:
        """Take note of work; refuses what is beyond the bound."""
        self.left -= amount
        if self.left < 0:
            self._grow()
            if self.left < 0:
                raise ParseError(
                    f"evaluating the text takes more than {self.limit} steps; "
                    "text from elsewhere may not compute that much"
                )

    def admit(self, value: Any) -> None:
        """Check what an expression gave, and charge for its size."""
        cls = type(value)
        if cls is int:
            if value.bit_length() > MAX_BITS:
                raise ParseError(f"text may not compute integers of more than {MAX_BITS} bits")
        elif cls is str or cls is bytes:
            self.spend(len(value) >> 4)
        elif cls in CONTAINERS or isinstance(value, Node):
            self.spend(self.size(value) >> 3)
        elif not is_value(value):
            raise ParseError(
                f"text may not use a {cls.__name__} as a value; only numbers, text, lists, "
                "dictionaries, and what the dialects make"
            )
        price = _PRICES.get(cls)
        if price is not None:
            steps, weighed = price
            self.spend(steps if weighed is None else steps + self.size(weighed(value)))

    def size(self, value: object) -> int:
        """Count the parts of a value, those that are shared as often as they are met."""
        total = visited = 0
        todo = [value]
        while todo:
            item = todo.pop()
            known = self._sizes.get(id(item))
            if known is not None:
                total += known[1]
            else:
                visited += 1
                total += 1
                todo.extend(self._members(item))
            if total > self.limit:
                self._grow()
                if total > self.limit:
                    raise ParseError(f"the value has more than {self.limit} parts")
        self.spend(visited >> 3)
        if total > _REMEMBERED:
            self._sizes[id(value)] = value, total  # the value stays alive, and so its id
        return total

    def _members(self, value: Any) -> Iterable[Any]:
        if isinstance(value, Node):
            return value.child_nodes()
        cls = type(value)
        if cls is dict:
            self.spend_keys(value)
            return (*value.keys(), *value.values())
        if cls is set:
            self.spend_keys(value)
        if cls in CONTAINERS:
            made: Iterable[Any] = value
            return made
        if cls is str or cls is bytes:
            self.spend(len(value) >> 4)
        return ()

    def spend_keys(self, keys: Iterable[object]) -> None:
        """Charge for keys of a dictionary or set: those that aren't text may collide on purpose."""
        count = sum(type(key) is not str for key in keys)
        if count > _KEY_SIZE:
            self.spend(count * count >> 7)

    def admit_key(self, value: object) -> None:
        """Refuse large values as keys: they are hashed again each time."""
        if type(value) not in SCALARS and self.size(value) > _KEY_SIZE:
            raise ParseError("a key must be a small value")
        try:
            hash(value)
        except TypeError as error:
            raise ParseError(f"a key can't change: {error}") from None

    def members_of(self, value: Any) -> Iterable[Any]:
        """Return what may be iterated over, having paid for it."""
        if type(value) not in (*CONTAINERS, str, range):
            raise ParseError(f"a {type(value).__name__} can't be iterated over in text")
        if type(value) is range:
            self.spend(_length(value))
        else:
            self.spend(self.size(value) >> 3)
            self.spend(len(value))
        found: Iterable[Any] = value
        return found


def _length(values: range) -> int:
    try:
        return len(values)
    except OverflowError:  # more than a machine word counts
        return 1 << 63
