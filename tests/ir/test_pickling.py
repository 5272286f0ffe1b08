"""Programs are sent to other processes, which give their operators and contents other numbers."""

from __future__ import annotations

import pickle

from tilewright import te, topi
from tilewright.ir import Call, contents, pre_order, structural_equal
from tilewright.ir.op import OPS
from tilewright.tir import PrimFunc


def program() -> PrimFunc:
    a = te.placeholder((8,), name="A")
    return te.create_prim_func([a, topi.nn.relu(topi.exp(a))])


def test_a_program_survives_with_the_operators_of_the_process() -> None:
    func = program()
    sent = pickle.loads(pickle.dumps(func))
    assert structural_equal(sent, func)
    calls = [node.op for node in pre_order(sent.body) if isinstance(node, Call)]
    assert calls and all(op is OPS.get(op.name) for op in calls)


def test_what_was_found_out_about_a_program_stays_at_home() -> None:
    func = program()
    found = contents(func.body)
    sent = pickle.loads(pickle.dumps(func))
    assert sent.body._contents is None
    assert contents(sent.body) == found


def test_an_operator_alone_is_small() -> None:
    assert len(pickle.dumps(OPS.get("exp"))) < 200
