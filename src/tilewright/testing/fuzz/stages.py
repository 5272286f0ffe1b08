"""Random programs, each from a seed: kinds of stages, and how they read each other.

``FORMS`` lists the kinds of stages. Each takes what the stages before it made, draws axes, loops
(tiled, fused, shifted, in any order) and an expression, and adds text to the program.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.testing.fuzz.programs import Program, Stage, Tensor, dims_in, fit, number

_LIMITS = {
    "float32": 2**22,
    "float64": 2**40,
    "int8": 100,
    "uint8": 200,
    "int32": 2**28,
    "int64": 2**50,
    "bool": 1,
}
"""How large values may get: sums of them stay exact."""
_SOFT = 300
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


def generate(seed: Any, *, max_stages: int = 5) -> Program:
    """Return the random program of a seed."""
    return _Generator(random.Random(f"program {seed}"), seed).program(max_stages)


class _Generator:
    def __init__(self, rng: random.Random, seed: Any) -> None:
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
        return self.rng.random() < probability

    # ---- the whole ------------------------------------------------------------------------------

    def program(self, max_stages: int) -> Program:
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
            rng.choices([form for form, _ in FORMS], [weight for _, weight in FORMS])[0](self)
        return self.finished()

    def finished(self) -> Program:
        made = [t.name for stage in self.stages for t in stage.outputs]
        inputs = {tensor.name for tensor in self.inputs}
        results = {name for name in made if name not in self.used and name not in inputs}
        results.update(name for name in made if name not in inputs and self.chance(0.1))
        if not results:
            results = {made[-1]}
        read = {name for stage in self.stages for name in stage.reads} | set(made)
        # An input that nothing reads still gives symbolic extents their values.
        kept = tuple(t for t in self.inputs if t.name in read or self.symbolic & set(t.dims))
        used = {dim for t in (*kept, *self.tensors) for text in t.dims for dim in dims_in(text)}
        used |= {dim for stage in self.stages for line in stage.lines for dim in dims_in(line)}
        program = Program(
            self.seed, {k: v for k, v in self.dims.items() if k in used},
            frozenset(self.symbolic & used), kept, tuple(self.stages), frozenset(results),
        )  # fmt: skip
        for dim in sorted(program.symbolic):
            if not any(dim in tensor.dims for tensor in program.params):
                extra = Tensor(f"X{dim}", (dim,), "float32", 4)
                program = replace(program, inputs=(*program.inputs, extra))
        return fit(program)

    # ---- tensors --------------------------------------------------------------------------------

    def random_shape(self) -> tuple[str, ...]:
        dims = sorted(self.dims)
        ndim = self.rng.choice([1, 2, 2, 2, 3, 3])
        return tuple(self.rng.choice(dims) for _ in range(ndim))

    def new_input(
        self, dims: tuple[str, ...], dtype: str | None = None, index_of: str = ""
    ) -> Tensor:
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
        reads = tuple(dict.fromkeys(self.reads))
        self.used.update(reads)
        self.stages.append(Stage(form, tuple(outputs), reads, tuple(lines), updates, self.rough))
        self.rough = False
        if not updates:
            self.tensors.extend(outputs)

    def new_name(self) -> str:
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
            zero = _const(0, tensor.dtype)
            text = f"T.if_then_else({' and '.join(self.guards)}, {text}, {zero})"
            self.guards = []
        return Value(text, tensor.dtype, tensor.bound)

    # ---- values ---------------------------------------------------------------------------------

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        value = self.bounded(value, _LIMITS[dtype])
        if dtype == "uint8":
            value = Value(
                f"T.max({value.text}, {_const(0, value.dtype)})", value.dtype, value.bound
            )
        return Value(f'T.Cast("{dtype}", {value.text})', dtype, value.bound)

    def bounded(self, value: Value, limit: int) -> Value:
        """Clamp a value that could get larger than ``limit``."""
        if value.bound <= limit:
            return value
        low = 0 if value.dtype == "uint8" else -8
        text = f"T.min(T.max({value.text}, {_const(low, value.dtype)}), {_const(8, value.dtype)})"
        return Value(text, value.dtype, 8)

    def combine(self, a: Value, b: Value) -> Value:
        """Apply a random operator."""
        rng, dtype = self.rng, a.dtype
        limit = min(_LIMITS[dtype], _SOFT * 40)
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
            test = rng.choice([f"{a.text} < {b.text}", f"{a.text} > {_const(1, dtype)}"])
            return Value(f"{function}({test}, {a.text}, {b.text})", dtype, bound)
        return Value(f"({a.text} {op} {b.text})", dtype, bound)

    def modified(self, value: Value, axes: Sequence[Axis]) -> Value:
        """Apply something with a constant, an axis or a mask, or nothing."""
        rng, dtype = self.rng, value.dtype
        draw = rng.random()
        if draw < 0.35:
            return value
        if draw < 0.6:
            return self.combine(value, Value(_const(rng.choice([1, 2, 3]), dtype), dtype, 3))
        if draw < 0.75 and axes and dtype not in ("uint8", "int8"):
            axis = rng.choice(axes)
            text = axis.name if dtype == "int64" else f'T.Cast("{dtype}", {axis.name})'
            return self.combine(value, Value(text, dtype, 64))
        if draw < 0.85 and axes:
            axis = rng.choice(axes)
            mask = self.new_input((axis.extent,), "bool")
            self.reads.append(mask.name)
            other = _const(rng.choice([0, 1]), dtype)
            load = f"{mask.name}[{axis.name}]"
            return Value(f"T.Select({load}, {value.text}, {other})", dtype, value.bound)
        if draw < 0.9 and dtype.startswith("int"):
            op = rng.choice(["// {}", "% {}"]).format(_const(rng.choice([2, 3]), dtype))
            return Value(f"({value.text} {op})", dtype, max(value.bound, 3))
        if draw < 0.97 and axes:
            axis = rng.choice(axes)
            test = f"{axis.name} < {rng.choice([1, 2, 3])}"
            return Value(
                f"T.if_then_else({test}, {value.text}, {_const(1, dtype)})", dtype, value.bound
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
            made = Value(function.format(made.text, _const(2, dtype)), dtype, made.bound + 8)
        return self.bounded(made, min(_SOFT, _LIMITS[dtype]))

    def operand(self, axes: Sequence[Axis]) -> Tensor:
        """Choose a further tensor to read, now and then a new one that broadcasts."""
        if axes and self.chance(0.4):
            picked = self.rng.sample(list(axes), min(len(axes), self.rng.choice([1, 1, 2])))
            return self.new_input(tuple(axis.extent for axis in picked))
        return self.some_tensor()

    def dtype_of(self, tensor: Tensor) -> str:
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
        self, name: str, axes: Sequence[Axis], body: Sequence[str], plain: bool = False
    ) -> list[str]:
        """Return the lines of a nest with one block in it."""
        nest = self.nest(axes)
        if plain:
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

    # ---- forms ----------------------------------------------------------------------------------

    def elementwise(self) -> None:
        source = self.some_tensor()
        axes, indices = self.axes_for(source)
        if self.chance(0.15):
            axes.insert(
                self.rng.randint(0, len(axes)), Axis("v9", self.rng.choice(sorted(self.dims)))
            )
        dtype, name = self.dtype_of(source), self.new_name()
        value = self.value(axes, dtype, self.read(source, axes, indices))
        out = Tensor(name, tuple(axis.extent for axis in axes), dtype, value.bound)
        target = f"{name}[{', '.join(axis.name for axis in axes)}]"
        body = [f"{target} = {value.text}"]
        if self.chance(0.06):
            local = f"{name}_x: T.{dtype} = {value.text}"
            body = [local, f"{target} = {name}_x"]
        self.stage("elementwise", [out], self.block(name, axes, body))

    def epilogue(self) -> None:
        """Combine a reduction's result with a further value, as a bias does."""
        made = [t for stage in self.stages for t in stage.outputs if t.name in self.reducers]
        fresh = [tensor for tensor in made if tensor.name not in self.used]
        source = self.rng.choice(fresh or made or self.tensors)
        axes = [Axis(f"v{at}", extent) for at, extent in enumerate(source.dims)]
        place = ", ".join(axis.name for axis in axes)
        picked = [axis for axis in axes if self.chance(0.6)]
        other = self.new_input(tuple(axis.extent for axis in picked) or ("1",), source.dtype)
        first = self.read(source, axes, [axis.name for axis in axes])
        second = self.read(other, axes, [axis.name for axis in picked] or ["0"])
        kinds = {
            "sum": "{} + {}",
            "prod": "{} * {}",
            "max": "T.max({}, {})",
            "min": "T.min({}, {})",
        }
        op = kinds.get(self.reducers.get(source.name, ""), "{} + {}")
        if self.chance(0.2):
            op = self.rng.choice(sorted(kinds.values()))
        operands = [first.text, second.text]
        if self.chance(0.5):
            operands.reverse()
        name = self.new_name()
        text = op.format(*operands)
        out = Tensor(name, source.dims, source.dtype, source.bound * 4)
        self.stage("epilogue", [out], self.block(name, axes, [f"{name}[{place}] = {text}"]))

    def stencil(self) -> None:
        """Read a few neighbours along one dimension: windows of the source overlap."""
        source = self.some_tensor()
        position = max(range(len(source.dims)), key=lambda at: self.least(source.dims[at]))
        reach = min(2, self.least(source.dims[position]) - 1)
        axes = [Axis(f"v{at}", extent) for at, extent in enumerate(source.dims)]
        axes[position].extent = f"({source.dims[position]}) - {reach}"
        value: Value | None = None
        for offset in range(reach + 1):
            indices = [axis.name for axis in axes]
            indices[position] += f" + {offset}" if offset else ""
            load = self.read(source, axes, indices)
            value = load if value is None else self.combine(value, load)
        assert value is not None
        value = self.bounded(value, min(_SOFT, _LIMITS[source.dtype]))
        name, place = self.new_name(), ", ".join(axis.name for axis in axes)
        out = Tensor(name, tuple(axis.extent for axis in axes), source.dtype, value.bound)
        self.stage("stencil", [out], self.block(name, axes, [f"{name}[{place}] = {value.text}"]))

    def pair(self) -> None:
        """Two outputs of one block."""
        source = self.some_tensor()
        axes, indices = self.axes_for(source)
        name, dims = self.new_name(), tuple(axis.extent for axis in axes)
        body, outputs = [], []
        for suffix in ("a", "b"):
            dtype = self.dtype_of(source)
            value = self.value(axes, dtype, self.read(source, axes, indices))
            outputs.append(Tensor(name + suffix, dims, dtype, value.bound))
            place = ", ".join(axis.name for axis in axes)
            body.append(f"{name}{suffix}[{place}] = {value.text}")
        self.stage("pair", outputs, self.block(name, axes, body))

    def reshape(self) -> None:
        source = self.some_tensor()
        name, dims = self.new_name(), source.dims
        if len(dims) >= 2 and self.chance(0.6):
            axes = [Axis("v0", f"({dims[0]}) * ({dims[1]})")]
            indices = [f"v0 // ({dims[1]})", f"v0 % ({dims[1]})"]
            for extent in dims[2:]:
                axes.append(Axis(f"v{len(axes)}", extent))
                indices.append(axes[-1].name)
        else:
            factor = self.rng.choice([2, 3])
            axes = [Axis("v0", f"({dims[0]}) * {factor}")]
            indices = [f"v0 // {factor}"]
            for extent in dims[1:]:
                axes.append(Axis(f"v{len(axes)}", extent))
                indices.append(axes[-1].name)
        dtype = source.dtype
        value = self.value(axes, dtype, self.read(source, axes, indices))
        out = Tensor(name, tuple(axis.extent for axis in axes), dtype, value.bound)
        place = ", ".join(axis.name for axis in axes)
        self.stage("reshape", [out], self.block(name, axes, [f"{name}[{place}] = {value.text}"]))

    def pad(self) -> None:
        source = self.some_tensor()
        name, low = self.new_name(), self.rng.choice([0, 1, 1, 2])
        high = self.rng.choice([1, 2])
        position = self.rng.randrange(len(source.dims))
        axes, indices, tests = [], [], []
        for at, extent in enumerate(source.dims):
            axis = Axis(f"v{at}", extent)
            if at == position:
                axis.extent = f"({extent}) + {low + high}"
                indices.append(f"{axis.name} - {low}")
                tests = [f"{axis.name} >= {low}", f"{axis.name} < {extent} + {low}"]
            else:
                indices.append(axis.name)
            axes.append(axis)
        load = self.read(source, axes, indices)
        fill = _const(self.rng.choice([0, 0, 1]), source.dtype)
        text = f"T.if_then_else({' and '.join(tests)}, {load.text}, {fill})"
        out = Tensor(name, tuple(axis.extent for axis in axes), source.dtype, source.bound)
        place = ", ".join(axis.name for axis in axes)
        self.stage("pad", [out], self.block(name, axes, [f"{name}[{place}] = {text}"]))

    def reduction(self) -> None:
        """Reduce over some axes of a tensor, perhaps times another one."""
        source = self.some_tensor()
        axes, indices = self.axes_for(source)
        count = min(len(axes), self.rng.choice([1, 1, 1, 2, 3]))
        for axis in self.rng.sample(axes, count):
            axis.kind = "R"
        if self.chance(0.35):
            axes.append(Axis("v8", self.rng.choice(sorted(self.dims))))
        self.reduce("reduction", source, axes, indices)

    def window(self) -> None:
        """Slide a window over one or two dimensions: stride, dilation, padding."""
        rng, source = self.rng, self.some_tensor()
        axes, indices, tests, reduced = [], [], [], []
        sliding = set(
            rng.sample(range(len(source.dims)), min(len(source.dims), rng.choice([1, 2])))
        )
        for at, extent in enumerate(source.dims):
            axis = Axis(f"v{at}", extent)
            axes.append(axis)
            if at not in sliding:
                indices.append(axis.name)
                continue
            size, stride = rng.choice([2, 2, 3]), rng.choice([1, 1, 2, 3])
            dilation, padding = rng.choice([1, 1, 2]), rng.choice([0, 1, 1])
            reach = dilation * (size - 1)
            if self.least(extent) + 2 * padding - reach < 1:
                padding = reach
            axis.extent = f"(({extent}) + {2 * padding - reach - 1}) // {stride} + 1"
            inner = Axis(f"r{at}", str(size), "R")
            reduced.append(inner)
            text = f"{axis.name} * {stride} + {inner.name} * {dilation}"
            if padding:
                text = f"{text} - {padding}"
                tests.append(f"{text} >= 0 and {text} < {extent}")
            indices.append(text)
        axes += reduced
        if self.chance(0.2):
            rng.shuffle(axes)
        self.reduce("window", source, axes, indices, tests)

    def least(self, extent: str) -> int:
        """The least value of an extent, whatever the symbolic ones are."""
        return number(extent, {k: 3 if k in self.symbolic else v for k, v in self.dims.items()})

    def reduce(
        self,
        form: str,
        source: Tensor,
        axes: list[Axis],
        indices: list[str],
        tests: Sequence[str] = (),
    ) -> None:
        rng, name = self.rng, self.new_name()
        kind = rng.choice(["sum"] * 4 + ["max", "max", "min", "prod"])
        dtype = source.dtype if source.dtype not in ("int8", "uint8") or kind in ("max", "min") \
            else "int32"  # fmt: skip
        load = self.read(source, axes, indices)
        if tests:
            zero = _const(0, source.dtype)
            load.text = f"T.if_then_else({' and '.join(tests)}, {load.text}, {zero})"
        value = self.cast(load, dtype)
        if self.chance(0.6):
            other = self.cast(self.read(self.operand(axes), axes), dtype)
            value = self.combine(value, other)
        if self.chance(0.15):
            value = self.modified(value, axes)
        value = self.bounded(value, _SOFT)
        if kind == "prod":
            one, two = _const(1, dtype), _const(2, dtype)
            value = Value(f"T.Select({value.text} < {one}, {one}, {two})", dtype, 2)
        spatial = [axis for axis in axes if axis.kind == "S"]
        place = ", ".join(axis.name for axis in spatial) or "0"
        dims = tuple(axis.extent for axis in spatial) or ("1",)
        target = f"{name}[{place}]"
        bound = {"sum": value.bound * 64, "prod": 2**16}.get(kind, value.bound)
        first = {"sum": _const(0, dtype), "prod": _const(1, dtype)}.get(
            kind, f'T.{"min" if kind == "max" else "max"}_value("{dtype}")'
        )
        update = {
            "sum": f"{target} + {value.text}",
            "prod": f"{target} * {value.text}",
        }.get(kind, f"T.{kind}({target}, {value.text})")
        out = Tensor(name, dims, dtype, bound)
        self.reducers[name] = kind
        if self.chance(0.06):
            # Already decomposed: one block that starts, one that updates.
            lines = self.block(f"{name}_init", spatial, [f"{target} = {first}"])
            lines += self.block(name, axes, [f"{target} = {update}"])
            self.stage(form, [out], lines)
            return
        body = ["with T.init():", f"    {target} = {first}", f"{target} = {update}"]
        self.stage(form, [out], self.block(name, axes, body))

    def arg_reduction(self) -> None:
        """Index and value of the greatest or least."""
        source = self.some_tensor()
        axes, indices = self.axes_for(source)
        chosen = self.rng.choice(axes)
        chosen.kind = "R"
        name, dtype = self.new_name(), source.dtype
        spatial = [axis for axis in axes if axis.kind == "S"]
        place = ", ".join(axis.name for axis in spatial) or "0"
        at, best = f"{name}a[{place}]", f"{name}b[{place}]"
        item = self.read(source, axes, indices).text
        sign, worst = self.rng.choice([(">", "min"), ("<", "max")])
        body = [
            "with T.init():",
            f'    {at} = T.max_value("int64")',
            f'    {best} = T.{worst}_value("{dtype}")',
            f"x_{name}: T.int64 = T.Select({best} {sign} {item} or {best} == {item} and "
            f"{at} < {chosen.name}, {at}, {chosen.name})",
            f"y_{name}: T.{dtype} = T.Select({best} {sign} {item}, {best}, {item})",
            f"{at} = x_{name}",
            f"{best} = y_{name}",
        ]
        dims = tuple(axis.extent for axis in spatial) or ("1",)
        outputs = [
            Tensor(f"{name}a", dims, "int64", 64), Tensor(f"{name}b", dims, dtype, source.bound),
        ]  # fmt: skip
        self.stage("arg_reduction", outputs, self.block(name, axes, body))

    def scan(self) -> None:
        """A prefix sum: each iteration reads what the one before it wrote."""
        source = self.some_tensor()
        axes = [Axis(f"v{at}", extent) for at, extent in enumerate(source.dims)]
        chosen = self.rng.choice(axes)
        chosen.kind = self.rng.choice("SO")
        name, dtype = self.new_name(), source.dtype
        if dtype in ("int8", "uint8"):
            dtype = "int32"
        item = self.cast(self.read(source, axes, [axis.name for axis in axes]), dtype)
        place = ", ".join(axis.name for axis in axes)
        before = ", ".join(f"{axis.name} - 1" if axis is chosen else axis.name for axis in axes)
        text = (
            f"{name}[{place}] = {item.text} + "
            f"T.if_then_else({chosen.name} >= 1, {name}[{before}], {_const(0, dtype)})"
        )
        out = Tensor(name, source.dims, dtype, item.bound * 32)
        self.stage("scan", [out], self.block(name, axes, [text], plain=True))

    def update(self) -> None:
        """Change a buffer that was made before, all of it or a part."""
        made = [t for stage in self.stages for t in stage.outputs if t.dtype != "uint8"]
        if not made:
            return self.elementwise()
        target = self.rng.choice(made)
        name = self.new_name()
        axes = [Axis(f"v{at}", extent) for at, extent in enumerate(target.dims)]
        place = f"{target.name}[{', '.join(axis.name for axis in axes)}]"
        self.reads.append(target.name)
        body = f"{place} = T.max({place}, {_const(1, target.dtype)})"
        if self.chance(0.4):
            body = f"{place} = {_const(2, target.dtype)}"
        lines = self.block(name, axes, [body])
        if self.chance(0.5):
            cut = self.rng.choice(axes).name
            where = next(n for n, line in enumerate(lines) if "T.block(" in line)
            if not any("T.where" in line for line in lines):
                depth = " " * (len(lines[where]) - len(lines[where].lstrip()) + 4)
                bound = f"{cut} < 2"
                binding = next(line for line in lines if line.strip().startswith(f"{cut} = "))
                value = _binding_value(binding)
                lines.insert(len(lines) - 1, f"{depth}T.where({bound.replace(cut, value, 1)})")
        self.stage("update", [target], lines, updates=True)
        return None

    def halves(self) -> None:
        """Two blocks that make a part of one buffer each, as a concatenation does."""
        a, b = self.some_tensor(), self.some_tensor()
        if len(a.dims) != len(b.dims) or a.dims[1:] != b.dims[1:]:
            b = a
        name, dtype = self.new_name(), a.dtype
        rest = [Axis(f"v{at}", extent) for at, extent in enumerate(a.dims)][1:]
        lines = []
        bound = 0
        for at, part in enumerate((a, b)):
            axes = [Axis("v0", part.dims[0]), *rest]
            value = self.cast(self.read(part, axes, [axis.name for axis in axes]), dtype)
            bound = max(bound, value.bound)
            start = f"v0 + {a.dims[0]}" if at else "v0"
            place = ", ".join([start, *(axis.name for axis in rest)])
            lines += self.block(f"{name}_{at}", axes, [f"{name}[{place}] = {value.text}"])
        dims = (f"({a.dims[0]}) + ({b.dims[0]})", *a.dims[1:])
        self.stage("halves", [Tensor(name, dims, dtype, bound)], lines)

    def opaque(self) -> None:
        """A block that handles a whole row by loops of its own, perhaps through a view."""
        source = self.some_tensor()
        name, dtype = self.new_name(), source.dtype
        row = source.dims[-1]
        axes = [Axis(f"v{at}", extent) for at, extent in enumerate(source.dims[:-1])]
        outer = "".join(f"{axis.name}, " for axis in axes)
        self.reads.append(source.name)
        body = [
            f"T.reads({source.name}[{outer}0:{row}])",
            f"T.writes({name}[{outer}0:{row}])",
        ]
        item, target = f"{source.name}[{outer}k]", f"{name}[{outer}k]"
        if self.chance(0.5):
            body.append(f"{name}_q = T.int64()")
            body.append(f"{name}_o = T.int64()")
            body.append(
                f'{name}_m = T.match_buffer({source.name}[{outer}0:{row}], ({row},), "{dtype}", '
                f"strides=({name}_q,), elem_offset={name}_o)"
            )
            item = f"{name}_m[k]"
        if self.chance(0.5):
            body.append(f'{name}_w = T.match_buffer({name}[{outer}0:{row}], ({row},), "{dtype}")')
            target = f"{name}_w[k]"
        body.append(f"for k in T.serial({row}):")
        one = _const(1, dtype)
        if self.chance(0.4):
            body += [
                "    if k < 2:", f"        {target} = {item}",
                "    else:", f"        {target} = T.max({item}, {one})",
            ]  # fmt: skip
        elif self.chance(0.4):
            body.append(f'    with T.block("{name}_inner"):')
            inner = body[-2:]
            del body[-2:]
            target, item = target.replace("k]", "vk]"), item.replace("k]", "vk]")
            body += [*inner, f"        vk = T.axis.spatial({row}, k)"]
            body += [f"        {target} = T.min({item}, {one})"]
        else:
            body.append(f"    {target} = T.min({item}, {one})")
        out = Tensor(name, source.dims, dtype, max(source.bound, 1))
        self.stage("opaque", [out], self.block(name, axes, body, plain=not axes))

    def triangle(self) -> None:
        """A sum over a triangle: the inner loop's extent depends on the outer loop."""
        source = self.some_tensor()
        if source.dtype in ("int8", "uint8"):
            return self.elementwise()
        name, dtype, extent = self.new_name(), source.dtype, source.dims[0]
        rest = ["0"] * (len(source.dims) - 1)
        self.reads.append(source.name)
        zero = _const(0, dtype)
        lines = [
            f"for t0 in T.serial({extent}):",
            "    for t1 in T.serial(t0 + 1):",
            f'        with T.block("{name}"):',
            f"            v0 = T.axis.spatial({extent}, t0)",
            f"            v1 = T.axis.reduce({extent}, t1)",
            "            with T.init():",
            f"                {name}[v0] = {zero}",
            f"            {name}[v0] = {name}[v0] + {source.name}[{', '.join(['v1', *rest])}]",
        ]
        self.stage("triangle", [Tensor(name, (extent,), dtype, source.bound * 32)], lines)
        return None


def _binding_value(line: str) -> str:
    """Return the value in ``v = T.axis.spatial(extent, value)``."""
    inner = line[line.index("(") + 1 : line.rindex(")")]
    depth = 0
    for position in range(len(inner) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(inner[position], 0)
        if inner[position] == "," and depth == 0:
            return inner[position + 1 :].strip()
    raise ValueError(line)


def _const(value: int, dtype: str) -> str:
    return f"T.{dtype}({value})"


FORMS: list[tuple[Callable[[_Generator], None], float]] = [
    (_Generator.elementwise, 8),
    (_Generator.reduction, 7),
    (_Generator.window, 3),
    (_Generator.reshape, 1.5),
    (_Generator.pad, 1.5),
    (_Generator.pair, 0.7),
    (_Generator.epilogue, 2.5),
    (_Generator.stencil, 1.2),
    (_Generator.arg_reduction, 0.7),
    (_Generator.scan, 0.6),
    (_Generator.update, 0.8),
    (_Generator.halves, 0.6),
    (_Generator.opaque, 0.9),
    (_Generator.triangle, 0.3),
]
"""Kinds of stages, with how often each is drawn."""
