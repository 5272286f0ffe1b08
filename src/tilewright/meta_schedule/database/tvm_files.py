"""Records of TVM: the two files of its ``JSONDatabase``, read as ours.

A workload is a base64 text of TVM's graph of objects. What there is of tensor programs in it is
written as our script, which is then read like any stranger's script. A trace is translated
instruction by instruction and must replay on the program. What can't be read is counted by reason.

Read are files of TVM 0.27, where blocks are called ``SBlock``.
"""

from __future__ import annotations

import base64
import json
import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright import script
from tilewright.ir import IRModule
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.record import TuningRecord, Workload, normalized
from tilewright.meta_schedule.database.schema import LONGEST_LINE, read_line
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.tir import fresh_name
from tilewright.tir.analysis import verify

WORKLOAD_FILE = "database_workload.json"
RECORD_FILE = "database_tuning_record.json"
_LONGEST_PROGRAM = 1 << 20  # characters: nodes may be shared, text isn't
_MOST_VISITS = 1 << 20
_LONGEST_REASON = 200
_MALFORMED = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip

_BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "FloorMod": "%",
    "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=",
}  # fmt: skip
_CALLS = {"Max": "T.max", "Min": "T.min", "And": "T.And", "Or": "T.Or"}
_MATH = {
    "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "pow",
    "floor", "ceil", "round", "trunc",
}  # fmt: skip

_PRIMITIVES: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "GetSBlock": ("get_block", (), ("name", "func_name")),
    "GetLoops": ("get_loops", ("block",), ()),
    "GetChildBlocks": ("get_child_blocks", ("block_or_loop",), ()),
    "GetProducers": ("get_producers", ("block",), ()),
    "GetConsumers": ("get_consumers", ("block",), ()),
    "GetOutputBlocks": ("get_output_blocks", ("scope_block",), ()),
    "SampleCategorical": ("sample_categorical", (), ("candidates", "probs")),
    "SamplePerfectTile": ("sample_perfect_tile", ("loop",), ("n", "max_innermost_factor")),
    "SampleComputeLocation": ("sample_compute_location", ("block",), ()),
    "Fuse": ("fuse", ("*loops",), ("preserve_unit_iters",)),
    "Split": (
        "split", ("loop", "*factors"), ("preserve_unit_iters", "disable_predication"),
    ),
    "Reorder": ("reorder", ("*loops",), ()),
    "AddUnitLoop": ("add_unit_loop", ("block_or_loop",), ()),
    "Parallel": ("parallel", ("loop",), ()),
    "Vectorize": ("vectorize", ("loop",), ()),
    "Unroll": ("unroll", ("loop",), ()),
    "Bind": ("bind", ("loop",), ("thread_axis",)),
    "CacheRead": (
        "cache_read", ("block", "consumer_blocks"), ("read_buffer_index", "storage_scope"),
    ),
    "CacheWrite": (
        "cache_write", ("block", "consumer_blocks"), ("write_buffer_index", "storage_scope"),
    ),
    "ComputeAt": ("compute_at", ("block", "loop"), ("preserve_unit_loops", "index")),
    "ReverseComputeAt": (
        "reverse_compute_at", ("block", "loop"), ("preserve_unit_loops", "index"),
    ),
    "ComputeInline": ("compute_inline", ("block",), ()),
    "ReverseComputeInline": ("reverse_compute_inline", ("block",), ()),
    "DecomposeReduction": ("decompose_reduction", ("block", "loop"), ()),
    "RFactor": ("rfactor", ("loop",), ("factor_axis",)),
    "Annotate": ("annotate", ("block_or_loop", "ann_val"), ("ann_key",)),
    "Unannotate": ("unannotate", ("block_or_loop",), ("ann_key",)),
    "SetScope": ("set_scope", ("block",), ("buffer_index", "storage_scope")),
    "StorageAlign": ("storage_align", ("block",), ("buffer_index", "axis", "factor", "offset")),
    "EnterPostproc": ("enter_postproc", (), ()),
}  # fmt: skip
"""TVM's instructions: our primitive, its parameters that are inputs (a star takes the others) and
those that are attributes, both in TVM's order."""

_ORDER = {
    "annotate": ("block_or_loop", "ann_key", "ann_val"),
    "cache_read": ("block", "read_buffer_index", "storage_scope", "consumer_blocks"),
    "cache_write": ("block", "write_buffer_index", "storage_scope", "consumer_blocks"),
}
_FLAGS = {"preserve_unit_iters", "preserve_unit_loops", "disable_predication"}
_OPTIONS = ("mcpu", "mtriple", "mattr", "num-cores")


