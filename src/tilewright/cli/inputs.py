"""Inputs of a run: random ones, of sizes by name, and those of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilewright.cli.options import Shapes
from tilewright.cli.output import Command
from tilewright.relax.execution.graph_call import GraphSignature, evaluated
from tilewright.runtime import numpy_dtype
from tilewright.support.errors import BuildError, RunError
from tilewright.support.registry import near_matches


class InputType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """An input and the file that holds it: ``image=photo.npy``."""

    name = "name=file"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Path]:
        """Parse a name and a file; a file that isn't there is a usage error."""
        name, found, text = str(value).partition("=")
        if not name or not found or not text:
            self.fail(f"{value!r} names no input and file such as image=photo.npy", param, ctx)
        if not Path(text).is_file():
            self.fail(f"there is no file {text}", param, ctx)
        return name, Path(text)


def input_option(command: Command) -> Command:
    """Add ``--input``."""
    return click.option(
        "--input", "inputs_by_name", type=InputType(), multiple=True, metavar="NAME=FILE",
        help="An array of NumPy (.npy) for an input, instead of the example; repeat it for "
        "several.",
    )(command)  # fmt: skip


def random_inputs(signature: GraphSignature, shapes: Shapes) -> list[Any]:
    """Make inputs; ``shapes`` are those of inputs, or sizes, by name.

    Raises ``click.UsageError`` for names of neither and shapes that don't fit, ``BuildError`` for
    sizes that nothing tells.
    """
    given = dict(shapes)
    names = {spec.name: spec for spec in signature.inputs}
    symbols = {name for name, _, _ in signature.symbols}
    sizes: dict[str, int] = {}
    for name, shape in given.items():
        if name in names:
            if len(shape) != len(names[name].shape):
                raise click.UsageError(
                    f"--shape {name}: the input has {len(names[name].shape)} axes, "
                    f"{list(names[name].shape)}"
                )
        elif name not in symbols or len(shape) != 1:
            known = [*names, *sorted(symbols)]
            raise click.UsageError(
                f"--shape: there is no input or size {name!r}; {near_matches(name, known)}; known "
                f"are {', '.join(known) or 'none'}"
            )
        else:
            (sizes[name],) = shape
    for symbol, argument, axis in signature.symbols:
        shape = given.get(signature.inputs[argument].name, [])
        if axis >= 0 and shape:
            sizes.setdefault(symbol, shape[axis])
    rng = np.random.default_rng(0)
    made = []
    for spec in signature.inputs:
        if not sizes.keys() >= _unknown(signature, spec.shape):
            raise BuildError(
                f"input {spec.name} has a symbolic shape {list(spec.shape)}: give it by --shape "
                f"{spec.name}={'x'.join('8' for _ in spec.shape)} or, for each size, such as "
                f"--shape {min(_unknown(signature, spec.shape) - sizes.keys())}=8"
            )
        shape = [evaluated(extent, sizes) for extent in spec.shape]
        if spec.name in given and given[spec.name] != shape:
            raise click.UsageError(
                f"--shape {spec.name}: the input's shape is {list(spec.shape)}, here {shape}"
            )
        dtype = numpy_dtype(spec.dtype)
        values = rng.random(shape) if dtype.kind in "fV" else rng.integers(0, 2, shape)
        made.append(np.asarray(values).astype(dtype))
    return made


def _unknown(signature: GraphSignature, shape: Sequence[int | str]) -> set[str]:
    """The sizes that a shape is made of."""
    return {
        name
        for name, _, _ in signature.symbols
        if any(isinstance(extent, str) and _mentions(extent, name) for extent in shape)
    }


def _mentions(formula: str, name: str) -> bool:
    return name in compile(formula, "<size>", "eval").co_names


def with_inputs(
    signature: GraphSignature, inputs: Sequence[Any], given: Sequence[tuple[str, Path]]
) -> list[Any]:
    """Put arrays of files in the places of inputs.

    Raises ``click.UsageError`` for names of no input, ``RunError`` for files that hold no array.
    """
    names, made = [spec.name for spec in signature.inputs], list(inputs)
    for name, path in given:
        if name not in names:
            raise click.UsageError(
                f"--input: there is no input {name!r}; {near_matches(name, names)}; known are "
                f"{', '.join(names) or 'none'}"
            )
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise RunError(f"{path} holds no array that numpy.save wrote: {error}") from None
        if not isinstance(array, np.ndarray):
            raise RunError(f"{path} holds several arrays: save one with numpy.save")
        made[names.index(name)] = array
    return made
