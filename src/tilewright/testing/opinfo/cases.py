"""The samples: which of PyTorch's operators belong to Core ATen, and their calls.

An operator belongs to Core ATen if PyTorch tags it ``core``. Most have an entry in the database
under their own name; ``_THROUGH`` names the entries that reach the others. Backward operators are
taken from the gradients of their forward operator's samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilewright.relax.frontend.torch.exported import require_torch
from tilewright.support.errors import TilewrightError

if TYPE_CHECKING:
    from torch import Tensor, dtype
    from torch._ops import OpOverload, OpOverloadPacket
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

Call = Callable[..., Any]

#: Core operators without an entry of their name, and the entries whose samples call them.
_THROUGH = {
    "_adaptive_avg_pool2d": "nn.functional.adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "nn.functional.adaptive_avg_pool3d",
    "_cdist_forward": "cdist",
    "_embedding_bag": "nn.functional.embedding_bag",
    "_fft_c2r": "fft.irfft fft.irfft2 fft.irfftn",
    "_fft_r2c": "fft.rfft fft.rfft2 fft.rfftn",
    "_local_scalar_dense": "item",
    "_log_softmax": "log_softmax",
    "_native_batch_norm_legit_no_training": "nn.functional.batch_norm",
    "_pdist_forward": "nn.functional.pdist",
    "_softmax": "softmax",
    "_to_copy": "to",
    "adaptive_avg_pool1d": "nn.functional.adaptive_avg_pool1d",
    "alias": "alias_copy",
    "convolution": (
        "nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d "
        "nn.functional.conv_transpose1d nn.functional.conv_transpose2d "
        "nn.functional.conv_transpose3d"
    ),
    "elu": "nn.functional.elu",
    "embedding": "nn.functional.embedding",
    "index": "__getitem__",
    "max_pool2d_with_indices": "nn.functional.max_pool2d",
    "max_pool3d_with_indices": "nn.functional.max_pool3d",
    "native_dropout": "nn.functional.dropout",
    "rand": "rand_like",
    "reflection_pad1d": "nn.functional.pad.reflect",
    "replication_pad2d": "nn.functional.pad.replicate",
    "upsample_bilinear2d": "nn.functional.interpolate.bilinear nn.functional.upsample_bilinear",
    "upsample_nearest2d": "nn.functional.interpolate.nearest nn.functional.upsample_nearest",
}
#: Core operators that only gradients call, and the entries whose gradients do.
_BACKWARD = {
    "_adaptive_avg_pool2d_backward": "nn.functional.adaptive_avg_pool2d",
    "avg_pool2d_backward": "nn.functional.avg_pool2d",
    "col2im": "nn.functional.unfold",
    "convolution_backward": "nn.functional.conv2d nn.functional.conv_transpose2d",
    "embedding_dense_backward": "nn.functional.embedding",
    "max_pool2d_with_indices_backward": "nn.functional.max_pool2d",
    "native_group_norm_backward": "nn.functional.group_norm",
    "native_layer_norm_backward": "nn.functional.layer_norm",
}
#: Operators that say nothing of the numbers in their results.
_UNFILLED = frozenset("empty empty_like empty_strided empty_permuted new_empty new_empty_strided "
                      "resize_ resize_as_".split())  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call of an operator: a function of tensors, and the tensors.

    ``numbers`` says whether its results have numbers to compare, not random or unset ones.
    """

    call: Call
    tensors: list[Tensor] = field(repr=False)
    numbers: bool = True


