"""How IR nodes are declared.

A node is an immutable record declared once::

    @node
    class Select(Expr):
        condition: Expr = child()
        true_value: Expr = child()
        false_value: Expr = child()

From the declaration come slots, the constructor, ``replace``, the hooks that visitors and mutators
use, structural equality and hash, and the default representation. Each field has a role:

- ``child``: a node (or ``None``); ``children``: a tuple of nodes; ``child_map``: a dict whose
  values are nodes. Traversals descend into these.
- ``definition`` / ``definitions``: a ``Var`` or ``Buffer`` (or tuple) that this node brings into
  scope. Traversals don't descend; equality and hash match definitions by position.
- ``attr``: a Python value (str, int, bool, dict of Python values and expressions …), compared with
  ``==``. Traversals don't descend.

Tuples may be given as lists, and as ``None`` if that is their default.
Where TVM calls the parameter of a field otherwise, ``alias`` is that name; ``replace`` and
attributes have the field's.

A field declared with ``derived()`` is a slot filled by ``__post_init__``, or by the constructor,
from a child's slot of the same name (``derived("value")``) or a function of the node
(``derived(function)``); it is neither compared nor traversed.

A class may define a constructor of its own, which takes the fields by name. One that says
``init_takes_fields = False`` needn't: it hands the fields to ``self.fill``, and ``of_fields`` makes
nodes of fields, as the generated constructor does otherwise. Where constructors shall
take numbers for child nodes, the class has ``as_children``, which makes nodes of all of them, and
``child_class``, the class of these nodes.

Four class attributes say how symbols behave: ``symbol = True`` makes a node one that equality
matches by position; ``own_scope = True`` makes its definitions parameters visible only in its own
fields, so that one object may occur in several places of a program; ``defining_fields`` names
fields that aren't definitions but have variables which are defined there, such as extents;
``early_fields`` names children that hold definitions which all other fields may use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tilewright.support.settings import setting

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        """Only type checkers use the real one."""
        return lambda decorated: decorated


_REQUIRED = object()


class Field:
    """The role and default of one field of a node class."""

    __slots__ = ("alias", "default", "name", "role", "source")

    def __init__(
        self,
        role: str,
        default: object = _REQUIRED,
        source: str | Callable[[Any], Any] = "",
        alias: str = "",
    ) -> None:
        self.role = role
        self.default = default
        self.source = source
        self.alias = alias
        self.name = ""

    @property
    def parameter(self) -> str:
        """The name of the constructor's parameter."""
        return self.alias or self.name

    @property
    def required(self) -> bool:
        """Whether the constructor needs a value for this field."""
        return self.default is _REQUIRED


def child(*, default: object = _REQUIRED, alias: str = "") -> Any:
    """Declare a field that holds one node, or ``None``."""
    return Field("child", default, alias=alias)


def children(*, default: object = _REQUIRED, alias: str = "") -> Any:
    """Declare a field that holds a tuple of nodes."""
    return Field("children", default, alias=alias)


def child_map(*, default: object = _REQUIRED) -> Any:
    """Declare a field that holds a dict with nodes as values."""
    return Field("child_map", default)


def definition(*, default: object = _REQUIRED) -> Any:
    """Declare a field that holds a variable or buffer which the node defines."""
    return Field("definition", default)


def definitions(*, default: object = _REQUIRED) -> Any:
    """Declare a field that holds a tuple of variables or buffers which the node defines."""
    return Field("definitions", default)


def attr(*, default: object = _REQUIRED, alias: str = "") -> Any:
    """Declare a field that holds a Python value."""
    return Field("attr", default, alias=alias)


def derived(source: str | Callable[[Any], Any] = "", *, init: Literal[False] = False) -> Any:
    """Declare a slot that ``__post_init__`` fills; ``init`` is for type checkers.

    With ``source``, the constructor copies the slot of the same name from that child, or calls the
    function for the value.
    """
    return Field("derived", None, source)


