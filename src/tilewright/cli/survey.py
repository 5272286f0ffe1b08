"""``tilewright doctor --model``: what of a model is compiled, and what isn't."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from tilewright.cli.model import call_function, foreign_code
from tilewright.relax.frontend.onnx import from_onnx, load_model
from tilewright.relax.frontend.onnx.survey import used_operators
from tilewright.relax.frontend.torch import load_exported_program
from tilewright.relax.frontend.torch.calling import export_module
from tilewright.relax.frontend.torch.importer import functional_to_compile, import_to_compile
from tilewright.support.errors import ImportModelError, TilewrightError
from tilewright.torch.survey import Survey, survey


def survey_model(text: str) -> dict[str, Any]:
    """Say what of a model is compiled.

    Raises ``click.UsageError`` if ``text`` names no model, ``ImportModelError`` if it can't be
    read, or is no model.
    """
    path = Path(text)
    if path.suffix in (".onnx", ".pt2"):
        if not path.is_file():
            raise click.UsageError(f"there is no file {text}")
        return _of_onnx(path) if path.suffix == ".onnx" else _of_exported(path)
    with redirect_stdout(sys.stderr):
        model, inputs, named = call_function(text)
        torch = sys.modules.get("torch")  # whoever made a PyTorch model has imported it
        if torch is None or not isinstance(model, torch.nn.Module):
            raise ImportModelError(
                f"{text} gives a {type(model).__name__}; doctor looks at ONNX models, .pt2 files "
                "and functions that return a torch.nn.Module"
            )
        model.eval()
        export = _failure(lambda: export_module(model, inputs, named))
        with foreign_code(text):
            found = survey(model, inputs, named)
    return _of_survey(text.rpartition(":")[2], found, export)


def _failure(make: Any) -> str:
    """Why a program can't be exported and imported; nothing if it can."""
    try:
        import_to_compile(functional_to_compile(make()))
    except TilewrightError as error:
        return f"no: {error}"
    return ""


def _of_survey(name: str, found: Survey, export: str) -> dict[str, Any]:
    return {
        "name": name,
        "way": "torch.compile",
        "ok": True,
        "graphs": found.graphs,
        "compiled": found.compiled,
        "not_compiled": found.by_torch,
        "breaks": dict(found.breaks),
        "operators": [vars(item) for item in found.fallbacks],
        "export": export,
    }


def _of_exported(path: Path) -> dict[str, Any]:
    program = load_exported_program(path)
    export = _failure(lambda: program)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    return {
        "name": path.stem,
        "way": "torch.export",
        "ok": not export,
        "graphs": 1,
        "compiled": 0 if export else len(calls),
        "not_compiled": 0,
        "breaks": {},
        "operators": [],
        "export": export,
    }


def _of_onnx(path: Path) -> dict[str, Any]:
    known, unknown = used_operators(load_model(path))
    export = ""
    try:
        from_onnx(path)
    except TilewrightError as error:
        export = f"no: {error}"
    return {
        "name": path.stem,
        "way": "ONNX",
        "ok": not export,
        "graphs": 1,
        "compiled": sum(known.values()),
        "not_compiled": sum(unknown.values()),
        "breaks": {},
        "operators": [
            {"operator": key, "count": count, "reason": "there is no converter", "place": ""}
            for key, count in unknown.most_common()
        ],
        "export": export,
    }
