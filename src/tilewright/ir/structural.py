"""Structural equality and structural hash.

Two trees are structurally equal if they are the same up to the identity and the names of their
variables and buffers: both are matched by position of first appearance. Variables that neither of
them defines are the same objects, unless ``map_free_vars`` says that they are matched as well.
Block names, annotations and function attributes count. Large constants (``NDArray`` attributes)
compare by content, or by shape and dtype only when ``ignore_ndarray`` is set.

The hash is a hexadecimal BLAKE2b digest over the same walk, so it is equal for equal trees, stable
across processes, machines and versions of Python, and suitable as a database key.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.ir.dtype import ScalableLanes, lanes_of
from tilewright.ir.expr import Expr, Var
from tilewright.ir.module import BaseFunc
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.support.errors import VerifyError

_HASH_VERSION = b"tilewright-structural-1"


def is_symbol(value: object) -> bool:
    """Whether a node is matched by position rather than by content (variables, buffers)."""
    return getattr(type(value), "symbol", None) is True or type(value) is Var


def _parameters(value: Node) -> list[Any]:
    return [
        var
        for field in value.node_fields
        if field.role == "definitions"
        for var in getattr(value, field.name)
    ]


_COMPARED: dict[type, tuple[tuple[str, bool], ...]] = {}


def _compared_fields(kind: type[Node]) -> tuple[tuple[str, bool], ...]:
    """Names of a class's fields, and whether each defines variables; those that do come first."""
    defining = getattr(kind, "defining_fields", ())
    early = getattr(kind, "early_fields", ())
    fields = [
        (field.name, field.role in ("definition", "definitions") or field.name in defining)
        for field in kind.node_fields
        if field.role != "derived"
    ]
    fields.sort(key=lambda field: not field[1] and 1 + (field[0] not in early))
    _COMPARED[kind] = tuple(fields)
    return _COMPARED[kind]


class _Difference(Exception):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason


class _Comparer:
    def __init__(self, ignore_ndarray: bool, map_free: bool) -> None:
        self.left: dict[Any, Any] = {}
        self.right: dict[Any, Any] = {}
        self.ignore_ndarray = ignore_ndarray
        self.map_free = map_free

    def compare(self, a: object, b: object, path: str, defining: bool = False) -> None:
        """Compare two values; with ``defining``, variables that are new are defined by them."""
        if isinstance(a, Node):
            if is_symbol(a):
                self.symbol(a, b, path, defining)
                return
            if type(a) is not type(b):
                raise _Difference(path, f"{_kind(a)} against {_kind(b)}")
            own_scope = getattr(type(a), "own_scope", False)
            if own_scope:
                self.forget(a, b)
            for name, defines in _COMPARED.get(type(a)) or _compared_fields(type(a)):
                self.compare(
                    getattr(a, name), getattr(b, name), f"{path}.{name}", defining or defines
                )
            if own_scope:
                self.forget(a, b)
        elif isinstance(a, (tuple, list)):
            if not isinstance(b, (tuple, list)):
                raise _Difference(path, f"{_kind(a)} against {_kind(b)}")
            if len(a) != len(b):
                raise _Difference(path, f"{len(a)} items against {len(b)}")
            for index, (x, y) in enumerate(zip(a, b)):
                self.compare(x, y, f"{path}[{index}]", defining)
        elif isinstance(a, Mapping):
            self.mapping(a, b, path)
        elif hasattr(a, "content_key"):
            if not hasattr(b, "content_key") or a.content_key(self.ignore_ndarray) != b.content_key(
                self.ignore_ndarray
            ):
                raise _Difference(path, "constants differ")
        elif isinstance(a, float) and isinstance(b, float):
            if struct.pack("<d", a) != struct.pack("<d", b) and not (a != a and b != b):
                raise _Difference(path, f"{a!r} against {b!r}")  # NaN equals NaN, -0.0 is not 0.0
        elif not (type(a) is type(b) or (isinstance(a, str) and isinstance(b, str))) or a != b:
            raise _Difference(path, f"{a!r} against {b!r}")

    def forget(self, a: Node, b: Node) -> None:
        """Forget how the parameters of two functions match: one object may occur in two places."""
        for var in _parameters(a):
            self.left.pop(var, None)
        for var in _parameters(b):
            self.right.pop(var, None)

    def mapping(self, a: Mapping[Any, object], b: object, path: str) -> None:
        if not isinstance(b, Mapping) or len(a) != len(b):
            raise _Difference(path, f"{_kind(a)} against {_kind(b)}")
        for key, value in a.items():
            other = self.left.get(key) if isinstance(key, Node) else key
            if other is None or other not in b:
                raise _Difference(path, f"{key!r} is on one side only")
            where = f"{path}[{key!r}]"
            if isinstance(value, BaseFunc):
                # Functions share no variables, even if somebody used one object in two of them.
                _Comparer(self.ignore_ndarray, self.map_free).compare(value, b[other], where)
            else:
                self.compare(value, b[other], where, defining=isinstance(key, Node))

    def symbol(self, a: Any, b: Any, path: str, defining: bool) -> None:
        known = self.left.get(a)
        if known is not None:
            if known is not b:
                raise _Difference(path, f"{a.name} stands for {known.name}, found {_name(b)}")
            return
        if type(a) is not type(b) or b in self.right:
            raise _Difference(path, f"{a.name} against {_name(b)}")
        if not defining and not self.map_free and a is not b:
            raise _Difference(path, f"free variables {a.name} and {_name(b)} are not the same")
        self.left[a], self.right[b] = b, a
        for field in a.node_fields:
            if field.name != "name" and field.role != "derived":
                self.compare(
                    getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}", True
                )


