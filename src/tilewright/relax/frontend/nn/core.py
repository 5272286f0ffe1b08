"""Modules: what owns parameters, other modules, and effects, and how they are kept in lists.

class MLP(nn.Module):
    def __init__(self):
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])

    def forward(self, x):
        return self.layers(x)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tilewright.ir import IRModule, Pass
from tilewright.relax.frontend.nn import exporter
from tilewright.relax.frontend.nn.effects import Effect
from tilewright.relax.frontend.nn.subroutine import SubroutineMixin
from tilewright.relax.frontend.nn.tensor import Object, Parameter, Tensor, get_default_dtype
from tilewright.runtime import Device
from tilewright.support.errors import VerifyError


class Module(SubroutineMixin):
    """Base of modules: attributes that are parameters or modules are found by name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self, "forward"):
            raise NotImplementedError(f"{type(self).__name__} must define forward(...)")
        return self.forward(*args, **kwargs)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters with dotted names, in the order of attributes; shared ones once."""
        yield from self._named(prefix, Parameter)

    def named_effects(self, prefix: str = "") -> Iterator[tuple[str, Effect]]:
        """All effects with dotted names, in the order of attributes; shared ones once."""
        yield from self._named(prefix, Effect)

    def _named(self, prefix: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for name, found in _walk(self, prefix):
            if isinstance(found, kind) and id(found) not in seen:
                seen.add(id(found))
                yield name, found

    def _members(self) -> Iterator[tuple[str, object]]:
        yield from vars(self).items()

    def parameters(self) -> Iterator[Parameter]:
        """All parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(
        self, *, prefix: str = "", destination: dict[str, Parameter] | None = None
    ) -> dict[str, Parameter]:
        """All parameters by name, in ``destination`` if one is given."""
        made: dict[str, Parameter] = OrderedDict() if destination is None else destination
        made.update(self.named_parameters(prefix))
        return made

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Set parameters by name, from parameters or arrays; returns missing and unexpected names.

        Raises ``VerifyError`` if there are any and ``strict`` is set.
        """
        own = dict(self.named_parameters())
        missing = [name for name in own if name not in state_dict]
        unknown = [name for name in state_dict if name not in own]
        if strict and (missing or unknown):
            raise VerifyError(
                f"load_state_dict: missing {missing or 'none'}, unexpected {unknown or 'none'}"
            )
        for name, value in state_dict.items():
            if name in own:
                own[name].data = value.data if isinstance(value, Parameter) else value
        return missing, unknown

    def to(self, dtype: str | None = None) -> Module:
        """Change the element type of all parameters and effects."""
        if dtype is None:
            return self
        for _, found in _walk(self, ""):
            if isinstance(found, (Parameter, Effect)):
                found.to(dtype)
            elif isinstance(getattr(found, "dtype", None), str):
                found.dtype = dtype
        if isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype
        return self

    def export_tvm(self, spec: object, debug: bool = False, allow_extern: bool = False) -> Any:
        """Turn methods into graph functions.

        ``spec`` describes each method's arguments:
        ``{"forward": {"x": nn.spec.Tensor((1, 784), "float32")}}``. The functions take these, then
        effects, then the parameters, under the methods' names. With effects they return a pair of
        results and effects, and ``_initialize_effect()`` makes the first ones. ``debug`` allows
        ``nn.print_`` and ``nn.debug_func``.

        Returns the module and the named parameters; with ``allow_extern`` also the external modules
        that were added by ``nn.add_extern``.

        Raises ``VerifyError`` if there are such modules and ``allow_extern`` isn't set.
        """
        return exporter.export(self, spec, debug=debug, allow_extern=allow_extern)

    def export(
        self, spec: object, debug: bool = False
    ) -> tuple[IRModule, list[tuple[str, Parameter]]]:
        """``export_tvm`` of a module without external modules."""
        made: tuple[IRModule, list[tuple[str, Parameter]]] = self.export_tvm(spec, debug)
        return made

    def jit(
        self,
        spec: object,
        device: str | Device = "cpu",
        pipeline: str | Pass | None = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> Any:
        """Compile the module with its parameters' data: ``model["forward"](x)``.

        ``out_format="torch"`` takes and gives PyTorch's tensors; ``"raw"`` returns the virtual
        machine's functions, which take the parameters, and the parameters' data.

        Raises ``VerifyError`` for parameters without data and another format.
        """
        return exporter.jit(self, spec, device, pipeline, out_format, debug)


def _walk(owner: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in owner._members():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, (Parameter, Effect)):
            yield path, value
        elif isinstance(value, Module):
            yield path, value
            yield from _walk(value, path)
        elif isinstance(value, (ParameterList, ParameterDict)):
            yield from _walk(value, path)


# ---- containers ------------------------------------------------------------------------------

Item = TypeVar("Item", Module, Parameter)


class _List(Generic[Item]):
    """Items in order, named by their positions."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items: list[Item] = list(items)

    def _members(self) -> Iterator[tuple[str, object]]:
        for index, item in enumerate(self._items):
            yield str(index), item

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Item:
        return self._items[index]

    def __setitem__(self, index: int, item: Item) -> None:
        self._items[index] = item

    def __len__(self) -> int:
        return len(self._items)


