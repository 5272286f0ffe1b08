"""What ``torch.compile`` would make of a model: graphs, breaks, operators that PyTorch runs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.relax.frontend.torch import location
from tilewright.torch.dynamo import decompositions, require_torch, resizes_whole
from tilewright.torch.partition import Partition, is_view


@dataclass
class Fallback:
    """An operator that PyTorch runs: why, how often, and where first."""

    operator: str
    reason: str
    place: str
    count: int = 0


@dataclass
class Survey:
    """The graphs of a model, and who runs their operators."""

    graphs: int = 0
    compiled: int = 0
    """Operators in compiled code; views and sizes aren't counted."""
    parts: int = 0
    fallbacks: list[Fallback] = field(default_factory=list)
    breaks: Counter[str] = field(default_factory=Counter)
    """Why TorchDynamo ends a graph, with the place in the model."""

    @property
    def by_torch(self) -> int:
        """How many operators PyTorch runs."""
        return sum(item.count for item in self.fallbacks)


def survey(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Survey:
    """Count what the backend would compile of a model in inference, by example inputs.

    The model is called, by PyTorch, but nothing is compiled.

    Raises what the model or TorchDynamo raises.
    """
    torch = require_torch()
    made = Survey()
    torch.compiler.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    try:
        with torch.no_grad():
            torch.compile(model, backend=_backend(made))(*args, **(kwargs or {}))
        made.breaks.update(_shortened(counters["graph_break"]))
    finally:
        torch.compiler.reset()
    made.fallbacks.sort(key=lambda item: (-item.count, item.operator))
    return made


def _backend(made: Survey) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch.utils._python_dispatch import _disable_current_modes

    torch = require_torch()

    def look_at(graph_module: Any, _: Sequence[object]) -> Callable[..., Any]:
        with _disable_current_modes(), torch.no_grad():
            partition = Partition(graph_module.graph)
        _count(partition, made)
        run: Callable[..., Any] = graph_module.forward
        return run

    compiler = aot_autograd(
        fw_compiler=look_at,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )

    def backend(graph_module: Any, example_inputs: Sequence[object]) -> Any:
        with resizes_whole():
            return compiler(graph_module, example_inputs)

    return backend


def _count(partition: Partition, made: Survey) -> None:
    made.graphs += 1
    made.parts += sum(bool(step.part.outputs) for step in partition.steps)
    found = {(item.operator, item.reason): item for item in made.fallbacks}
    for node in partition.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        reason = partition.reasons.get(node)
        if partition.is_compiled(node):
            made.compiled += 1
        elif reason is not None and not partition.is_size(node) and not is_view(node):
            place = location(node)
            # The same reason, wherever the operator is.
            shown = reason.removeprefix(f"{node.target} ({place}): ")
            key = str(node.target), shown
            if key not in found:
                found[key] = Fallback(*key, place)
                made.fallbacks.append(found[key])
            found[key].count += 1


def _shortened(reasons: Mapping[str, int]) -> dict[str, int]:
    """The first line of each of TorchDynamo's reasons, and the last place that it names."""
    made: Counter[str] = Counter()
    for text, count in reasons.items():
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        places = [line for line in lines if line.startswith('File "')]
        made[" ".join([lines[0] if lines else text, *(f"({p})" for p in places[-1:])])] += count
    return made
