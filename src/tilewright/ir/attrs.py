"""Attributes of functions, modules and calls: dicts that answer TVM's ``get_int`` and the like.

``Array`` and ``Map`` are TVM's names of what nodes hold: any tuple or list is an ``Array``, any
dict a ``Map``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tilewright.support.errors import VerifyError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Attrs(Mapping[str, Any]):
    """Attributes by name, as keys and as Python attributes."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self:
            raise AttributeError(f"there is no attribute {name!r}, but {', '.join(self) or 'none'}")
        return self[name]

    def get_int(self, key: str) -> int:
        """Return the attribute of a name, a number; raises ``AttributeError`` if there is none."""
        return int(getattr(self, key))

    def get_str(self, key: str) -> str:
        """Return the attribute of a name, a text; raises ``AttributeError`` if there is none."""
        found = getattr(self, key)
        if not isinstance(found, str):
            raise VerifyError(f"the attribute {key!r} is no text but {found!r}")
        return found

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """Return the attribute of a name, numbers; raises ``AttributeError`` if there is none."""
        return tuple(int(each) for each in getattr(self, key))


class ReadOnlyDict(dict[K, V]):
    """A dict that refuses changes: its owner is a value."""

    __slots__ = ()

    INSTEAD = "make another"

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError(f"a {type(self).__name__} is never changed: {self.INSTEAD}")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (dict(self),)  # copies are not filled item by item


def _own_name(key: Any) -> Any:
    """The name here of an attribute: ``tirx.is_scheduled`` is ``tir.is_scheduled``."""
    return f"tir.{key[5:]}" if isinstance(key, str) and key.startswith("tirx.") else key


class DictAttrs(ReadOnlyDict[str, Any], Attrs):
    """Attributes of a function or a module: a dict, which nobody changes.

    Those that TVM's newer versions call ``tirx.…`` are found, and are kept, as ``tir.…``.
    """

    __slots__ = ()

    INSTEAD = "use with_attr and without_attr"

    def __init__(self, attrs: Mapping[str, Any] | None = None) -> None:
        super().__init__({_own_name(key): value for key, value in (attrs or {}).items()})

    def __missing__(self, key: str) -> Any:
        name = _own_name(key)
        if not super().__contains__(name):
            raise KeyError(key)
        return self[name]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_own_name(key))

    def without(self, key: str) -> DictAttrs:
        """Return the attributes except that of a name."""
        name = _own_name(key)
        return DictAttrs({k: v for k, v in self.items() if k != name})

    def get(self, key: str, default: Any = None) -> Any:
        """Return the attribute of a name, or the default."""
        return super().get(_own_name(key), default)

    @staticmethod
    def of(attrs: Mapping[str, Any] | None) -> DictAttrs:
        """Return attributes of a dict, or none; the same object if they are that already."""
        return attrs if type(attrs) is DictAttrs else DictAttrs(attrs or {})


class _AnySequence(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (tuple, list))


class Array(tuple[T, ...], metaclass=_AnySequence):
    """A sequence that doesn't change; whatever nodes hold as one is an instance.

    Equal to a list of the same items.
    """

    __slots__ = ()

    def __new__(cls, input_list: Iterable[T]) -> Array[T]:
        """Make one of what is in a list."""
        return super().__new__(cls, input_list)

    def __add__(self, other: Any) -> Array[Any]:
        return Array((*self, *other))

    def __radd__(self, other: Any) -> Array[Any]:
        return Array((*other, *self))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def same_as(self, other: object) -> bool:
        """Whether ``other`` is this very object."""
        return self is other


class _AnyMapping(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Mapping)


class Map(dict[K, V], metaclass=_AnyMapping):
    """A dict; whatever nodes hold as one is an instance."""

    __slots__ = ()

    def __init__(self, input_dict: Mapping[K, V]) -> None:
        """Make one of what is in a dict."""
        super().__init__(input_dict)

    def get(self, key: K, default: Any = None) -> Any:
        """Return what is kept under a key, or the default."""
        return super().get(key, default)

    def same_as(self, other: object) -> bool:
        """Whether ``other`` is this very object."""
        return self is other