class Node:
    """Base of all IR nodes: immutable, compared by identity unless said otherwise."""

    # ``span`` is where the node came from in source text, if it did; it never takes part in
    # comparisons and is set after construction by parsers only. ``_contents`` remembers what
    # ``ir.contents`` found out about the tree.
    __slots__ = ("__weakref__", "_contents", "_span")

    if TYPE_CHECKING:
        _contents: int | None

    node_fields: tuple[Field, ...] = ()
    """Declared fields, in constructor order (class attribute)."""

    if TYPE_CHECKING:

        def map_children(self, function: Callable[[Any], Any]) -> Self:
            """Apply ``function`` to every child; return the same object if none changed."""

        def child_nodes(self) -> list[Node]:
            """All children in declaration order (``None`` left out)."""

        def replace(self, **changes: object) -> Self:
            """Return a copy with some fields changed."""

        def fill(self, *fields: Any) -> None:
            """Fill the slots, in a constructor that doesn't take the fields themselves."""

        @classmethod
        def of_fields(cls, *fields: Any, **named: Any) -> Self:
            """Make a node of its fields; of classes with a constructor of their own."""

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        """Fill an unpickled or copied node: what its contents are, each process counts its way."""
        for name, value in {**state[1], "_contents": None}.items():
            object.__setattr__(self, name, value)

    def same_as(self, other: object) -> bool:
        """Whether ``other`` is this very node."""
        return self is other

    @property
    def span(self) -> Any:
        """Source location, or ``None``."""
        return getattr(self, "_span", None)

    def __repr__(self) -> str:
        inner = ", ".join(
            f"{field.name}={getattr(self, field.name)!r}"
            for field in self.node_fields
            if field.role != "derived"
        )
        return f"{type(self).__name__}({inner})"


def set_span(node: Node, span: object) -> None:
    """Attach a source location to a node (parsers only)."""
    object.__setattr__(node, "_span", span)


N = TypeVar("N", bound=type)


@dataclass_transform(
    field_specifiers=(child, children, child_map, definition, definitions, attr, derived),
    eq_default=False,
)
def node(cls: N) -> N:
    """Turn a class body of role declarations into an immutable, slotted node class."""
    own: list[Field] = []
    namespace = dict(cls.__dict__)
    for name in namespace.get("__annotations__", {}):
        value = namespace.get(name)
        if isinstance(value, Field):
            value.name = name
            own.append(value)
            del namespace[name]
    inherited = [field for base in cls.__mro__[1:2] for field in getattr(base, "node_fields", ())]
    fields = tuple(inherited + own)
    namespace["node_fields"] = fields
    namespace["__slots__"] = tuple(field.name for field in own)
    for unwanted in ("__dict__", "__weakref__"):
        namespace.pop(unwanted, None)
    if not namespace.get("init_takes_fields", True):
        namespace["fill"] = _make_init(fields, "__post_init__", cls, "fill")
        namespace["of_fields"] = classmethod(_make_init(fields, "__post_init__", cls, "of_fields"))
    # A class without fields of its own is constructed as its base is, also if by hand.
    elif "__init__" not in namespace and (own or not inherited or "__post_init__" in namespace):
        namespace["__init__"] = _make_init(fields, "__post_init__", cls, "__init__")
    make = "type(self).of_fields" if "of_fields" in namespace else "type(self)"
    namespace["map_children"] = _make_map_children(fields, make)
    namespace["child_nodes"] = _make_child_nodes(fields)
    namespace["replace"] = _make_replace(fields, make)
    if setting("freeze_nodes"):
        namespace["__setattr__"] = _refuse_assignment
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made  # same class, rebuilt with slots


def _refuse_assignment(self: Node, name: str, value: object) -> None:
    raise AttributeError(f"{type(self).__name__} is immutable: use replace({name}=...)")


def _make_init(fields: tuple[Field, ...], hook: str, cls: type, name: str) -> Callable[..., None]:
    """Generate the constructor; tuples are made from lists so that nodes stay immutable.

    As ``of_fields`` it is a function of the class that gives the node.
    """
    frozen = setting("freeze_nodes")
    scope: dict[str, Any] = {"_set": object.__setattr__, "_new": object.__new__}
    parameters: list[str] = []
    body: list[str] = ["self = _new(cls)"] if name == "of_fields" else []
    if hasattr(cls, "as_children"):
        scope["_as_children"] = cls.as_children
        given = [field.name for field in fields if field.role == "child"]
        scope["_kind"] = getattr(cls, "child_class")  # noqa: B009  # it is no attribute of every type
        known = " and ".join(f"isinstance({each}, _kind)" for each in given)
        body.append(f"if not ({known}): {', '.join(given)}, = _as_children({', '.join(given)})")

    def assign(name: str, value: str) -> None:
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")

    for field in fields:
        if field.role == "derived":
            if callable(field.source):
                scope[f"_derive_{field.name}"] = field.source
                assign(field.name, f"_derive_{field.name}(self)")
            elif field.source:
                assign(field.name, f"{field.source}.{field.name}")
            continue
        value = field.parameter
        if field.required:
            parameters.append(value)
        else:
            scope[f"_default_{value}"] = field.default
            parameters.append(f"{value}=_default_{value}")
        if field.role in ("children", "definitions"):
            others = "" if field.default is not None else f"() if {value} is None else "
            value = f"{value} if type({value}) is tuple else {others}tuple({value})"
        elif field.role == "child_map":
            value = f"{value} or {{}}"
        assign(field.name, value)
    assign("_contents", "None")
    if hasattr(cls, hook):
        body.append(f"self.{hook}()")
    first = "self"
    if name == "of_fields":
        first = "cls"
        body.append("return self")
    text = f"def {name}({first}, {', '.join(parameters)}):\n    " + "\n    ".join(body or ["pass"])
    exec(text, scope)
    init: Callable[..., None] = scope[name]
    return init


