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

    def with_attr(self, key: str | Mapping[str, Any], value: object = None) -> Self:
        """Return a copy with one attribute (or a dict of them) set."""
        changes = {key: value} if isinstance(key, str) else dict(key)
        return self.replace(attrs={**self.attrs, **changes})

    def without_attr(self, key: str) -> Self:
        """Return a copy without an attribute."""
        return self.replace(attrs={k: v for k, v in self.attrs.items() if k != key})

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

    name: str = attr()

    def __post_init__(self) -> None:
        check_name(self.name, "a function")

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
        for name, function in self.functions.items():
            if not isinstance(name, str) or not isinstance(function, BaseFunc):
                raise VerifyError(
                    "IRModule takes a dict of functions by name, "
                    f"got {name!r}: {type(function).__name__}"
                )

    @staticmethod
    def from_expr(function: BaseFunc, name: str | None = None) -> IRModule:
        """Make a module of one function, under its ``global_symbol`` or ``main``."""
        return IRModule({name or function.attrs.get(GLOBAL_SYMBOL, "main"): function})

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

    def with_attr(self, key: str, value: object) -> IRModule:
        """Return a copy with one module attribute set."""
        return self.replace(attrs={**self.attrs, key: value})

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
