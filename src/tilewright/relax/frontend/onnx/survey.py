"""What of a model the importer knows, without importing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tilewright.relax.frontend.onnx.converters import CONVERTERS
from tilewright.relax.frontend.onnx.known import EVALUATORS
from tilewright.relax.frontend.onnx.model import require_onnx

if TYPE_CHECKING:
    import onnx


def used_operators(model: onnx.ModelProto) -> tuple[Counter[str], Counter[str]]:
    """Count the operators of a model that the importer knows, and the others.

    Those of branches, loops and functions are counted once for each place in the file. Whether an
    operator's attributes and operands are supported turns out when it is imported.
    """
    versions = {item.domain or "": item.version for item in model.opset_import}
    own = {(item.domain or "", item.name) for item in model.functions}
    known: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    bodies = [model.graph.node, *(item.node for item in model.functions)]
    for node in (node for body in bodies for node in _nodes(body)):
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = f"{domain}.{node.op_type}" if domain else node.op_type
        found = (
            (domain, node.op_type) in own
            or key in CONVERTERS
            or (not domain and node.op_type in EVALUATORS)
            or _is_defined(node.op_type, domain, versions.get(domain))
        )
        (known if found else unknown)[key] += 1
    return known, unknown


def _nodes(body: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in body:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _is_defined(name: str, domain: str, version: int | None) -> bool:
    """Whether ONNX defines an operator by a function of others."""
    onnx = require_onnx()
    if version is None:
        return False
    try:
        schema = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