class _Dict(Generic[Item]):
    """Items by name, in order."""

    def __init__(self, items: Mapping[str, Item] | None = None) -> None:
        self._items: OrderedDict[str, Item] = OrderedDict(items or {})

    def _members(self) -> Iterator[tuple[str, object]]:
        yield from self._items.items()

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def __getitem__(self, key: str) -> Item:
        return self._items[key]

    def __setitem__(self, key: str, item: Item) -> None:
        self._items[key] = item

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def keys(self) -> Iterator[str]:
        """Names."""
        return iter(self._items.keys())

    def values(self) -> Iterator[Item]:
        """Items."""
        return iter(self._items.values())

    def items(self) -> Iterator[tuple[str, Item]]:
        """Names and items."""
        return iter(self._items.items())

    def get(self, key: str, default: Item | None = None) -> Item | None:
        """Return an item, or ``default`` if there is none of that name."""
        return self._items.get(key, default)

    def pop(self, key: str) -> Item:
        """Remove an item and return it."""
        return self._items.pop(key)

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()


class ModuleList(_List[Module], Module):
    """Modules in a list."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        super().__init__(modules)

    @property
    def modules(self) -> list[Module]:
        """The modules."""
        return self._items

    def append(self, module: Module) -> None:
        """Add a module."""
        self._items.append(module)

    def forward(self, x: object) -> Any:
        """Run the modules in order."""
        for module in self._items:
            x = module(x)
        return x


class ModuleDict(_Dict[Module], Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__(modules)

    @property
    def modules(self) -> OrderedDict[str, Module]:
        """The modules."""
        return self._items

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add modules, in place of those of the same name."""
        self._items.update(modules)


class ParameterList(_List[Parameter]):
    """Parameters in a list."""

    def __init__(self, params: Sequence[Parameter] | None = None) -> None:
        super().__init__(params or ())

    @property
    def params(self) -> list[Parameter]:
        """The parameters."""
        return self._items

    def append(self, param: Parameter) -> None:
        """Add a parameter."""
        self._items.append(param)

    def extend(self, params: Sequence[Parameter]) -> None:
        """Add parameters."""
        self._items.extend(params)

    def to(self, dtype: str | None = None) -> None:
        """Change the element type of all parameters."""
        for param in self._items:
            param.to(dtype)


class ParameterDict(_Dict[Parameter]):
    """Parameters by name."""

    def __init__(self, params: Mapping[str, Parameter] | None = None) -> None:
        super().__init__(params)

    @property
    def params(self) -> OrderedDict[str, Parameter]:
        """The parameters."""
        return self._items

    def update(self, params: Mapping[str, Parameter]) -> None:
        """Add parameters, in place of those of the same name."""
        self._items.update(params)

    def to(self, dtype: str | None = None) -> None:
        """Change the element type of all parameters."""
        for param in self._items.values():
            param.to(dtype)


__all__ = [
    "Effect", "Module", "ModuleDict", "ModuleList", "Object", "Parameter", "ParameterDict",
    "ParameterList", "Tensor", "get_default_dtype",
]  # fmt: skip
