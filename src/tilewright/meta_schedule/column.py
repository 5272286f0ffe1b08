"""``Column``: one decision of a design space, and the options that candidates choose from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


@dataclass(eq=False)
class Column:
    """One decision: its instruction and its options.

    ``options`` has one row for each option: the factors of a tile, or one number. ``use`` is
    ``"tile"``, ``"parallel"``, ``"unroll"``, ``"thread"`` or ``"choice"``. ``total`` is how many
    options there are, if ``options`` are only a sample of them.
    """

    position: int
    use: str
    options: Rows
    weights: Any = None
    extent: int = 1
    total: int = 0
    _order: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.total = self.total or len(self.options)

    def find(self, rows: Rows) -> Rows:
        """Return the option number of each row, -1 for rows that are not an option."""
        if self._order is None:
            rng = np.random.default_rng(7)
            self._mix = rng.integers(1, 2**62, self.options.shape[1], dtype=np.int64) | 1
            keys = (self.options * self._mix).sum(axis=1)
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]
        keys = (rows * self._mix).sum(axis=1)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found = self._order[place]
        same = (self.options[found] == rows).all(axis=1)
        made: Rows = np.where(same, found, -1)
        return made

    def draw(self, count: int, rng: np.random.Generator) -> Rows:
        """Draw options at random, by weight."""
        if self.weights is None:
            return rng.integers(0, len(self.options), count)
        return rng.choice(len(self.options), size=count, p=self.weights)

    def decision(self, option: int) -> Any:
        """Return the decision that the instruction records for an option."""
        row = self.options[option].tolist()
        return row if self.use == "tile" else int(row[0])

    def option_of(self, decision: object) -> int:
        """Return the option of a recorded decision, -1 if there is none."""
        row = decision if self.use == "tile" else [decision]
        if not isinstance(row, (list, tuple)) or len(row) != self.options.shape[1]:
            return -1
        return int(self.find(np.array([row], dtype=np.int64))[0])