class Entry:
    """An operator of the database that exercises Core ATen."""

    def __init__(self, name: str, core: str, info: OpInfo, *, backward: bool = False) -> None:
        self.name = name
        self.core = core
        self._info = info
        self._backward = backward

    def has_dtype(self, dtype: dtype) -> bool:
        """Whether PyTorch has samples in a dtype."""
        return dtype in self._info.supported_dtypes("cpu") and not (
            self._backward and not dtype.is_floating_point
        )

    def cases(self, dtype: str) -> list[Case]:
        """All samples, the same at each call; the first one also with gaps in memory."""
        torch = require_torch()
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(self._info.sample_inputs("cpu", dtype, requires_grad=self._backward))
            if not self._backward:
                apart = [sample.noncontiguous() for sample in samples[:1]]
                return [self._case(sample) for sample in [*samples, *apart]]
            return [case for sample in samples for case in self._gradients(sample)]

    def _case(self, sample: SampleInput) -> Case:
        tree = (sample.input, sample.args, sample.kwargs)
        call, tensors = _function(
            lambda given: self._info.op(given[0], *given[1], **given[2]), tree
        )
        return Case(call, tensors, self._info.name not in _UNFILLED)

    def _gradients(self, sample: SampleInput) -> Iterator[Case]:
        """Calls of the backward operator when a sample's gradients are computed."""
        torch = require_torch()
        wanted = getattr(torch.ops.aten, self.core)
        calls = _Recorder(wanted)
        result = self._info.op(sample.input, *sample.args, **sample.kwargs)
        first = result[0] if isinstance(result, (tuple, list)) else result
        if not getattr(first, "requires_grad", False):
            return
        with calls:
            first.backward(torch.testing.make_tensor(first.shape, dtype=first.dtype, device="cpu"))
        for overload, args, kwargs in calls.found:
            call, tensors = _function(
                lambda given, overload=overload: overload(*given[0], **given[1]), (args, kwargs)
            )
            yield Case(call, tensors)


class _Recorder:
    """A dispatch mode that keeps the arguments of the calls of one operator."""

    def __init__(self, wanted: OpOverloadPacket) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        found: list[Any] = []

        class Mode(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: OpOverload, types: object, args: tuple[object, ...] = (),
                kwargs: dict[str, object] | None = None,
            ) -> object:  # fmt: skip
                if func.overloadpacket is wanted:
                    found.append((func, args, kwargs or {}))
                return func(*args, **(kwargs or {}))

        self.found = found
        self._mode = Mode()

    def __enter__(self) -> None:
        self._mode.__enter__()

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)


def _function(call: Call, tree: object) -> tuple[Call, list[Tensor]]:
    """A call whose tensors are its parameters, everything else being fixed; and the tensors."""
    torch = require_torch()
    leaves, spec = torch.utils._pytree.tree_flatten(tree)
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def run(*tensors: Tensor) -> object:
        given = list(leaves)
        for place, tensor in zip(places, tensors):
            given[place] = tensor
        return call(torch.utils._pytree.tree_unflatten(given, spec))

    return run, [leaves[place].detach() for place in places]


def core_operators() -> dict[str, list[str]]:
    """Names of the operators of Core ATen, with the overloads that are tagged."""
    torch = require_torch()
    found: dict[str, list[str]] = {}
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            if torch.Tag.core in getattr(packet, overload).tags:
                found.setdefault(name, []).append(overload)
    return found


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Return the entries that exercise Core ATen, by name: ``div.floor_rounding``.

    Raises ``TilewrightError`` if PyTorch's database can't be imported.
    """
    require_torch()
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise TilewrightError(
            f"PyTorch's database of operators can't be imported ({error}); pip install expecttest"
        ) from error
    by_name = {_full_name(info): info for info in op_db}
    found: dict[str, Entry] = {}
    for core in core_operators():
        names = [name for name, info in by_name.items() if info.aten_name == core]
        for name in [*names, *_THROUGH.get(core, "").split()]:
            found.setdefault(name, Entry(name, core, by_name[name]))
        for name in _BACKWARD.get(core, "").split():
            own = f"{core}({name})"
            found[own] = Entry(own, core, by_name[name], backward=True)
    return found


def _full_name(info: OpInfo) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def spread(count: int, limit: int | None) -> Sequence[int]:
    """Numbers of at most ``limit`` samples out of ``count``, the first and last included."""
    if limit is None or count <= limit:
        return range(count)
    if limit == 1:
        return [0]
    return sorted({round(k * (count - 1) / (limit - 1)) for k in range(limit)})
