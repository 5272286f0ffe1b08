"""The values of constants: kept, lent, or made when somebody asks for them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.json import array_as_json, array_from_json, register_text

_Data = TypeVar("_Data", bound="ConstantData")


class ConstantData:
    """The values of a constant: read-only, compared and hashed by content.

    What passes make of large constants they may make ``later``, when somebody asks for the values:
    so a chain of passes has one constant at a time in memory and not all constants twice.
    """

    __slots__ = ("_array", "_key", "_lent", "_make", "_sources", "dtype", "shape")

    def __init__(self, array: NDArray[Any], *, lent: bool = False) -> None:
        """Take over an array; one that is ``lent`` belongs to somebody who may change it later."""
        array = np.ascontiguousarray(array) if array.ndim else array.copy()
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self._array: NDArray[Any] | None = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._make: Callable[[], NDArray[Any]] | None = None
        self._sources: tuple[ConstantData, ...] = ()
        self._lent = lent
        self._key: str | None = None

    @classmethod
    def later(
        cls: type[_Data],
        shape: Sequence[int],
        dtype: np.dtype[Any],
        make: Callable[[], NDArray[Any]],
        sources: Sequence[ConstantData] = (),
    ) -> _Data:
        """Return values that ``make()`` computes, from ``sources``, each time they are needed."""
        made = cls.__new__(cls)
        made._array, made._key, made._lent = None, None, False
        made._make, made._sources = make, tuple(sources)
        made.shape, made.dtype = tuple(shape), np.dtype(dtype)
        return made

    @property
    def array(self) -> NDArray[Any]:
        """The values; kept from now on."""
        if self._array is None:
            array = self.compute()
            # Another thread may have been faster.
            self._array = array if self._array is None else self._array
        return self._array

    def compute(self) -> NDArray[Any]:
        """Return the values without keeping them: for whoever makes something else of them."""
        if self._array is not None:
            return self._array
        assert self._make is not None
        made = ConstantData(self._make())
        assert made.shape == self.shape and made.dtype == self.dtype, (made, self)
        return made.array

    @property
    def is_materialized(self) -> bool:
        """Whether the values are kept in memory of their own."""
        return self._array is not None and not any(True for _ in self._lenders())

    def materialize(self, place: NDArray[np.uint8] | None = None) -> ConstantData:
        """Keep the values, in memory of their own, and forget what they were made from.

        ``place`` has ``nbytes`` bytes for them, which are zero.
        """
        array = self.array
        if place is not None:
            kept = place.view(self.dtype).reshape(self.shape)
            kept[...] = array
            self._array = ConstantData(kept).array
        elif any(np.may_share_memory(array, lent.array) for lent in self._lenders()):
            self._array = array = ConstantData(array.copy()).array
        self._make, self._sources, self._lent = None, (), False
        return self

    def fill(self, array: NDArray[Any]) -> None:
        """Set the values of a constant that was to be made later to ones known otherwise."""
        assert array.shape == self.shape and array.dtype == self.dtype, (array, self)
        self._array, self._make, self._sources = array, None, ()

    def _lenders(self) -> Iterator[ConstantData]:
        if self._lent:
            yield self
        for source in self._sources:
            yield from source._lenders()

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize

    def content_key(self, ignore_ndarray: bool) -> str:
        """Return the key for structural comparison and hashing."""
        if ignore_ndarray:
            return repr(self)
        if self._key is None:
            flat = self.compute().reshape(-1).view(np.uint8)
            digest = hashlib.blake2b(flat.data, digest_size=16)
            self._key = f"{self!r}:{digest.hexdigest()}"
        return self._key

    def __reduce__(self) -> tuple[object, ...]:
        return ConstantData, (self.compute(),)

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


register_text(
    "constant",
    ConstantData,
    lambda data: json.dumps(array_as_json(data.compute())),
    lambda text: ConstantData(array_from_json(json.loads(text))),
)
