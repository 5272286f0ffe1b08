"""Random programs, each from a seed: the kinds of stages.

``FORMS`` lists them. Each takes what the stages before it made, draws axes, loops (tiled, fused,
shifted, in any order) and an expression, and adds text to the program.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tilewright.testing.fuzz.generator import (
    LIMITS,
    SOFT,
    Axis,
    Forms,
    Generator,
    Value,
    constant,
)
from tilewright.testing.fuzz.programs import Program, Tensor, number


def generate(seed: object, *, max_stages: int = 5) -> Program:
    """Return the random program of a seed."""
    return _Stages(random.Random(f"program {seed}"), seed, FORMS).program(max_stages)


class _Stages(Generator):
    """The kinds of stages."""

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
        value = self.bounded(value, min(SOFT, LIMITS[source.dtype]))
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
        fill = constant(self.rng.choice([0, 0, 1]), source.dtype)
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
            zero = constant(0, source.dtype)
            load.text = f"T.if_then_else({' and '.join(tests)}, {load.text}, {zero})"
        value = self.cast(load, dtype)
        if self.chance(0.6):
            other = self.cast(self.read(self.operand(axes), axes), dtype)
            value = self.combine(value, other)
        if self.chance(0.15):
            value = self.modified(value, axes)
        value = self.bounded(value, SOFT)
        if kind == "prod":
            one, two = constant(1, dtype), constant(2, dtype)
            value = Value(f"T.Select({value.text} < {one}, {one}, {two})", dtype, 2)
        spatial = [axis for axis in axes if axis.kind == "S"]
        place = ", ".join(axis.name for axis in spatial) or "0"
        dims = tuple(axis.extent for axis in spatial) or ("1",)
        target = f"{name}[{place}]"
        bound = {"sum": value.bound * 64, "prod": 2**16}.get(kind, value.bound)
        first = {"sum": constant(0, dtype), "prod": constant(1, dtype)}.get(
            kind, self.worst_of(kind, dtype)
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

    def worst_of(self, kind: str, dtype: str) -> str:
        """Where an extremum begins: at the last number, or at an infinity."""
        sign, last = ("-", "min") if kind == "max" else ("", "max")
        if dtype.startswith("float") and self.chance(0.5):
            return f'{sign}T.infinity("{dtype}")'
        return f'T.{last}_value("{dtype}")'

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
            f"    {best} = {self.worst_of('max' if worst == 'min' else 'min', dtype)}",
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
            f"T.if_then_else({chosen.name} >= 1, {name}[{before}], {constant(0, dtype)})"
        )
        out = Tensor(name, source.dims, dtype, item.bound * 32)
        self.stage("scan", [out], self.block(name, axes, [text], direct=True))

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
        body = f"{place} = T.max({place}, {constant(1, target.dtype)})"
        if self.chance(0.4):
            body = f"{place} = {constant(2, target.dtype)}"
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
        one = constant(1, dtype)
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
        self.stage("opaque", [out], self.block(name, axes, body, direct=not axes))

    def triangle(self) -> None:
        """A sum over a triangle: the inner loop's extent depends on the outer loop."""
        source = self.some_tensor()
        if source.dtype in ("int8", "uint8"):
            return self.elementwise()
        name, dtype, extent = self.new_name(), source.dtype, source.dims[0]
        rest = ["0"] * (len(source.dims) - 1)
        self.reads.append(source.name)
        zero = constant(0, dtype)
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


FORMS: Forms = [
    (_Stages.elementwise, 8),
    (_Stages.reduction, 7),
    (_Stages.window, 3),
    (_Stages.reshape, 1.5),
    (_Stages.pad, 1.5),
    (_Stages.pair, 0.7),
    (_Stages.epilogue, 2.5),
    (_Stages.stencil, 1.2),
    (_Stages.arg_reduction, 0.7),
    (_Stages.scan, 0.6),
    (_Stages.update, 0.8),
    (_Stages.halves, 0.6),
    (_Stages.opaque, 0.9),
    (_Stages.triangle, 0.3),
]
"""Kinds of stages, with how often each is drawn."""
