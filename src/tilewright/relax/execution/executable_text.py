"""What an executable holds, as text: ``Executable.stats`` and ``Executable.as_text``."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import IRModule, pre_order
from tilewright.relax.analysis import estimate_memory_usage
from tilewright.relax.branches import all_bindings
from tilewright.relax.constant_data import ConstantData
from tilewright.relax.expr import Constant, Function, FunctionRef, RelaxCall


def statistics(planned: IRModule) -> str:
    """Describe constants, kernels and their calls, and the memory of each graph function."""
    lines = ["Executable statistics:"]
    constants = {data: None for f in _graphs(planned).values() for data in _constants(f)}
    shown = ", ".join(f"{data.dtype.name}{list(data.shape)}" for data in constants)
    nbytes = sum(data.nbytes for data in constants)
    lines.append(f"  Constants (# {len(constants)}, {nbytes} bytes): [{shown}]")
    for name, function in _graphs(planned).items():
        called = [ref.name for b in all_bindings(function) for ref in _callees(b.value)]
        kernels = ", ".join(f"{k} x {called.count(k)}" for k in dict.fromkeys(called))
        lines.append(f"  Function {name} (# {len(called)} calls): [{kernels}]")
    return "\n".join([*lines, estimate_memory_usage(planned)])


def instructions(planned: IRModule) -> str:
    """Write graph functions as the calls and allocations they are; of kernels the names."""
    graphs = _graphs(planned)
    parts = [f"@{name}:\n{_body(function)}" for name, function in graphs.items()]
    return "\n\n".join([*parts, *(f"@{n} kernel;" for n in planned.functions if n not in graphs)])


def _body(function: Function) -> str:
    text = function.script()
    return text[text.index("@R.function") :].rstrip()


def _graphs(planned: IRModule) -> dict[str, Function]:
    return {n: f for n, f in planned.functions.items() if isinstance(f, Function)}


def _constants(function: Function) -> Iterator[ConstantData]:
    return (node.value for node in pre_order(function) if isinstance(node, Constant))


def _callees(value: object) -> list[FunctionRef]:
    args = value.args if isinstance(value, RelaxCall) else ()
    return [arg for arg in args if isinstance(arg, FunctionRef)]
