"""Names that nobody has yet."""

from __future__ import annotations


class UniqueNameSupply:
    """Gives out names that are all different, each with a ``prefix``, if there is one."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        # The names that are taken, and the number that the next of each begins with.
        self._next: dict[str, int] = {}

    def _whole(self, name: str, add_prefix: bool) -> str:
        name = name.replace(".", "_")
        return f"{self.prefix}_{name}" if add_prefix and self.prefix else name

    def fresh_name(self, name: str, add_prefix: bool = True, add_underscore: bool = True) -> str:
        """Return the name, or the first of ``name_1``, ``name_2`` … that is free, and take it."""
        base = self._whole(name, add_prefix)
        number = self._next.get(base, 0)
        separator = "_" if add_underscore else ""
        made = f"{base}{separator}{number}" if number else base
        while made in self._next:
            number += 1
            made = f"{base}{separator}{number}"
        self._next[base] = number + 1
        self._next.setdefault(made, 1)
        return made

    def reserve_name(self, name: str, add_prefix: bool = True) -> str:
        """Take a name, whether it is free or not, and return it with the prefix."""
        whole = self._whole(name, add_prefix)
        self._next.setdefault(whole, 1)
        return whole

    def contains_name(self, name: str, add_prefix: bool = True) -> bool:
        """Return whether a name is taken."""
        return self._whole(name, add_prefix) in self._next
