"""``IRModule``: functions by name. The unit that every pass takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.attrs import DictAttrs, ReadOnlyDict
from tilewright.ir.expr_checks import check_name
from tilewright.ir.global_info import GlobalInfo
from tilewright.ir.node import Node, attr, child_map, node
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches

if TYPE_CHECKING:
    from typing_extensions import Self

#: Attribute of functions: the name under which a build exports them.
GLOBAL_SYMBOL = "global_symbol"
#: Attribute of modules: lists of ``GlobalInfo`` by name, what ``IRModule.global_infos`` gives.
GLOBAL_INFOS = "global_infos"


class Shown(Node):
    """Base of functions, modules and statements, which have a text."""

    __slots__ = ()

    def script(self, **options: object) -> str:
        """Return the script text (see ``tilewright.script``), which parses back to an equal one."""
        return _printer(self, **options)

    def __str__(self) -> str:
        """Return the script text, as ``print`` shows it; ``repr`` is short."""
        return repr(self) if _printer is _not_set_up else self.script()

    def show(self, **options: object) -> None:
        """Print the text, highlighted."""
        _shower(self, **options)

    def _repr_html_(self) -> str:
        return _drawer(self)


class BaseFunc(Shown):
    """Base of all functions that a module may hold; ``attrs`` is a dict of Python values."""

    __slots__ = ()
    attrs: Mapping[str, Any]

    def with_attr(
        self, attr_key_or_dict: str | Mapping[str, Any], attr_value: object = None
    ) -> Self:
        """Return a copy with one attribute (or a dict of them) set."""
        changes = attr_key_or_dict
        if isinstance(changes, str):
            changes = {changes: attr_value}
        return self.with_attrs(changes)

    def with_attrs(self, attr_map: Mapping[str, Any]) -> Self:
        """Return a copy with some attributes set."""
        return self.replace(attrs={**self.attrs, **attr_map})

    def without_attr(self, attr_key: str) -> Self:
        """Return a copy without an attribute."""
        return self.replace(attrs=DictAttrs.of(self.attrs).without(attr_key))


@node
class GlobalVar(Node):
    """A reference to a function of the module, by name."""

    name: str = attr(alias="name_hint")

    def __post_init__(self) -> None:
        check_name(self.name, "a function")

    @property
    def name_hint(self) -> str:
        """The name, as TVM calls it."""
        return self.name

    def __repr__(self) -> str:
        return f"@{self.name}"


class FunctionName(str):
    """The name of a function of a module, which has TVM's attributes of global variables."""

    __slots__ = ()

    @property
    def name_hint(self) -> str:
        """The name as plain text."""
        return str(self)

    name = name_hint