def _make_replace(fields: tuple[Field, ...], make: str) -> Callable[..., Any]:
    given = {field.name: field.parameter for field in fields if field.role != "derived"}
    names = list(given)
    parameters = ", ".join(f"{name}=_same" for name in names)
    values = ", ".join(
        f"{given[name]}=self.{name} if {name} is _same else {name}" for name in names
    )
    star = ", *, " if names else ""
    scope: dict[str, Any] = {"_same": _REQUIRED}
    exec(f"def replace(self{star}{parameters}): return {make}({values})", scope)
    function: Callable[..., Any] = scope["replace"]
    return function


def _make_map_children(
    fields: tuple[Field, ...], make: str
) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """Generate ``map_children``: straight-line code per class, no reflection at run time."""
    if not _has_children(fields):
        return _itself
    lines = ["def map_children(self, function):", "    changed = False"]
    arguments, unvisited = [], []
    for field in fields:
        name = field.name
        if field.role == "child":
            lines += [
                f"    {name} = old = self.{name}",
                "    if old is not None:",
                f"        {name} = function(old)",
                f"        if {name} is not old: changed = True",
            ]
        elif field.role == "children":
            lines += [
                f"    {name} = old = self.{name}",
                "    if old:",
                f"        {name} = tuple([function(item) for item in old])",
                f"        for a, b in zip({name}, old):",
                "            if a is not b:",
                "                changed = True",
                "                break",
                f"        else: {name} = old",
            ]
        elif field.role == "child_map":
            lines += [
                f"    {name} = old = self.{name}",
                "    if old:",
                f"        {name} = {{key: function(item) for key, item in old.items()}}",
                f"        if any({name}[key] is not old[key] for key in old): changed = True",
                f"        else: {name} = old",
            ]
        elif field.role != "derived":
            unvisited.append(f"    {name} = self.{name}")
        if field.role != "derived":
            arguments.append(f"{field.parameter}={name}")
    lines += ["    if not changed: return self", *unvisited]
    lines.append(f"    made = {make}({', '.join(arguments)})")
    lines.append("    span = getattr(self, '_span', None)")
    lines.append("    if span is not None: set_span(made, span)")
    lines.append("    return made")
    scope: dict[str, Any] = {"set_span": set_span}
    exec("\n".join(lines), scope)
    function: Callable[[Any, Callable[[Any], Any]], Any] = scope["map_children"]
    return function


def _has_children(fields: tuple[Field, ...]) -> bool:
    return any(field.role in ("child", "children", "child_map") for field in fields)


def is_leaf_class(node_class: type[Node]) -> bool:
    """Whether nodes of a class never have children."""
    return not _has_children(node_class.node_fields)


def _itself(node: Node, function: Callable[[Any], Any]) -> Node:
    """``map_children`` of nodes that have none."""
    return node


def _make_child_nodes(fields: tuple[Field, ...]) -> Callable[[Any], list[Node]]:
    lines = ["def child_nodes(self):"]
    single = [field.name for field in fields if field.role == "child"]
    if single and not any(field.role in ("children", "child_map") for field in fields):
        # Most expressions: a list display is much faster than a list that grows.
        lines += [f"    {name} = self.{name}" for name in single]
        present = " and ".join(f"{name} is not None" for name in single)
        lines.append(f"    if {present}: return [{', '.join(single)}]")
    lines.append("    found = []")
    for field in fields:
        if field.role == "child":
            lines.append(f"    if self.{field.name} is not None: found.append(self.{field.name})")
        elif field.role == "children":
            lines.append(f"    found.extend(self.{field.name})")
        elif field.role == "child_map":
            lines.append(f"    found.extend(self.{field.name}.values())")
    lines.append("    return found")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    function: Callable[[Any], list[Node]] = scope["child_nodes"]
    return function
