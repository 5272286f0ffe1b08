"""The backend of ``torch.compile``: graphs from AOTAutograd become calls of compiled parts."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilewright.ir import IRModule, Pass
from tilewright.meta_schedule.database import Database, is_url, open_place
from tilewright.relax import Executable, build, compile_relax, tune_relax
from tilewright.relax.frontend.torch import from_graph_nodes, is_known, location
from tilewright.relax.pipeline import run_pipeline
from tilewright.relax.tuning.models import sizes_in
from tilewright.runtime import cuda
from tilewright.support.errors import BuildError, MissingExtraError
from tilewright.target import Target
from tilewright.torch.freezing import compile_frozen
from tilewright.torch.options import Options
from tilewright.torch.partition import Part, Partition
from tilewright.torch.program import Program

_log = logging.getLogger("tilewright.torch")
_told: set[tuple[str, str]] = set()


def require_torch() -> Any:
    """Import PyTorch.

    Raises ``MissingExtraError``, which names the extra, if it isn't installed, and ``BuildError``
    if it is too old to hand out tensors without a copy.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "torch", "compiling PyTorch models") from None
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        raise BuildError(
            f"the backend of torch.compile needs PyTorch 2.10 or later, this is {torch.__version__}"
        )
    return torch


def backend(
    graph_module: object,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., object]:
    """Compile a graph of TorchDynamo: ``torch.compile(model, backend="tilewright")``.

    Graphs of tensors on a GPU are compiled for that GPU. ``options`` are those of ``Options``.
    Operators without a converter are run by PyTorch, in the
    same graph, and logged once for each place.

    Raises ``BuildError`` for unknown options, and for ``mode=`` of ``torch.compile``, which is
    inductor's.
    """
    require_torch()
    if mode is not None:
        raise BuildError(
            f'mode={mode!r} is one of inductor\'s; write options={{"mode": "tune", ...}}'
        )
    compiler = _aot_autograd(Options.parse(options), example_inputs)
    with resizes_whole():
        run: Callable[..., Any] = compiler(graph_module, example_inputs)
    return run


def compile(
    model: object = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    **options: object,
) -> Any:
    """Call ``torch.compile`` with this backend; other arguments are options of ``Options``.

    ``fullgraph`` and ``dynamic`` are those of ``torch.compile``. Without a model it is a decorator.

    Raises ``BuildError`` for unknown options.
    """
    torch = require_torch()
    Options.parse(options)
    return torch.compile(
        model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, options=options
    )


def relax_dynamo(pipeline: str | Pass | None = None) -> Callable[..., Callable[..., object]]:
    """Return a backend of ``torch.compile`` that runs ``pipeline`` over each graph, and builds it.

    TVM's name for ``torch.compile(model, backend="tilewright", options={"pipeline": pipeline})``,
    so gradients are compiled as well.

    Raises ``BuildError`` as ``backend`` does.
    """
    options = {"pipeline": pipeline}
    Options.parse(options)
    return partial(backend, options=options)


def _aot_autograd(options: Options, example_inputs: Sequence[object]) -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def compile_graph(graph_module: object, _: Sequence[object] = ()) -> Any:
        return compile_aten(graph_module, options)

    def compile_inference(graph_module: Any, _: Sequence[object]) -> Any:
        if not options.freezing:
            return compile_graph(graph_module)
        return _boxed(compile_frozen(graph_module, example_inputs, compile_graph))

    return aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        inference_compiler=compile_inference,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        # What a graph does to its inputs is part of it, where that is possible.
        keep_inference_input_mutations=True,
    )


def decompositions() -> dict[object, object]:
    """PyTorch's decompositions of the operators that have no converter, random ones excepted."""
    torch = require_torch()
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {
        target: rule
        for target, rule in {**decomposition_table, **core_aten_decompositions()}.items()
        if not is_known(str(target))
        and str(target) not in _WHOLE
        and isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in target.tags
    }


# What PyTorch computes better whole than from the parts that we would compile.
_WHOLE = frozenset(["aten.embedding_dense_backward.default"])