def _kind(value: object) -> str:
    return type(value).__name__


def _name(value: object) -> str:
    return getattr(value, "name", _kind(value))


def first_difference(
    lhs: Node, rhs: Node, map_free_vars: bool = False, *, ignore_ndarray: bool = False
) -> str | None:
    """Return where and how two trees first differ, or ``None`` if they are structurally equal."""
    try:
        _Comparer(ignore_ndarray, map_free_vars).compare(lhs, rhs, "<root>")
    except _Difference as difference:
        return f"{difference.path}: {difference.reason}"
    return None


def structural_equal(
    lhs: Any, rhs: Any, map_free_vars: bool = False, *, ignore_ndarray: bool = False
) -> bool:
    """Whether two nodes (or tuples of nodes) are the same up to variables and buffers.

    Variables that neither tree defines must be the same object; with ``map_free_vars`` they are
    matched by position too.
    """
    return first_difference(lhs, rhs, map_free_vars, ignore_ndarray=ignore_ndarray) is None


def assert_structural_equal(
    lhs: Node, rhs: Node, map_free_vars: bool = False, *, ignore_ndarray: bool = False
) -> None:
    """Raise ``VerifyError`` with the path of the first difference if two trees differ."""
    difference = first_difference(lhs, rhs, map_free_vars, ignore_ndarray=ignore_ndarray)
    if difference is not None:
        raise VerifyError(
            f"the programs differ at {difference}\n--- left\n{lhs!s}\n--- right\n{rhs!s}"
        )


