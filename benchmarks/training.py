"""Steps of training: ``python -m benchmarks.training --threads 1``.

A step is the model and its loss forward and backward, and the optimizer's update: in PyTorch's
eager mode, and with both compiled by ``torch.compile`` with inductor and with Tilewright by rule.
All three begin with the same weights and see the same batch. The losses of our first twenty steps
are compared with those of eager mode. With ``--float64`` both are also compared with those in
float64: where rounding errors grow from step to step, eager mode's losses are off as well. Models
are those of ``examples/models``.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.race import complaints, race, ratio

WAYS = {"eager": "PyTorch, eager", "inductor": "PyTorch, inductor", "tilewright": "Tilewright"}

#: So many steps' losses are compared with those of eager mode; so many prepare other ways.
_STEPS, _FIRST = 20, 2
#: How far losses may be from those of eager mode, relative to them, or, if eager mode is as far
#: from float64 itself, how many times as far from float64.
_LIMIT, _CHAOS = 1e-4, 3.0
_ERRORS = ("error", "eager_error")


@dataclass(frozen=True)
class Task:
    """A model of ``examples/models``, how its batch is drawn, and its loss."""

    model: str
    batch: Callable[[Any, Any, int], tuple[Any, Any]]
    loss: Callable[[Any, Any, Any], Any]


def _images(torch: Any, model: Any, size: int) -> tuple[Any, Any]:
    return torch.randn(size, 3, 224, 224), torch.randint(0, 1000, (size,))


def _vectors(torch: Any, model: Any, size: int) -> tuple[Any, Any]:
    return torch.randn(size, 128, 768), torch.randn(size, 128, 768)


def _tokens(torch: Any, model: Any, size: int) -> tuple[Any, Any]:
    tokens = torch.randint(0, 4096, (size, 129))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _entropy(torch: Any, scores: Any, wanted: Any) -> Any:
    return torch.nn.functional.cross_entropy(scores.flatten(0, -2), wanted.flatten())


def _squares(torch: Any, found: Any, wanted: Any) -> Any:
    return torch.nn.functional.mse_loss(found, wanted)


def _sgd(torch: Any, parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def _adam(torch: Any, parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=1e-4)


TASKS = {
    "resnet18": Task("resnet18", _images, _entropy),
    "bert": Task("bert_layer", _vectors, _squares),
    "gpt": Task("gpt_layer", _tokens, _entropy),
}
OPTIMIZERS = {"sgd": _sgd, "adam": _adam}


def _model(name: str) -> Any:
    """Build a model of ``examples/models``, always with the same random weights."""
    path = Path(__file__).parents[1] / "examples" / "models" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where torch.compile looks for the code's globals
    spec.loader.exec_module(module)
    model, _ = module.build()
    return model


def make_step(
    task: Task, way: str, threads: int, batch: int, optimizer_name: str = "adam"
) -> Callable[[], Any]:
    """Return a function that does a step and returns the loss before it.

    ``way`` is one of ``WAYS``, or ``"float64"``: eager mode with such weights.
    """
    # Compiling in this process: idle helpers would disturb the others' turns.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch

    torch.set_num_threads(threads)
    model = _model(task.model)
    model.train()
    torch.manual_seed(0)
    x, wanted = task.batch(torch, model, batch)
    if way == "float64":
        model = model.double()
        x, wanted = (item.double() if item.is_floating_point() else item for item in (x, wanted))
    optimizer = OPTIMIZERS[optimizer_name](torch, model.parameters())

    def loss(x: Any, wanted: Any) -> Any:
        return task.loss(torch, model(x), wanted)

    update = optimizer.step
    if way == "inductor":
        loss, update = torch.compile(loss, dynamic=False), torch.compile(update, dynamic=False)
    elif way == "tilewright":
        import tilewright.torch
        from tilewright.runtime import set_num_threads

        set_num_threads(threads)
        compiled = partial(tilewright.torch.compile, dynamic=False, threads=threads)
        loss, update = compiled(loss), compiled(update)
    seeds = iter(range(1 << 30))

    def step() -> Any:
        torch.manual_seed(next(seeds))
        optimizer.zero_grad()
        value = loss(x, wanted)
        value.backward()
        update()
        return value

    return step


def _apart(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference of losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))


def prepare(
    way: str, name: str, threads: int, batch: int, optimizer: str, float64: bool = False
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Make a way of training ready; compare its losses with those of eager mode."""
    begun = time.perf_counter()
    step = make_step(TASKS[name], way, threads, batch, optimizer)
    found = [step().item() for _ in range(_FIRST)]
    info: dict[str, Any] = {"compile_seconds": time.perf_counter() - begun}
    # Inductor draws other random numbers.
    if way != "tilewright":
        return step, info

    def losses(other: str) -> list[float]:
        step = make_step(TASKS[name], other, threads, batch, optimizer)
        return [step().item() for _ in range(_STEPS)]

    found += [step().item() for _ in range(_STEPS - _FIRST)]
    eager = losses("eager")
    info |= {"difference": _apart(found, eager), "limit": _LIMIT}
    if float64:
        exact = losses("float64")
        info |= {"error": _apart(found, exact), "eager_error": _apart(eager, exact)}
        # As good as eager mode: what is left of the difference is eager mode's own.
        if info["error"] <= _CHAOS * info["eager_error"]:
            info["limit"] = max(_LIMIT, (1 + _CHAOS) * info["eager_error"])
    return step, info