@contextmanager
def resizes_whole() -> Iterator[None]:
    """Keep PyTorch from writing resized images as gathers of single elements.

    Its rules for these operators aren't in tables of decompositions but in the dispatcher.
    TorchDynamo calls backends under a lock, so no other compilation sees what is missing here.
    """
    torch = require_torch()
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    taken = []
    for name in dir(torch.ops.aten):
        if "upsample_" not in name:
            continue
        packet = getattr(torch.ops.aten, name)
        for overload in (getattr(packet, item) for item in packet.overloads()):
            if is_known(str(overload)):
                rules = overload.py_kernels
                taken.append((overload, {key: rules.pop(key) for key in keys if key in rules}))
                overload._dispatch_cache.clear()
    try:
        yield
    finally:
        for overload, rules in taken:
            overload.py_kernels.update(rules)
            overload._dispatch_cache.clear()


def compile_aten(graph_module: Any, options: Options) -> Callable[[list[Any]], Any]:
    """Compile a functional graph of ATen operators to a function that takes a list."""
    torch = require_torch()
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.no_grad():
        partition = Partition(graph_module.graph)
        _log_partition(partition)
        compiler = _Compiler(options, partition.device, _sizes_now(graph_module.graph))
        return _boxed(Program(partition, compiler).function())


def _boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    run._boxed_call = True  # type: ignore[attr-defined]  # PyTorch's word for taking a list
    return run


def _log_partition(partition: Partition) -> None:
    """Log the operators that PyTorch runs, once for each place."""
    for step in partition.steps:
        for node in step.by_torch:
            reason = partition.reasons.get(node)
            if reason is None or node.target is operator.getitem:
                continue
            place = location(node)
            if (str(node.target), place) not in _told:
                _told.add((str(node.target), place))
                where = reason if place in reason else f"{node.target} ({place}): {reason}"
                _log.warning("PyTorch runs %s", where)


def _sizes_now(graph: Any) -> dict[str, int]:
    """The sizes of the inputs that a graph is compiled for, by their symbols."""
    torch = require_torch()
    found = {}
    for node in graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.has_hint():
                found[str(size.node.expr)] = int(size.node.hint)
    return found


class _Compiler:
    """Compiles parts as the options say."""

    def __init__(
        self, options: Options, device: Any, sizes: Mapping[str, int] | None = None
    ) -> None:
        """Compile for a device of PyTorch's: what a GPU is, its driver says.

        ``sizes`` are what symbolic ones are tuned at.

        Raises ``BuildError`` for options that say nothing to it.
        """
        self._options, self._sizes = options, dict(sizes or {})
        threads = options.threads
        if device.type == "cuda":
            if threads is not None:
                raise BuildError(f"option 'threads' is for the CPU; the graph runs on {device}")
            self._target = Target.from_device(cuda(device.index or 0))
        else:
            self._target = Target("native" if threads is None else f"llvm -num-cores={threads}")

    def __call__(
        self, part: Part, sizes: Sequence[str], layouts: dict[Any, tuple[int, ...]]
    ) -> Executable:
        mod = from_graph_nodes(part.nodes, part.inputs, part.outputs, sizes=sizes, layouts=layouts)
        return self._build(mod)

    def _build(self, mod: IRModule) -> Executable:
        options = self._options
        if options.pipeline is not None:
            mod = run_pipeline(mod, options.pipeline, self._target)
        if options.mode == "rules":
            return build(mod, self._target)
        if options.mode == "tune":
            database = self._tuned(mod)
        else:
            assert options.work_dir is not None
            database = open_place(options.work_dir)
        return compile_relax(database, mod, self._target)

    def _tuned(self, mod: IRModule) -> Database:
        place = self._options.work_dir
        budget: dict[str, Any] = {"max_trials_global": self._options.trials}
        here = sizes_in(mod)  # a graph between breaks needn't have all of them
        sizes = {name: size for name, size in self._sizes.items() if name in here}
        budget["symbols"] = sizes or None
        if is_url(place):
            return tune_relax(mod, None, self._target, None, database=str(place), **budget)
        return tune_relax(mod, None, self._target, place, **budget)