class TVMFiles:
    """The records of a folder; ``refused`` is complete when ``records`` are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refused: Counter[str] = Counter()
        self.choices: tuple[GraphChoice, ...] = ()  # TVM keeps none

    def records(self) -> Iterator[TuningRecord]:
        """Yield the records that can be read and replay."""
        workloads: list[Workload | str] = []
        for line in self._lines(WORKLOAD_FILE):
            try:
                workloads.append(_workload(read_line(line)))
            except TilewrightError as error:
                workloads.append(f"its program can't be read: {error.message}")
        for line in self._lines(RECORD_FILE):
            if not line.strip():
                continue
            try:
                record = _record(read_line(line), workloads)
                record.schedule()
            except TilewrightError as error:
                self.refused[str(error.message)[:_LONGEST_REASON]] += 1
                continue
            yield record

    def _lines(self, name: str) -> Iterator[bytes]:
        try:
            with (self.folder / name).open("rb") as file:
                while line := file.readline(LONGEST_LINE + 1):
                    yield line
        except OSError as error:
            raise TuneError(f"the file {self.folder / name} can't be read: {error}") from error


def _record(data: Any, workloads: list[Workload | str]) -> TuningRecord:
    try:
        number, (trace, seconds, target, infos) = data
        insts, decisions = trace
        found = [_inst(inst, i, dict(decisions)) for i, inst in enumerate(insts)]
        options = {key: target[key] for key in ("kind", *_OPTIONS) if key in target}
        if isinstance(options.get("mattr"), list):
            options["mattr"] = ",".join(options["mattr"])
        workload = workloads[number]
    except _MALFORMED as error:
        raise TuneError("the line is no record of TVM") from error
    if isinstance(workload, str):
        raise TuneError(workload)
    return TuningRecord.from_json([found, seconds, options, infos, {"origin": "TVM"}], workload)


def _inst(inst: list[Any], number: int, decisions: dict[int, Any]) -> list[Any]:
    """Translate an instruction ``[name, inputs, attributes, outputs]``."""
    name, inputs, attrs, outputs = inst
    if name not in _PRIMITIVES:
        raise TuneError(f"there is no primitive for TVM's {str(name)[:80]}")
    primitive, names, attr_names = _PRIMITIVES[name]
    values: dict[str, Any] = {}
    rest = [_input(item) for item in inputs]
    for parameter in names:
        if parameter.startswith("*"):
            values[parameter[1:]], rest = rest, []
        else:
            values[parameter] = rest.pop(0)
    for parameter, item in zip(attr_names, attrs):
        values[parameter] = bool(item) if parameter in _FLAGS else item
    if rest or len(attrs) > len(attr_names):
        raise TuneError(f"TVM's {name} has more arguments here")
    arguments = [values[key] for key in _ORDER.get(primitive, values)]
    made = [primitive, arguments, outputs]
    return [*made, decisions[number]] if number in decisions else made


def _input(item: object) -> Any:
    if isinstance(item, list):
        return [_input(part) for part in item]
    if isinstance(item, str):
        return json.loads(item) if item.startswith('"') else f"${item}"
    return item


# ---- programs ------------------------------------------------------------------------------------


def _workload(data: Any) -> Workload:
    try:
        _, packed = data
        graph = json.loads(base64.b64decode(packed, validate=True)[8:])  # its length comes first
        text = _Writer(graph["nodes"]).module(graph["root_index"])
    except _MALFORMED as error:
        raise TuneError(f"it is no graph of TVM's objects ({type(error).__name__})") from error
    mod = script.parse(text)
    if not isinstance(mod, IRModule):
        raise TuneError("it is no module")
    verify(mod)
    return Workload(normalized(mod))


class _Writer:
    """Writes a module of TVM as our script."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.names: dict[int, str] = {}
        self.taken: set[str] = {"T", "I"}
        self.lines: list[str] = []
        self.length = self.visits = 0

    # ---- nodes ------------------------------------------------------------------------------
    def get(self, number: int) -> tuple[str, Any]:
        """Return a node's kind, without its dialect, and its fields."""
        self.visits += 1
        if self.visits > _MOST_VISITS:
            raise TuneError("its program is too long")
        node = self.nodes[number]
        return node["type"].rpartition(".")[2], node.get("data")

    def value(self, number: int) -> Any:
        """Return a text, a number, a list or pairs."""
        return self.get(number)[1]

    def items(self, number: int) -> list[int]:
        """Return the nodes in an array; ``None`` has none."""
        return self.value(number) or []

    def name(self, number: int, hint: str) -> str:
        """Return the name of a variable or a buffer."""
        if number not in self.names:
            base = re.sub(r"\W", "_", hint, flags=re.ASCII) or "x"
            base = base if base[0].isalpha() and not keyword.iskeyword(base) else f"v{base}"
            self.names[number] = fresh_name(base, self.taken)
        return self.names[number]

    def write(self, depth: int, line: str) -> None:
        self.length += len(line)
        if self.length > _LONGEST_PROGRAM:
            raise TuneError("its program is too long")
        self.lines.append("    " * depth + line)

    # ---- functions --------------------------------------------------------------------------
    def module(self, root: int) -> str:
        """Return the script of a module of one function."""
        kind, fields = self.get(root)
        pairs = self.value(fields["functions"]) if kind == "IRModule" else []
        if len(pairs) != 2:
            raise TuneError("it is no module of one function")
        kind, function = self.get(pairs[1])
        if kind != "PrimFunc":
            raise TuneError(f"its function is a {kind}")
        parameters = ", ".join(
            f"{self.buffer(item)}: T.Buffer({self.type_of(item)})"
            for item in self.items(function["params"])
        )
        self.lines = [
            "from tilewright.script import ir as I", "from tilewright.script import tir as T",
            "@I.ir_module", "class Module:", "    @T.prim_func", f"    def main({parameters}):",
        ]  # fmt: skip
        self.stmt(function["body"], 2)
        return "\n".join(self.lines) + "\n"

    def buffer(self, number: int) -> str:
        kind, fields = self.get(number)
        if kind != "Var" or self.get(fields["ty"])[0] != "BufferType":
            raise TuneError(f"a {kind} stands where a buffer is expected")
        return self.name(number, self.value(fields["name"]))

    def type_of(self, number: int) -> str:
        """Return a buffer's shape and dtype as arguments."""
        fields = self.value(self.value(number)["ty"])
        offset, scope = fields.get("elem_offset"), fields.get("storage_scope")
        if self.items(fields["strides"]) or (offset and self.expr(offset) != "0"):
            raise TuneError("a buffer has strides or an offset")
        if scope is not None and self.value(scope) not in ("", "global", None):
            raise TuneError("a buffer is not in global memory")
        return f"{self.shape(fields['shape'])}, {json.dumps(self.dtype(fields['dtype']))}"

    def shape(self, number: int) -> str:
        kind, _ = self.get(number)
        if kind == "ShapeExpr":
            number = self.value(number)["values"]
        return "(" + "".join(f"{self.expr(item)}, " for item in self.items(number)) + ")"

    def dtype(self, number: int) -> str:
        fields = self.value(number)
        text = fields if isinstance(fields, str) else fields["dtype"]
        if not re.fullmatch(r"[a-z]+[0-9]*", text):
            raise TuneError(f"a dtype is {text[:80]}")
        return str(text)

    # ---- statements -------------------------------------------------------------------------
    def stmt(self, number: int, depth: int) -> None:
        kind, fields = self.get(number)
        method: Callable[[Any, int], None] | None = getattr(self, f"write_{kind}", None)
        if method is None:
            raise TuneError(f"there is a statement {str(kind)[:80]}")
        method(fields, depth)

    def write_SeqStmt(self, fields: dict[str, Any], depth: int) -> None:
        for item in self.items(fields["seq"]):
            self.stmt(item, depth)

    def write_For(self, fields: dict[str, Any], depth: int) -> None:
        if fields["kind"] != 0 or fields["thread_binding"] or self.items(fields["annotations"]):
            raise TuneError("a loop is scheduled already")
        if self.expr(fields["min"]) != "0" or fields.get("step"):
            raise TuneError("a loop does not begin at zero, or has a step")
        variable = self.variable(fields["loop_var"])
        self.write(depth, f"for {variable} in T.serial({self.expr(fields['extent'])}):")
        self.stmt(fields["body"], depth + 1)

    def write_BufferStore(self, fields: dict[str, Any], depth: int) -> None:
        indices = ", ".join(map(self.expr, self.items(fields["indices"]))) or "()"
        value = self.expr(fields["value"])
        self.write(depth, f"{self.buffer(fields['buffer'])}[{indices}] = {value}")

    def write_SBlockRealize(self, fields: dict[str, Any], depth: int) -> None:
        block = self.value(fields["block"])
        name = self.value(block["name_hint"])
        if self.items(block["match_buffers"]) or self.items(block["annotations"]):
            raise TuneError("a block has views or annotations")
        if name != "root" or self.items(block["iter_vars"]):
            self.write(depth, f"with T.block({json.dumps(name)}):")
            depth += 1
            for var, value in zip(
                self.items(block["iter_vars"]), self.items(fields["iter_values"])
            ):
                self.axis(self.value(var), value, depth)
            if self.expr(fields["predicate"]) not in ("True", "1"):
                self.write(depth, f"T.where({self.expr(fields['predicate'])})")
            for access in ("reads", "writes"):
                regions = ", ".join(map(self.region, self.items(block[access])))
                self.write(depth, f"T.{access}({regions})")
        for item in self.items(block["alloc_buffers"]):
            self.write(depth, f"{self.buffer(item)} = T.alloc_buffer({self.type_of(item)})")
        if self.get(block["init"])[0] != "None":
            self.write(depth, "with T.init():")
            self.stmt(block["init"], depth + 1)
        self.stmt(block["body"], depth)

    def axis(self, var: dict[str, Any], value: int, depth: int) -> None:
        kinds = {0: "spatial", 2: "reduce"}
        if var["iter_type"] not in kinds:
            raise TuneError("an axis is neither spatial nor of a reduction")
        domain = self.value(var["dom"])
        if self.expr(domain["min"]) != "0":
            raise TuneError("an axis does not begin at zero")
        extent, name = self.expr(domain["extent"]), self.variable(var["var"])
        kind = kinds[var["iter_type"]]
        self.write(depth, f"{name} = T.axis.{kind}({extent}, {self.expr(value)})")

    def region(self, number: int) -> str:
        fields = self.value(number)
        parts = []
        for item in self.items(fields["region"]):
            span = self.value(item)
            low, extent = self.expr(span["min"]), self.expr(span["extent"])
            parts.append(low if extent == "1" else f"{low}:{low} + {extent}")
        return f"{self.buffer(fields['source'])}[{', '.join(parts) or '()'}]"

    # ---- expressions ------------------------------------------------------------------------
    def variable(self, number: int) -> str:
        kind, fields = self.get(number)
        if kind != "Var":
            raise TuneError(f"a {kind} stands where a variable is expected")
        return self.name(number, self.value(fields["name"]))

    def expr(self, number: int) -> str:
        """Return an expression as text."""
        kind, fields = self.get(number)
        if kind in _BINARY:
            text = f"({self.expr(fields['a'])} {_BINARY[kind]} {self.expr(fields['b'])})"
        elif kind in _CALLS:
            text = f"{_CALLS[kind]}({self.expr(fields['a'])}, {self.expr(fields['b'])})"
        elif kind == "Var":
            text = self.variable(number)
        elif kind == "IntImm":
            value = int(self.value(fields["value"]))
            dtype = self.dtype(fields["ty"])
            text = str(value)
            if dtype == "bool":
                text = str(bool(value))
            elif dtype not in ("int32", "int64"):
                text = f"T.{dtype}({value})"
        elif kind == "FloatImm":
            text = f"T.{self.dtype(fields['ty'])}({float(fields['value'])!r})"
        elif kind == "TensorLoad":
            indices = ", ".join(map(self.expr, self.items(fields["indices"]))) or "()"
            text = f"{self.buffer(fields['source'])}[{indices}]"
        elif kind == "Cast":
            text = f"T.Cast({json.dumps(self.dtype(fields['ty']))}, {self.expr(fields['value'])})"
        elif kind == "Select":
            parts = (fields[key] for key in ("condition", "true_value", "false_value"))
            text = f"T.Select({', '.join(map(self.expr, parts))})"
        elif kind == "Call":
            name = str(self.value(fields["op"])).rpartition(".")[2]
            if name not in _MATH:
                raise TuneError(f"it calls {name[:80]}")
            text = f"T.{name}({', '.join(map(self.expr, self.items(fields['args'])))})"
        else:
            raise TuneError(f"there is an expression {str(kind)[:80]}")
        if len(text) > _LONGEST_PROGRAM:
            raise TuneError("its program is too long")
        return text


__all__ = ["TVMFiles"]
