"""A trace says all of what was done: as JSON, as Python text, and without its dead code.

Replaying takes as long as the sequence did. So of the two texts one is replayed, by turns, and the
other is read: it must name the same instructions, with the same arguments and decisions. What
``simplified`` leaves out can be seen to change nothing: questions whose results nobody uses
(``Session.apply`` looks whether questions leave the program as it is).
"""

from __future__ import annotations

import json
from typing import Any

from tilewright.ir import IRModule, structural_equal
from tilewright.tir.schedule import PRIMITIVES, Instruction, Schedule, Trace
from tilewright.tir.schedule.trace import gives_list


def wrong_replay(start: Schedule, trace: Trace, mod: IRModule, *, python: bool) -> str | None:
    """Say how a trace fails to give a module, on a schedule on which nothing was done yet.

    ``python`` says which text is replayed; the other one is read.
    """
    data, text = json.dumps(trace.as_json()), str(trace)
    read = Trace.from_json(json.loads(data))
    if json.dumps(read.as_json()) != data:
        return "JSON: what is read is another trace"
    scope: dict[str, Any] = {}
    exec(text, scope)
    if python:
        scope["apply_trace"](start)
        if json.dumps(start.trace.as_json()) != data:
            return f"Python: the replayed schedule has another trace\n{text}"
    else:
        read.apply_to_schedule(start, remove_postproc=False)
        reader = _Reader(trace)
        scope["apply_trace"](reader)
        if json.dumps(Trace(reader.read).as_json()) != data:
            return f"Python: what is read is another trace\n{text}"
    if not structural_equal(start.mod, mod):
        return f"{'Python' if python else 'JSON'} gives another program\n{text}"
    return _wrongly_left_out(trace)


class _Reader:
    """Stands for a schedule: remembers what it is told, and returns the handles of a trace."""

    def __init__(self, trace: Trace) -> None:
        self.expected = iter(trace.insts)
        self.read: list[Instruction] = []

    def __getattr__(self, name: str) -> Any:
        chosen = PRIMITIVES.get(name)

        def call(*args: object, **kwargs: object) -> Any:
            values, decision = chosen.bind(*args, **kwargs)
            values, decision = chosen.checked_args(values), chosen.checked_decision(decision)
            outputs = next(self.expected).outputs
            self.read.append(Instruction.of(chosen, values, decision, outputs))
            return outputs[0] if len(outputs) == 1 and not gives_list(chosen) else outputs

        return call


def _wrongly_left_out(trace: Trace) -> str | None:
    kept = trace.simplified().insts
    known: set[Any] = set()
    for inst in kept:
        if not known.issuperset(inst.handles):
            return f"pruned: {inst} uses what was left out"
        known.update(inst.outputs)
    if [x for x in kept if not x.primitive.pure] != [
        x for x in trace.insts if not x.primitive.pure
    ]:
        return "pruned: what changes the program was left out, or has moved"
    return None
