"""Sizes that come with the call next to known ones: ``python -m benchmarks.dynamic --threads 1``.

Each operator or small network is exported by PyTorch twice, with constant shapes and with symbolic
dimensions, compiled by rule, and called with the same tensors. The figure is the symbolic one's
time over the static one's, in one race, beside PyTorch's.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.race import complaints, race, ratio

#: Symbolic dimensions of an input, by their names: equal names are equal sizes.
Dims = Mapping[int, str]


@dataclass(frozen=True)
class Case:
    """A module of PyTorch, the shapes of its inputs, and which of their dimensions are symbolic."""

    build: Callable[[Any], Any]
    shapes: Sequence[Sequence[int]]
    dims: Sequence[Dims]


def _function(compute: Callable[..., Any]) -> Callable[[Any], Any]:
    """A module that computes a function of torch and its inputs."""

    def build(torch: Any) -> Any:
        class Function(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return compute(torch, x)

        return Function()

    return build


def _pair(compute: Callable[..., Any]) -> Callable[[Any], Any]:
    """The same for functions of two tensors."""

    def build(torch: Any) -> Any:
        class Function(torch.nn.Module):
            def forward(self, x: Any, y: Any) -> Any:
                return compute(torch, x, y)

        return Function()

    return build


def _attention(torch: Any) -> Any:
    class Attention(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return Attention()


def _recurrent(torch: Any) -> Any:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(64, 128, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    return Recurrent()


def _perceptron(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


_ROWS, _IMAGE = {0: "b", 1: "n"}, {2: "h", 3: "w"}
_HIDDEN, _HEADS = (4, 128, 768), (2, 8, 128, 64)
CASES: dict[str, Case] = {
    "(b, n, 512) x (512, 512)": Case(lambda t: t.nn.Linear(512, 512), [(4, 64, 512)], [_ROWS]),
    "(b, 512) x (512, 1024), b = 128": Case(
        lambda t: t.nn.Linear(512, 1024), [(128, 512)], [{0: "b"}]
    ),
    "(b, 512) x (512, 1024), b = 4": Case(lambda t: t.nn.Linear(512, 1024), [(4, 512)], [{0: "b"}]),
    "(b, 32, 256) x (256, 256)": Case(lambda t: t.nn.Linear(256, 256), [(8, 32, 256)], [{0: "b"}]),
    "(b, n, 64) x (b, 64, n)": Case(
        _pair(lambda t, x, y: x @ y), [(8, 128, 64), (8, 64, 128)], [_ROWS, {0: "b", 2: "n"}]
    ),
    "(n, k) x (k, m)": Case(
        _pair(lambda t, x, y: x @ y),
        [(256, 384), (384, 320)],
        [{0: "n", 1: "k"}, {0: "k", 1: "m"}],
    ),
    "perceptron 784-256-10 (b)": Case(_perceptron, [(32, 784)], [{0: "b"}]),
    "lstm (b, 16, 64)": Case(_recurrent, [(8, 16, 64)], [{0: "b"}]),
    "conv 3x3 (b, 64, 28, 28)": Case(
        lambda t: t.nn.Conv2d(64, 64, 3, padding=1), [(2, 64, 28, 28)], [{0: "b"}]
    ),
    "conv 3x3 (1, 64, h, w)": Case(
        lambda t: t.nn.Conv2d(64, 64, 3, padding=1), [(1, 64, 56, 56)], [_IMAGE]
    ),
    "conv 1x1 (b, 64, h, w)": Case(
        lambda t: t.nn.Conv2d(64, 128, 1), [(2, 64, 28, 28)], [{0: "b", **_IMAGE}]
    ),
    "conv 7x7/2 (1, 3, h, w)": Case(
        lambda t: t.nn.Conv2d(3, 32, 7, stride=2, padding=3), [(1, 3, 224, 224)], [_IMAGE]
    ),
    "depthwise 3x3 (b, 96, 28, 28)": Case(
        lambda t: t.nn.Conv2d(96, 96, 3, padding=1, groups=96), [(2, 96, 28, 28)], [{0: "b"}]
    ),
    "depthwise 3x3 (1, 96, h, w)": Case(
        lambda t: t.nn.Conv2d(96, 96, 3, padding=1, groups=96), [(1, 96, 56, 56)], [_IMAGE]
    ),
    "max pool 3x3/2 (b, 64, h, w)": Case(
        lambda t: t.nn.MaxPool2d(3, 2, 1), [(2, 64, 56, 56)], [{0: "b", **_IMAGE}]
    ),
    "softmax (8, n, n)": Case(lambda t: t.nn.Softmax(-1), [(8, 256, 256)], [{1: "n", 2: "n"}]),
    "softmax (n, m)": Case(lambda t: t.nn.Softmax(-1), [(256, 1000)], [{0: "n", 1: "m"}]),
    "layer norm (b, n, 768)": Case(lambda t: t.nn.LayerNorm(768), [_HIDDEN], [_ROWS]),
    "gelu (b, n, 768)": Case(lambda t: t.nn.GELU(), [_HIDDEN], [_ROWS]),
    "add (b, n, 768)": Case(_pair(lambda t, x, y: x + y), [_HIDDEN, _HIDDEN], [_ROWS, _ROWS]),
    "sum of rows (b, n)": Case(_function(lambda t, x: x.sum(-1)), [(512, 1024)], [_ROWS]),
    "sum of columns (b, n)": Case(_function(lambda t, x: x.sum(0)), [(512, 1024)], [_ROWS]),
    "transpose (n, m)": Case(
        _function(lambda t, x: x.transpose(0, 1).contiguous()), [(1024, 1024)], [{0: "n", 1: "m"}]
    ),
    "attention (b, 8, n, 64)": Case(_attention, [_HEADS] * 3, [{0: "b", 2: "n"}] * 3),
    "argmax (b, n)": Case(_function(lambda t, x: x.argmax(-1)), [(64, 4096)], [_ROWS]),
    "cumsum (b, n)": Case(_function(lambda t, x: x.cumsum(-1)), [(256, 1024)], [_ROWS]),
    "top 8 (b, n)": Case(_function(lambda t, x: x.topk(8)[0]), [(64, 1024)], [_ROWS]),
}


def prepare(way: str, name: str, threads: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Compile a case, ``static`` or ``symbolic``, or give PyTorch's; return what calls it."""
    from benchmarks.peers import torch_module

    torch = torch_module(threads)
    case, rng = CASES[name], np.random.default_rng(0)
    torch.manual_seed(0)
    model = case.build(torch).eval()
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in case.shapes]
    inputs = tuple(map(torch.from_numpy, arrays))

    def eager() -> Any:
        with torch.no_grad():
            return model(*inputs)

    if way == "torch":
        return eager, {}

    from tilewright import relax, runtime
    from tilewright.relax.frontend.torch import from_exported_program
    from tilewright.target import Target

    runtime.set_num_threads(threads)
    auto = torch.export.Dim.AUTO
    wanted = tuple(dict.fromkeys(dims, auto) for dims in case.dims)
    with torch.no_grad():
        program = torch.export.export(
            model, inputs, dynamic_shapes=wanted if way == "symbolic" else None
        )
    target = Target("native").with_options(num_cores=threads)
    executable = relax.build(from_exported_program(program), target)
    tensors = [runtime.tensor(array) for array in arrays]
    found = executable(*tensors)
    found = found[0] if isinstance(found, (tuple, list)) else found
    difference = float(np.abs(found.numpy() - eager().numpy()).max())
    return (lambda: executable(*tensors)), {"difference": difference}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dynamic", description=__doc__)
    parser.add_argument("--threads", default="1", help="numbers of threads, with commas")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.05, help="seconds per turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    results: list[dict[str, Any]] = []
    for threads in map(int, options.threads.split(",")):
        for name in (name for name in CASES if options.only in name):
            wanted = {"kind": "dynamic", "name": name, "threads": threads}
            ways = {way: {**wanted, "way": way} for way in ("static", "symbolic", "torch")}
            times = race(ways, threads, options.rounds, options.burst)
            results.append(
                {
                    "name": name,
                    "threads": threads,
                    "times": {way: item.as_dict() for way, item in times.items()},
                    "slower": ratio(times["static"], times["symbolic"]),
                    "torch_over": ratio(times["symbolic"], times["torch"]),
                    "complaints": complaints(times),
                }
            )
    if options.json:
        table.dump(results)
        return
    for threads in sorted({item["threads"] for item in results}):
        mine = [item for item in results if item["threads"] == threads]
        table.show(
            f"{threads} thread(s), by rule: microseconds, median of {options.rounds} rounds",
            ["case", "static", "symbolic", "symbolic/static", "PyTorch/symbolic"],
            [
                [
                    item["name"],
                    *(table.us(item["times"][way]["seconds"]) for way in ("static", "symbolic")),
                    *(_figure(item[key]) for key in ("slower", "torch_over")),
                ]
                for item in mine
            ],
        )
        print(f"geometric mean of symbolic/static: {_mean([item['slower'] for item in mine])}")
    for item in results:
        for text in item["complaints"]:
            print(f"{item['name']}: {text}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mean(values: Sequence[float | None]) -> str:
    known = [math.log(value) for value in values if value]
    return f"{math.exp(sum(known) / len(known)):.2f}" if known else "-"


if __name__ == "__main__":
    main()
