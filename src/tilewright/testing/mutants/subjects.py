"""The right kernels that mutants are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tilewright import driver, te, topi
from tilewright.ir import IRModule, Var
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.packing import split_packing
from tilewright.meta_schedule.runner import Reference
from tilewright.meta_schedule.runner.traits import traits_of
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.target import Target
from tilewright.tir import PrimFunc

_DRAWN = 3


def _inputs(*shapes: tuple[int, ...], dtype: str = "float32") -> list[te.Tensor]:
    return [te.placeholder(shape, dtype, name=f"x{n}") for n, shape in enumerate(shapes)]


def _of(build: Callable[..., te.Tensor], *inputs: te.Tensor) -> PrimFunc:
    return te.create_prim_func([*inputs, build(*inputs)])


def _bytes() -> PrimFunc:
    a, b = te.placeholder((9, 24), "uint8", "a"), te.placeholder((24, 18), "int8", "b")
    return te.create_prim_func([a, b, topi.matmul(a, b, out_dtype="int32")])


def _relu_of_product(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
    made: te.Tensor = topi.nn.relu(topi.add(topi.matmul(a, b), c))
    return made


def _conv(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    made: te.Tensor = topi.nn.relu(topi.nn.conv2d(x, w, strides=1, padding=1))
    return made


def _polynomial(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    def element(i: Var, j: Var) -> object:
        return x[i, j] * y[j] + x[i, j] * 0.25 - 1.0

    made: te.Tensor = te.compute((7, 45), element, name="z")
    return made


OPERATORS: dict[str, Callable[[], PrimFunc]] = {
    "matmul": lambda: _of(topi.matmul, *_inputs((16, 12), (12, 32))),
    "matmul of primes": lambda: _of(topi.matmul, *_inputs((11, 7), (7, 37))),
    "product, bias, relu": lambda: _of(_relu_of_product, *_inputs((9, 10), (10, 33), (33,))),
    "product of bytes": _bytes,
    "half product": lambda: _of(topi.matmul, *_inputs((8, 9), (9, 20), dtype="float16")),
    "conv2d": lambda: _of(_conv, *_inputs((1, 3, 7, 7), (16, 3, 3, 3))),
    "softmax": lambda: _of(topi.nn.softmax, *_inputs((5, 37))),
    "sum of rows": lambda: _of(lambda x: topi.sum(x, axis=1), *_inputs((9, 70))),
    "sum of columns": lambda: _of(lambda x: topi.sum(x, axis=0), *_inputs((40, 37))),
    "max of rows": lambda: _of(lambda x: topi.max(x, axis=1), *_inputs((9, 70))),
    "transposition": lambda: _of(lambda x: topi.transpose(x), *_inputs((19, 35))),
    "polynomial": lambda: _of(_polynomial, *_inputs((7, 45), (45,))),
}


@dataclass(frozen=True, eq=False)
class Subject:
    """An operator, its reference, and right schedules of it: as scheduled, with blocks."""

    name: str
    func: PrimFunc
    reference: Reference
    scheduled: tuple[IRModule, ...]


@cache
def machine() -> Target:
    """The machine that mutants run on."""
    return Target("native").with_options(num_cores=2)


@cache
def subject(name: str) -> Subject:
    """Return an operator with schedules by rule and from a search."""
    func, target = OPERATORS[name](), machine()
    context = TuneContext(func, target=target)
    found = [] if (rule := context.rule_schedule()) is None else [rule]
    strategy = context.search_strategy
    strategy._initialize_with_tune_context(context)
    spaces = context.generate_design_space()
    strategy.pre_tuning(_DRAWN, _DRAWN, spaces, cost_model=CostModel.create("random"))
    found += [item.sch for item in strategy.generate_measure_candidates(_DRAWN) or ()]
    strategy.post_tuning()
    infos = arg_infos(func)
    reference = Reference(name, driver.compile(func, target), infos, traits=traits_of(func, infos))
    mods = tuple(item.mod for item in found if not split_packing(item.mod)[1])
    return Subject(name, func, reference, mods)