def _title(result: dict[str, Any]) -> str:
    return f"{result['name']}, {result['optimizer']}, {result['threads']} thread(s)"


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(TASKS), help=f"of {', '.join(TASKS)}")
    parser.add_argument(
        "--optimizers", default=",".join(OPTIMIZERS), help=f"of {', '.join(OPTIMIZERS)}"
    )
    parser.add_argument("--threads", default="1", help="numbers of threads, with commas")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--skip", default="", help=f"ways to leave out: {', '.join(WAYS)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.5, help="seconds per turn")
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="what is counted; the processor's seconds on cores that others use too",
    )
    parser.add_argument(
        "--float64", action="store_true", help="compare losses with those in float64, too"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.models:
        if name not in TASKS:
            parser.error(f"no model {name!r}; there are {', '.join(TASKS)}")
    optimizers = options.optimizers.split(",")
    for name in optimizers:
        if name not in OPTIMIZERS:
            parser.error(f"no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")
    ways = [way for way in WAYS if way not in options.skip.split(",")]
    results: list[dict[str, Any]] = []
    cases = itertools.product(map(int, options.threads.split(",")), options.models, optimizers)
    for threads, name, optimizer in cases:
        given = {"threads": threads, "batch": options.batch, "optimizer": optimizer}
        shared = {"kind": "training", "name": name, **given, "float64": options.float64}
        subjects = {way: {"way": way, **shared} for way in ways}
        times = race(subjects, threads, options.rounds, options.burst, clock=options.clock)
        ours = times.get("tilewright")
        results.append(
            {
                "name": name,
                **given,
                "times": {way: item.as_dict() for way, item in times.items()},
                "over_ours": {
                    way: ratio(ours, item) for way, item in times.items() if ours is not None
                },
                "complaints": complaints(times),
            }
        )
    if options.json:
        table.dump(results)
        return
    rows = []
    for result in results:
        for way, item in result["times"].items():
            over = result["over_ours"].get(way)
            apart = [item.get(key) for key in ("difference", *_ERRORS[: 2 * options.float64])]
            rows.append(
                [
                    f"{_title(result)}, {WAYS[way]}",
                    table.ms(item["seconds"]),
                    "-" if over is None else f"{over:.2f}",
                    *("-" if value is None else f"{value:.1e}" for value in apart),
                    f"{item['compile_seconds']:.1f}" if "compile_seconds" in item else "-",
                ]
            )
    table.show(
        f"A step of {options.batch}: milliseconds, median of {options.rounds} rounds",
        [
            *("subject", "ms", "this/Tilewright", "difference"),
            *(["of float64", "eager's of it"] if options.float64 else []),
            "build s",
        ],
        rows,
    )
    for result in results:
        for text in result["complaints"]:
            print(f"{_title(result)}: {text}")


if __name__ == "__main__":
    main()
