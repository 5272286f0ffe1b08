"""What random stages are made with: axes, loops around blocks, reads, expressions.

Everything is text with names of dimensions in it; see ``programs``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.testing.fuzz.programs import Program, Stage, Tensor, dims_in, fit

LIMITS = {
    "float32": 2**22,
    "float64": 2**40,
    "int8": 100,
    "uint8": 200,
    "int32": 2**28,
    "int64": 2**50,
    "bool": 1,
}
"""How large values may get: sums of them stay exact."""
SOFT = 300
"""How large the results of a stage may get, so that the next ones have room."""


@dataclass
class Axis:
    """An iteration variable of a block under construction."""

    name: str
    extent: str
    kind: str = "S"


@dataclass
class Value:
    """An expression under construction: text, dtype, greatest absolute value."""

    text: str
    dtype: str
    bound: int


@dataclass
class Nest:
    """Loops and bindings under construction."""

    loops: list[tuple[str, str, str]] = field(default_factory=list)  # variable, start, extent
    bindings: dict[str, str] = field(default_factory=dict)
    predicates: list[str] = field(default_factory=list)


Forms = Sequence[tuple[Callable[[Any], None], float]]
"""Kinds of stages (functions of the generator), with how often each is drawn."""


class Generator:
    """What all kinds of stages are made with; a subclass adds the kinds."""

    def __init__(self, rng: random.Random, seed: object, forms: Forms) -> None:
        self.forms = forms
        self.rng = rng
        self.seed = seed
        self.dims: dict[str, int] = {}
        self.symbolic: set[str] = set()
        self.inputs: list[Tensor] = []
        self.tensors: list[Tensor] = []
        self.used: set[str] = set()
        self.stages: list[Stage] = []
        self.rough = False
        self.loops = 0
        self.reads: list[str] = []
        self.guards: list[str] = []
        self.reducers: dict[str, str] = {}

    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return self.rng.random() < probability

    # ---- the whole ------------------------------------------------------------------------------

    def program(self, max_stages: int) -> Program:
        """A program of up to so many stages, of random forms."""
        rng = self.rng
        self.main_dtype = rng.choice(["float32"] * 5 + ["float64", "int32", "int32", "int64"])
        for _ in range(rng.choice([2, 2, 3, 3, 4])):
            extent = rng.choice([1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 12, 16])
            self.dims[f"d{len(self.dims)}"] = extent
        if self.chance(0.25):
            for dim in rng.sample(sorted(self.dims), rng.choice([1, 1, 2])):
                self.symbolic.add(dim)
                self.dims[dim] = rng.randint(3, 8)
        for _ in range(rng.choice([1, 1, 2])):
            self.new_input(self.random_shape())
        count = rng.choice([1, 2, 2, 3, 3, 4, max_stages])
        while len(self.stages) < min(count, max_stages):
            self.reads, self.guards = [], []
            kinds, weights = zip(*self.forms)
            rng.choices(kinds, weights)[0](self)
        return self.finished()

    def finished(self) -> Program:
        """The program of the stages so far; what no stage reads is a result, some others too."""
        made = [t.name for stage in self.stages for t in stage.outputs]
        results = self._results(made)
        read = {name for stage in self.stages for name in stage.reads} | set(made)
        # An input that nothing reads still gives symbolic extents their values.
        kept = tuple(t for t in self.inputs if t.name in read or self.symbolic & set(t.dims))
        texts = [text for t in (*kept, *self.tensors) for text in t.dims]
        texts += [line for stage in self.stages for line in stage.lines]
        used = {dim for text in texts for dim in dims_in(text)}
        program = Program(
            self.seed, {k: v for k, v in self.dims.items() if k in used},
            frozenset(self.symbolic & used), kept, tuple(self.stages), frozenset(results),
        )  # fmt: skip
        for dim in sorted(program.symbolic):
            if not any(dim in tensor.dims for tensor in program.params):
                extra = Tensor(f"X{dim}", (dim,), "float32", 4)
                program = replace(program, inputs=(*program.inputs, extra))
        return fit(program)

    def _results(self, made: Sequence[str]) -> set[str]:
        """Names of the results among what stages made."""
        inputs = {tensor.name for tensor in self.inputs}
        own = [name for name in made if name not in inputs]
        results = {name for name in own if name not in self.used}
        results.update(name for name in own if self.chance(0.1))
        return results or {made[-1]}

    # ---- tensors --------------------------------------------------------------------------------

    def random_shape(self) -> tuple[str, ...]:
        """One to three of the program's dimensions."""
        dims = sorted(self.dims)
        ndim = self.rng.choice([1, 2, 2, 2, 3, 3])
        return tuple(self.rng.choice(dims) for _ in range(ndim))

    def new_input(
        self, dims: tuple[str, ...], dtype: str | None = None, index_of: str = ""
    ) -> Tensor:
        """A parameter; the dimension ``index_of`` bounds what it holds."""
        dtype = dtype or self.rng.choice([self.main_dtype] * 5 + ["int8", "float32", "uint8"])
        made = Tensor(f"A{len(self.inputs)}", dims, dtype, 1 if dtype == "bool" else 4, index_of)
        self.inputs.append(made)
        if not index_of and dtype != "bool":
            self.tensors.append(made)
        return made

    def some_tensor(self) -> Tensor:
        """Choose what to read, recent and unused ones first."""
        fresh = [t for t in self.tensors if t.name not in self.used]
        pool = fresh if fresh and self.chance(0.6) else self.tensors
        return self.rng.choice(pool[-4:])

    def stage(
        self, form: str, outputs: Sequence[Tensor], lines: Sequence[str], updates: bool = False
    ) -> None:
        """Add a block that writes ``outputs`` and has read what was read since the last one."""
        reads = tuple(dict.fromkeys(self.reads))
        self.used.update(reads)
        self.stages.append(Stage(form, tuple(outputs), reads, tuple(lines), updates, self.rough))
        self.rough = False
        if not updates:
            self.tensors.extend(outputs)

    def new_name(self) -> str:
        """The name of the next stage."""
        return f"s{len(self.stages)}"

    # ---- reading --------------------------------------------------------------------------------

    def index(self, extent: str, axes: Sequence[Axis], taken: set[str]) -> str:
        """Return an index within ``extent`` made of block axes."""
        rng = self.rng
        same = [axis for axis in axes if axis.extent == extent]
        fresh = [axis for axis in same if axis.name not in taken] or same
        if fresh and self.chance(0.93):
            axis = rng.choice(fresh)
            taken.add(axis.name)
            draw = rng.random()
            if draw < 0.8:
                return axis.name
            if draw < 0.88:
                return f"{extent} - 1 - {axis.name}"
            if draw < 0.92:
                return f"({axis.name} + 1) % ({extent})"
            if draw < 0.96 and self.chance(0.5):
                return f"{axis.name} // 2"
            self.guards.append(f"{axis.name} + 1 < {extent}")
            return f"{axis.name} + 1"
        draw = rng.random()
        if axes and draw < 0.35:
            return f"{rng.choice(axes).name} % ({extent})"
        if axes and draw < 0.7:
            axis = rng.choice(axes)
            table = self.new_input((axis.extent,), rng.choice(["int32", "int64"]), extent)
            self.reads.append(table.name)
            load = f"{table.name}[{axis.name}]"
            return load if table.dtype == "int64" else f'T.Cast("int64", {load})'
        return rng.choice(["0", f"{extent} - 1"])

    def read(self, tensor: Tensor, axes: Sequence[Axis], indices: Sequence[str] = ()) -> Value:
        """Return a load from ``tensor``, guarded where an index may leave it."""
        self.guards, taken = [], set[str]()
        if not indices:
            indices = [self.index(extent, axes, taken) for extent in tensor.dims]
        self.reads.append(tensor.name)
        text = f"{tensor.name}[{', '.join(indices)}]"
        if self.guards:
            zero = constant(0, tensor.dtype)
            text = f"T.if_then_else({' and '.join(self.guards)}, {text}, {zero})"
            self.guards = []
        return Value(text, tensor.dtype, tensor.bound)

    # ---- values ---------------------------------------------------------------------------------

    def cast(self, value: Value, dtype: str) -> Value:
        """A value as another dtype, within bounds that it holds."""
        if value.dtype == dtype:
            return value
        value = self.bounded(value, LIMITS[dtype])
        if dtype == "uint8":
            value = Value(
                f"T.max({value.text}, {constant(0, value.dtype)})", value.dtype, value.bound
            )
        return Value(f'T.Cast("{dtype}", {value.text})', dtype, value.bound)

    def bounded(self, value: Value, limit: int) -> Value:
        """Clamp a value that could get larger than ``limit``."""
        if value.bound <= limit:
            return value
        low = 0 if value.dtype == "uint8" else -8
        text = (
            f"T.min(T.max({value.text}, {constant(low, value.dtype)}), {constant(8, value.dtype)})"
        )
        return Value(text, value.dtype, 8)

    def combine(self, a: Value, b: Value) -> Value:
        """Apply a random operator."""
        rng, dtype = self.rng, a.dtype
        limit = min(LIMITS[dtype], SOFT * 40)
        op = rng.choice(["+", "+", "-", "*", "*", "min", "max", "select", "if"])
        if op == "-" and dtype == "uint8":
            op = "max"
        bound = {"+": a.bound + b.bound, "-": a.bound + b.bound, "*": a.bound * b.bound}.get(
            op, max(a.bound, b.bound)
        )
        if bound > limit:
            op, bound = "max", max(a.bound, b.bound)
        if op in ("min", "max"):
            return Value(f"T.{op}({a.text}, {b.text})", dtype, bound)
        if op in ("select", "if"):
            function = "T.Select" if op == "select" else "T.if_then_else"
            test = rng.choice([f"{a.text} < {b.text}", f"{a.text} > {constant(1, dtype)}"])
            return Value(f"{function}({test}, {a.text}, {b.text})", dtype, bound)
        return Value(f"({a.text} {op} {b.text})", dtype, bound)

    def modified(self, value: Value, axes: Sequence[Axis]) -> Value:
        """Apply something with a constant, an axis or a mask, or nothing."""
        rng, dtype = self.rng, value.dtype
        draw = rng.random()
        if draw < 0.35:
            return value
        if draw < 0.6:
            return self.combine(value, Value(constant(rng.choice([1, 2, 3]), dtype), dtype, 3))
        if draw < 0.75 and axes and dtype not in ("uint8", "int8"):
            axis = rng.choice(axes)
            text = axis.name if dtype == "int64" else f'T.Cast("{dtype}", {axis.name})'
            return self.combine(value, Value(text, dtype, 64))
        if draw < 0.85 and axes:
            axis = rng.choice(axes)
            mask = self.new_input((axis.extent,), "bool")
            self.reads.append(mask.name)
            other = constant(rng.choice([0, 1]), dtype)
            load = f"{mask.name}[{axis.name}]"
            return Value(f"T.Select({load}, {value.text}, {other})", dtype, value.bound)
        if draw < 0.9 and dtype.startswith("int"):
            op = rng.choice(["// {}", "% {}"]).format(constant(rng.choice([2, 3]), dtype))
            return Value(f"({value.text} {op})", dtype, max(value.bound, 3))
        if draw < 0.97 and axes:
            axis = rng.choice(axes)
            test = f"{axis.name} < {rng.choice([1, 2, 3])}"
            return Value(
                f"T.if_then_else({test}, {value.text}, {constant(1, dtype)})", dtype, value.bound
            )
        return value

    def value(self, axes: Sequence[Axis], dtype: str, main: Value) -> Value:
        """Return an expression over ``main`` and perhaps other reads."""
        made = self.modified(self.cast(main, dtype), axes)
        for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
            other = self.read(self.operand(axes), axes)
            made = self.combine(made, self.modified(self.cast(other, dtype), axes))
        if dtype.startswith("float") and self.chance(0.03):
            self.rough = True
            function = self.rng.choice(["T.exp(T.min({}, {}))", "T.sqrt(T.max({}, {}))"])
            made = Value(function.format(made.text, constant(2, dtype)), dtype, made.bound + 8)
        return self.bounded(made, min(SOFT, LIMITS[dtype]))

    def operand(self, axes: Sequence[Axis]) -> Tensor:
        """Choose a further tensor to read, now and then a new one that broadcasts."""
        if axes and self.chance(0.4):
            picked = self.rng.sample(list(axes), min(len(axes), self.rng.choice([1, 1, 2])))
            return self.new_input(tuple(axis.extent for axis in picked))
        return self.some_tensor()

    def dtype_of(self, tensor: Tensor) -> str:
        """The dtype that a tensor is computed with: its own, mostly."""
        if self.chance(0.75):
            return tensor.dtype if tensor.dtype not in ("uint8", "bool") else "int32"
        return self.rng.choice(["float32", "float64", "int32", "int64", "int8"])

    # ---- loops ----------------------------------------------------------------------------------

    def nest(self, axes: Sequence[Axis]) -> Nest:
        """Make loops for the axes: one each, tiled, fused, shifted or in another order."""
        rng, made = self.rng, Nest()
        if len(axes) >= 2 and axes[0].kind == axes[1].kind == "S" and self.chance(0.05):
            self.loops += 1
            var, (a, b) = f"f{self.loops}", axes[:2]
            made.loops.append((var, "0", f"({a.extent}) * ({b.extent})"))
            made.bindings[a.name] = f"{var} // ({b.extent})"
            made.bindings[b.name] = f"{var} % ({b.extent})"
            axes = axes[2:]
        for axis in axes:
            self.loops += 1
            var = f"i{self.loops}"
            draw = rng.random()
            if draw < 0.06:
                tile = rng.choice([2, 3, 4])
                made.loops.append((var, "0", f"(({axis.extent}) + {tile - 1}) // {tile}"))
                made.loops.append((f"{var}_t", "0", str(tile)))
                made.bindings[axis.name] = f"{var} * {tile} + {var}_t"
                made.predicates.append(f"{var} * {tile} + {var}_t < {axis.extent}")
            elif draw < 0.09:
                made.loops.append((var, "2", axis.extent))
                made.bindings[axis.name] = f"{var} - 2"
            else:
                made.loops.append((var, "0", axis.extent))
                made.bindings[axis.name] = var
        if self.chance(0.15):
            rng.shuffle(made.loops)
        if self.chance(0.04):
            made.loops.insert(rng.randint(0, len(made.loops)), (f"u{self.loops}", "0", "1"))
        return made

    def block(
        self, name: str, axes: Sequence[Axis], body: Sequence[str], direct: bool = False
    ) -> list[str]:
        """Return the lines of a nest with one block in it."""
        nest = self.nest(axes)
        if direct:
            nest = Nest([(f"{a.name}_i", "0", a.extent) for a in axes],
                        {a.name: f"{a.name}_i" for a in axes})  # fmt: skip
        lines, depth = [], 0
        for var, start, extent in nest.loops:
            span = extent if start == "0" else f"{start}, {start} + {extent}"
            lines.append("    " * depth + f"for {var} in T.serial({span}):")
            depth += 1
        lines.append("    " * depth + f'with T.block("{name}"):')
        depth += 1
        kinds = {"S": "spatial", "R": "reduce", "O": "opaque"}
        for axis in axes:
            value = nest.bindings[axis.name]
            lines.append(
                "    " * depth + f"{axis.name} = T.axis.{kinds[axis.kind]}({axis.extent}, {value})"
            )
        if nest.predicates:
            lines.append("    " * depth + f"T.where({' and '.join(nest.predicates)})")
        lines.extend("    " * depth + line for line in body)
        return lines

    def axes_for(self, tensor: Tensor) -> tuple[list[Axis], list[str]]:
        """Return spatial axes over a tensor (permuted now and then) and the indices to read it."""
        axes = [Axis(f"v{number}", extent) for number, extent in enumerate(tensor.dims)]
        indices = [axis.name for axis in axes]
        if len(axes) > 1 and self.chance(0.25):
            self.rng.shuffle(axes)
        return axes, indices


def constant(value: int, dtype: str) -> str:
    """Return the text of a constant."""
    return f"T.{dtype}({value})"
