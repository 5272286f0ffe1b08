"""Exported programs of PyTorch: loading, functionalising, decomposing, converting tensors.

Everything that calls PyTorch's own machinery is here, imported when used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.relax.frontend.torch.archive import check_archive, registered_classes
from tilewright.relax.frontend.torch.converters import dtype_name
from tilewright.relax.frontend.torch.in_place import without_writes
from tilewright.relax.values import numpy_dtype
from tilewright.support.errors import ImportModelError, MissingExtraError

if TYPE_CHECKING:
    import torch

# Rounds of taking apart; each brings simpler operators, so this is only against endless ones.
_MAX_ROUNDS = 8


def require_torch() -> Any:
    """Import PyTorch, or say how to install it.

    Raises ``MissingExtraError``, which names the extra, if it isn't installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "torch", "importing PyTorch models") from None
    return torch


def load_exported_program(path: str | Path) -> torch.export.ExportedProgram:
    """Load a ``.pt2`` file that ``torch.export.save`` wrote; returns its ``ExportedProgram``.

    The file is looked through first (``archive``), so that no code in it runs.

    Raises ``ImportModelError`` if there is no such file, or it holds something else.
    """
    torch = require_torch()
    file = Path(path)
    if not file.is_file():
        raise ImportModelError(f"there is no file {str(file)!r}")
    if file.suffix != ".pt2":
        raise ImportModelError(
            f"{file.name!r} is no exported program: expected a .pt2 file, written by "
            "torch.export.save(torch.export.export(model.eval(), example_inputs), path)"
        )
    # PyTorch's function for users reads what this one can't once more, in an older form.
    from torch.export.pt2_archive._package import load_pt2

    try:
        # The same open file is read twice, so that no other takes its place in between.
        classes = torch.serialization.safe_globals(registered_classes(torch))
        with file.open("rb") as opened, quiet(), classes:
            check_archive(opened, torch)
            return load_pt2(opened).exported_programs["model"]
    except ImportModelError:
        raise
    except Exception as error:  # PyTorch raises many classes here; all mean an unreadable file
        why = next((line for line in str(error).splitlines() if line.strip()), "no text")
        raise ImportModelError(
            f"{str(file)!r} can't be read as an exported program "
            f"({type(error).__name__}: {why.strip()[:300]}); "
            f"it may be damaged or written by another version of PyTorch (this is "
            f"{torch.__version__}): export the model anew with torch.export.save"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hide PyTorch's deprecation warnings about itself, and its own error logs."""
    import logging

    loggers = [logging.getLogger(name) for name in _ERROR_LOGS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for logger, level in zip(loggers, before):
            logger.setLevel(level)


_ERROR_LOGS = ("torch.export", "torch._subclasses.fake_tensor")


Missing = Callable[[Any], Collection[Any]]
"""The operators of a program that aren't supported."""


def functionalize(
    program: torch.export.ExportedProgram, unsupported: Missing | None = None
) -> torch.export.ExportedProgram:
    """Replace operators that write into their operands.

    All others are unchanged, except that if the program must be traced again for it, operators that
    ``unsupported(program)`` names are taken apart at the same time.
    """
    torch = require_torch()

    def writes(node: Any) -> bool:
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return True
        return _is_mutable(torch, target)

    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    updates = any(map(_updates_statistics, calls))
    if not updates and not any(map(writes, calls)):
        return program
    with quiet():
        made = None if updates else without_writes(program)
        if made is not None:
            return made
        missing = () if unsupported is None else unsupported(program)
        # What writes becomes what doesn't, which may be supported.
        others = [target for target in missing if not _is_mutable(torch, target)]
        return program.run_decompositions(_decompositions(torch, others))


def _is_mutable(torch: Any, target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and bool(target._schema.is_mutable)


def _decompositions(torch: Any, targets: Collection[Any]) -> dict[Any, Any]:
    """What PyTorch takes operators apart with; of those that it can."""
    if not targets:
        return {}
    from torch._decomp import decomposition_table

    tables: list[Any] = [torch.export.default_decompositions(), decomposition_table]
    found = {}
    for target in targets:
        table = next((table for table in tables if target in table), None)
        if table is not None:
            found[target] = table[target]
    return found


def _updates_statistics(node: torch.fx.Node) -> bool:
    """Whether a norm in training updates running statistics, which its schema doesn't say."""
    if str(node.target) not in ("aten.batch_norm.default", "aten.instance_norm.default"):
        return False
    return node.args[3] is not None and bool(node.args[5])


def written_buffers(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Buffers that a functional program writes into: their names, by placeholder name."""
    signature = program.graph_signature
    targets = {s.target for s in signature.output_specs if s.kind.name == "BUFFER_MUTATION"}
    return {
        spec.arg.name: spec.target
        for spec in signature.input_specs
        if spec.kind.name == "BUFFER" and spec.target in targets
    }


def take_apart(
    program: torch.export.ExportedProgram, unsupported: Missing
) -> torch.export.ExportedProgram:
    """Decompose the operators that ``unsupported(program)`` names, as far as PyTorch can."""
    torch = require_torch()
    for _ in range(_MAX_ROUNDS):
        chosen = _decompositions(torch, unsupported(program))
        if not chosen:
            break
        with quiet():
            program = program.run_decompositions(chosen)
    return program


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Show a complex tensor as a real one with a last axis of 2; others as they are."""
    if not tensor.is_complex():
        return tensor
    made: torch.Tensor = require_torch().view_as_real(tensor.detach().resolve_conj().resolve_neg())
    return made


def to_numpy(tensor: torch.Tensor, *, copy: bool = True) -> NDArray[Any]:
    """Copy a tensor into an array (training the model further must not change the graph).

    Without ``copy`` the array may be the tensor's own memory.
    """
    torch = require_torch()
    value = tensor.detach().cpu().contiguous().resolve_neg()
    name = dtype_name(value.dtype)
    try:
        return np.array(value.numpy()) if copy else value.numpy()
    except TypeError:  # element types that NumPy lacks: by their bytes
        raw = value.reshape(-1).view(torch.uint8).numpy()
        made: NDArray[Any] = (np.array(raw) if copy else raw).view(numpy_dtype(name))
        return made.reshape(tuple(value.shape))


def written_as(node: torch.fx.Node) -> str:
    """Name of the operator from which PyTorch decomposed a node."""
    return str(node.meta.get("original_aten") or node.target)


def location(node: torch.fx.Node) -> str:
    """Return the source location and the layer that a node comes from."""
    torch = require_torch()
    library = str(Path(torch.__file__).parent)
    parts = [f"node {node.name!r}"]
    frame = _user_frame(node.meta.get("stack_trace") or "", library)
    if frame:
        parts.append(frame)
    layers = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    if layers:
        parts.append(f"in layer {layers[-1]!r}")
    if written_as(node) != str(node.target):
        parts.append(f"decomposed from {written_as(node)}")
    return ", ".join(parts)


def _user_frame(trace: str, library: str) -> str:
    """The innermost frame outside PyTorch: ``file:line: code``."""
    found = ""
    lines = trace.splitlines()
    for number, line in enumerate(lines):
        text = line.strip()
        if not text.startswith('File "'):
            continue
        path, _, rest = text.removeprefix('File "').partition('", line ')
        if path.startswith((library, "torch/")):
            continue
        code = lines[number + 1].strip() if number + 1 < len(lines) else ""
        found = f"{path}:{rest.partition(',')[0]}" + (f": {code}" if code else "")
    return found
