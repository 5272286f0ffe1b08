"""``IRModule``: functions by name. The unit that every pass takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir.expr_checks import check_name
from tilewright.ir.node import Node, attr, child_map, node
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches

if TYPE_CHECKING:
    from typing_extensions import Self

#: Attribute of functions: the name under which a build exports them.
GLOBAL_SYMBOL = "global_symbol"


class BaseFunc(Node):
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
        return self.replace(attrs={k: v for k, v in self.attrs.items() if k != attr_key})

    def script(self, **options: object) -> str:
        """Return the function as script text (see ``tilewright.script``)."""
        return _printer(self, **options)

    def show(self, **options: object) -> None:
        """Print the function as highlighted script."""
        _shower(self, **options)

    def _repr_html_(self) -> str:
        return _drawer(self)


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


@node
class IRModule(Node):
    """Functions by name, and module attributes. Immutable: ``with_function`` returns a copy."""

    functions: Mapping[str, BaseFunc] = child_map(default=None)
    attrs: Mapping[str, Any] = attr(default=None)

    def __post_init__(self) -> None:
        if self.attrs is None:
            object.__setattr__(self, "attrs", {})
        if any(isinstance(name, GlobalVar) for name in self.functions):
            named = {getattr(name, "name", name): f for name, f in self.functions.items()}
            object.__setattr__(self, "functions", named)
        for name, function in self.functions.items():
            if not isinstance(name, str) or not isinstance(function, BaseFunc):
                raise VerifyError(
                    "IRModule takes a dict of functions by name, "
                    f"got {name!r}: {type(function).__name__}"
                )

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

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """Return all functions with their global variables."""
        return [(GlobalVar(name), function) for name, function in self.functions.items()]

    def with_function(self, name: str | GlobalVar, function: BaseFunc) -> IRModule:
        """Return a copy in which ``name`` is ``function``."""
        name = name.name if isinstance(name, GlobalVar) else name
        return self.replace(functions={**self.functions, name: function})

    def without_function(self, name: str) -> IRModule:
        """Return a copy without a function."""
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
        return self.replace(attrs={k: v for k, v in self.attrs.items() if k != attr_key})

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

    def script(self, **options: object) -> str:
        """Return the module as script text, which parses back to a structurally equal module."""
        return _printer(self, **options)

    def show(self, **options: object) -> None:
        """Print the module as highlighted script."""
        _shower(self, **options)

    def _repr_html_(self) -> str:
        return _drawer(self)


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