_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[('[^']*'|\"[^\"]*\")\]")


def node_at(root: Any, path: str) -> Any:
    """Return the node at a path, in the notation of :func:`first_difference`.

    >>> node_at(func, "<root>.body.block.body")

    Raises ``VerifyError`` if the path can't be read or followed.
    """
    value, rest = root, path.removeprefix("<root>")
    if rest and rest[0] not in ".[":
        rest = "." + rest
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise VerifyError(f"{path!r} is no path: can't read {rest!r}")
        name, index, key = step.groups()
        try:
            if name is not None:
                value = getattr(value, name)
            else:
                value = value[int(index) if index is not None else key[1:-1]]
        except (AttributeError, KeyError, IndexError, TypeError):
            raise VerifyError(
                f"path {path!r} ends at {path[: len(path) - len(rest)] or '<root>'}: "
                f"a {type(value).__name__} has no {step[0]}"
            ) from None
        rest = rest[step.end() :]
    return value


def expr_equal(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same tree over the same variables (fast, no mapping)."""
    if a is b:
        return True
    if type(a) is not type(b) or a.dtype != b.dtype:
        return False
    if is_symbol(a):
        return False
    for field in a.node_fields:
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.role == "child":
            if not expr_equal(x, y):
                return False
        elif field.role == "children":
            if len(x) != len(y) or not all(map(expr_equal, x, y)):
                return False
        elif isinstance(x, Node):
            if x is not y:
                return False
        elif field.role != "derived" and x != y:
            return False
    return True


_Layout = tuple[str, tuple[str, ...], bool, bool]
_NO_NODE: _Layout = ("", (), False, False)
_LAYOUTS: dict[type, _Layout] = {}


def _layout_of(kind: type) -> _Layout:
    """How the hasher writes a class: its prefix, field names, symbol, own scope."""
    found = _NO_NODE
    if issubclass(kind, Node):
        symbol = kind is Var or getattr(kind, "symbol", None) is True
        names = tuple(
            field.name
            for field in kind.node_fields
            if field.role != "derived" and not (symbol and field.name == "name")
        )
        opening = ("@" if symbol else "(") + kind.__name__
        found = (opening, names, symbol, bool(getattr(kind, "own_scope", False)))
    _LAYOUTS[kind] = found
    return found


class _Hasher:
    def __init__(self, ignore_ndarray: bool, content: Callable[[Any], str] | None = None) -> None:
        self.numbers: dict[Any, int] = {}
        self.out: list[str] = []
        self.ignore_ndarray = ignore_ndarray
        self.content = content

    def walk(self, value: Any) -> None:
        out = self.out
        kind = type(value)
        layout = _LAYOUTS.get(kind) or _layout_of(kind)
        if layout is not _NO_NODE:
            opening, names, symbol, own_scope = layout
            numbers = self.numbers
            if symbol:
                number = numbers.get(value)
                if number is not None:
                    out.append(f"%{number}")
                    return
                numbers[value] = len(numbers)
                out.append(opening)
                if self.content is not None:
                    out.append(value.name)
                for name in names:
                    self.walk(getattr(value, name))
                return
            out.append(opening)
            if own_scope:
                parameters = _parameters(value)
                self.numbers = {var: n for var, n in numbers.items() if var not in parameters}
            for name in names:
                self.walk(getattr(value, name))
            self.numbers = numbers
            out.append(")")
        elif isinstance(value, str):
            out.append(f"s{len(value)}:{value}")
        elif isinstance(value, (tuple, list)):
            out.append(f"[{len(value)}")
            for item in value:
                self.walk(item)
        elif isinstance(value, bool):
            out.append("T" if value else "F")
        elif isinstance(value, int):
            out.append(f"i{value}")
        elif isinstance(value, float):
            out.append("f" + struct.pack("<d", value).hex())
        elif value is None:
            out.append("N")
        elif isinstance(value, Mapping):
            self.mapping(value)
        elif type(value) is Op:
            out.append("o" + value.name)
        elif isinstance(value, ScalableLanes):
            out.append(f"v{value.factor}")
        elif isinstance(value, bytes):
            out.append("b" + value.hex())
        elif hasattr(value, "content_key"):
            if self.content is not None:
                out.append("c" + self.content(value))
            else:
                out.append("c" + value.content_key(self.ignore_ndarray))
        else:
            raise VerifyError(
                f"cannot hash a {type(value).__name__} inside a program: {value!r}; "
                "annotations and attributes hold numbers, text, lists, dicts and expressions"
            )

    def mapping(self, value: Mapping[Any, object]) -> None:
        self.out.append("{" + str(len(value)))
        if value and isinstance(next(iter(value)), Node):
            # Buffer maps: keys are already numbered by the parameters that hold them.
            items = sorted(value.items(), key=lambda item: self.numbers.get(item[0], -1))
        else:
            items = sorted(value.items(), key=lambda item: str(item[0]))
        for key, item in items:
            self.walk(key)
            if isinstance(item, BaseFunc):
                outer, self.numbers = self.numbers, {}
                self.walk(item)
                self.numbers = outer
            else:
                self.walk(item)


def structural_hash(value: object, *, ignore_ndarray: bool = False) -> str:
    """Return a digest (32 hex digits) that is equal for structurally equal trees."""
    hasher = _Hasher(ignore_ndarray)
    hasher.walk(value)
    return hashlib.blake2b(_bytes(hasher.out), digest_size=16, key=_HASH_VERSION).hexdigest()


def exact_hash(value: object, content: Callable[[Any], str]) -> str:
    """Return a digest that also differs where names do; ``content`` gives the keys of constants."""
    hasher = _Hasher(False, content)
    hasher.walk(value)
    return hashlib.blake2b(_bytes(hasher.out), digest_size=16).hexdigest()


def _bytes(texts: Iterable[str]) -> bytes:
    return "\x1f".join(texts).encode(errors="surrogatepass")  # any text may be a name


def is_scalar(expr: Expr) -> bool:
    """Whether an expression has one lane."""
    return lanes_of(expr.dtype) == 1