class Functions(ReadOnlyDict[str, BaseFunc]):
    """The functions of a module by name: names have a ``name_hint``, and GlobalVars are keys too.

    It is never changed: a module that gets a function gets a dict that has it.
    """

    __slots__ = ()

    INSTEAD = "use mod[name] = function, or with_function"

    def __missing__(self, key: object) -> BaseFunc:
        if isinstance(key, GlobalVar):
            return self[key.name]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key.name if isinstance(key, GlobalVar) else key)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the function of a name or a GlobalVar."""
        return super().get(key.name if isinstance(key, GlobalVar) else key, default)


@node
class IRModule(Shown):
    """Functions by name, and module attributes.

    Any text is a name, as in TVM, and script writes it so that it can be read again; code
    generators say which names compiled functions can have.

    Passes treat a module as a value: ``with_function`` returns a copy, and what is derived from a
    module never changes when the module does. ``mod[name] = func``, ``update_func``, ``update`` and
    ``update_global_info`` change this very object, as TVM's do, for the passes of its users.
    """

    functions: Mapping[str, BaseFunc] = child_map(default=None)
    attrs: Mapping[str, Any] = attr(default=None)

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Sequence[GlobalInfo]] | None = None,
    ) -> None:
        """Make a module of functions by name or ``GlobalVar``.

        Raises ``VerifyError`` if it holds anything else, or infos that are none.
        """
        object.__setattr__(self, "functions", _checked(functions or {}))
        if global_infos:
            attrs = {**(attrs or {}), GLOBAL_INFOS: _infos(global_infos)}
        object.__setattr__(self, "attrs", DictAttrs.of(attrs))
        object.__setattr__(self, "_contents", None)

    @staticmethod
    def from_expr(
        expr: BaseFunc, functions: Mapping[str | GlobalVar, BaseFunc] | None = None
    ) -> IRModule:
        """Make a module of a function, under its ``global_symbol`` or ``main``, and of others."""
        others: dict[Any, BaseFunc] = dict(functions or {})
        return IRModule({**others, expr.attrs.get(GLOBAL_SYMBOL, "main"): expr})

    def __getitem__(self, name: str | GlobalVar) -> Any:
        name = name.name if isinstance(name, GlobalVar) else name
        if name not in self.functions:
            raise VerifyError(
                f"the module has no function {name!r}; {near_matches(name, list(self.functions))}"
            )
        return self.functions[name]

    def __contains__(self, name: object) -> bool:
        return (name.name if isinstance(name, GlobalVar) else name) in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __setitem__(self, var: str | GlobalVar, val: BaseFunc) -> None:
        self.update({var: val})

    def __delitem__(self, var: str | GlobalVar) -> None:
        self._become(functions=self.without_function(var).functions)

    def update_func(self, var: str | GlobalVar, func: BaseFunc) -> None:
        """Put a function into this module, in place of one of that name if there is one."""
        self.update({var: func})

    def update(self, other: IRModule | Mapping[Any, BaseFunc]) -> None:
        """Put all functions of another module, or of a dict, into this one."""
        functions = other.functions if isinstance(other, IRModule) else other
        if not isinstance(functions, Mapping):
            raise VerifyError(f"update takes an IRModule or a dict of functions, got {other!r}")
        self._become(functions=_checked({**self.functions, **_by_name(functions)}))

    def update_global_info(self, name: str, global_info: Sequence[GlobalInfo]) -> None:
        """Set the infos of a name.

        Raises ``VerifyError`` for anything but a list of ``GlobalInfo``.
        """
        made = _infos({**self.global_infos, name: global_info})
        self._become(attrs=DictAttrs({**self.attrs, GLOBAL_INFOS: made}))

    def _become(self, **fields: object) -> None:
        """Change fields of this object; none of the values is shared and changed."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_contents", None)

    @property
    def global_infos(self) -> Mapping[str, tuple[GlobalInfo, ...]]:
        """What the functions share, by name: ``{"vdevice": (VDevice(...), ...)}``.

        It is the module's attribute ``global_infos``.
        """
        found: Mapping[str, tuple[GlobalInfo, ...]] = self.attrs.get(GLOBAL_INFOS, {})
        return found

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """Return all functions with their global variables."""
        return [(GlobalVar(name), function) for name, function in self.functions.items()]

    def with_function(self, name: str | GlobalVar, function: BaseFunc) -> IRModule:
        """Return a copy in which ``name`` is ``function``."""
        name = name.name if isinstance(name, GlobalVar) else name
        return self.replace(functions={**self.functions, name: function})

    def without_function(self, name: str | GlobalVar) -> IRModule:
        """Return a copy without a function; ``VerifyError`` if there is none of that name."""
        self[name]
        name = name.name if isinstance(name, GlobalVar) else name
        return self.replace(functions={k: v for k, v in self.functions.items() if k != name})

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the reference to a function; ``VerifyError`` if there is none of that name."""
        self[name]
        return GlobalVar(name)

    def get_global_vars(self) -> list[GlobalVar]:
        """Return references to all functions."""
        return [GlobalVar(name) for name in self.functions]

    def get_attr(self, attr_key: str) -> Any:
        """Return a module attribute, or ``None``."""
        return self.attrs.get(attr_key)

    def with_attr(self, attr_key: str, attr_value: object) -> IRModule:
        """Return a copy with one module attribute set."""
        return self.with_attrs({attr_key: attr_value})

    def with_attrs(self, attr_map: Mapping[str, Any]) -> IRModule:
        """Return a copy with some module attributes set."""
        return self.replace(attrs={**self.attrs, **attr_map})

    def without_attr(self, attr_key: str) -> IRModule:
        """Return a copy without a module attribute."""
        return self.replace(attrs=DictAttrs.of(self.attrs).without(attr_key))

    def clone(self) -> IRModule:
        """Return a module with the same functions and attributes."""
        return self.replace()

    def map_functions(
        self, function: Callable[[str, Any], Any], kind: type[BaseFunc] = BaseFunc
    ) -> IRModule:
        """Apply ``function(name, func)`` to each function of a class; ``None`` removes it."""
        made: dict[str, BaseFunc] = {}
        changed = False
        for name, old in self.functions.items():
            new = function(name, old) if isinstance(old, kind) else old
            changed = changed or new is not old
            if new is not None:
                made[name] = new
        return self.replace(functions=made) if changed else self


def _by_name(functions: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        FunctionName(getattr(name, "name", name)) if isinstance(name, (str, GlobalVar)) else name: f
        for name, f in functions.items()
    }


def _checked(functions: Mapping[Any, Any]) -> Functions:
    """Functions by name; ``VerifyError`` if there is anything else."""
    if type(functions) is Functions:
        return functions
    made = _by_name(functions)
    for name, function in made.items():
        if not isinstance(name, str) or not isinstance(function, BaseFunc):
            raise VerifyError(
                "IRModule takes a dict of functions by name, "
                f"got {name!r}: {type(function).__name__}"
            )
    return Functions(made)


def _infos(given: Mapping[str, Sequence[GlobalInfo]]) -> dict[str, tuple[GlobalInfo, ...]]:
    for name, infos in given.items():
        known = isinstance(name, str) and isinstance(infos, (list, tuple))
        if not known or not all(isinstance(info, GlobalInfo) for info in infos):
            raise VerifyError(f"global_infos[{name!r}] is a list of GlobalInfo, got {infos!r}")
    return {name: tuple(infos) for name, infos in given.items()}


def _not_set_up(*_: object, **__: object) -> Any:
    raise VerifyError("printing needs `import tilewright.script`")


_printer: Callable[..., str] = _not_set_up
_shower: Callable[..., None] = _not_set_up
_drawer: Callable[[Any], str] = _not_set_up


def set_printer(
    printer: Callable[..., str], shower: Callable[..., None], drawer: Callable[[Any], str]
) -> None:
    """Set how modules print; called once by ``tilewright.script``, a layer above.

    ``drawer`` returns HTML for notebooks.
    """
    global _printer, _shower, _drawer
    _printer, _shower, _drawer = printer, shower, drawer
