"""Visitors, mutators and functions over statements under TVM's names."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te, tir
from tilewright.tir.functor import mutator, visitor
from tilewright.tir.stmt_functor import (
    ir_transform,
    post_order_visit,
    pre_order_visit,
    renew_defs,
    substitute,
)


def example() -> tir.PrimFunc:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    return te.create_prim_func([a, te.compute((4,), lambda i: te.sum(a[i, k] * 2.0, axis=k))])


def test_visitors_call_methods_by_class() -> None:
    found: list[str] = []

    @visitor
    class Finder(tir.PyStmtExprVisitor):
        def visit_for_(self, op: tir.For) -> None:
            found.append(op.loop_var.name)
            super().visit_for_(op)

        def visit_sblock_(self, op: tir.SBlock) -> None:
            found.append(op.name)
            self.visit_stmt(op.body)

        def visit_mul_(self, op: Any) -> None:
            found.append("mul")
            self.visit_expr(op.b)

        def visit_float_imm_(self, op: tir.FloatImm) -> None:
            found.append(str(op.value))

    Finder()(example().body)
    assert found == ["root", "i", "k", "compute", "mul", "2.0"]


def test_older_names_of_methods_work_too() -> None:
    class Finder(tir.StmtExprVisitor):
        blocks = 0

        def visit_block_(self, op: tir.SBlock) -> None:
            self.blocks += 1
            super().visit_block_(op)

    finder = Finder()
    finder.visit(example())
    assert finder.blocks == 2


def test_mutators_keep_what_does_not_change() -> None:
    func = example()

    @mutator
    class Nothing(tir.PyStmtExprMutator):
        pass

    class Tripler(tir.StmtExprMutator):
        def visit_float_imm_(self, op: tir.FloatImm) -> tir.FloatImm:
            return tir.FloatImm(op.dtype, op.value * 3) if op.value else op

    assert Nothing()(func.body) is func.body
    made = func.replace(body=Tripler()(func.body))
    assert "T.float32(6.0)" in made.script() and "T.float32(2.0)" not in made.script()


def test_statements_alone() -> None:
    func = example()

    class Marker(tir.StmtMutator):
        def visit_for_(self, op: tir.For) -> Any:
            return super().visit_for_(op).replace(annotations={"mark": 1})

        def visit_float_imm_(self, op: Any) -> Any:
            raise AssertionError("expressions are not visited")

    marked = func.replace(body=Marker()(func.body))
    assert marked.script().count("mark") == 2

    class Size(tir.StmtFunctor):
        def visit_seq_stmt_(self, op: tir.SeqStmt) -> int:
            return sum(map(self.visit_stmt, op.stmts))

        def visit_evaluate_(self, op: tir.Evaluate) -> int:
            return 1

    assert Size()(tir.SeqStmt([tir.Evaluate(tir.const(1)), tir.Evaluate(tir.const(2))])) == 2
    with pytest.raises(NotImplementedError, match="no method for For"):
        Size()(tir.For(tir.Var("i"), 0, 4, tir.ForKind.SERIAL, tir.Evaluate(tir.const(1))))


def test_functions_over_statements() -> None:
    func = example()
    names: list[str] = []
    post_order_visit(func.body, lambda node: names.append(type(node).__name__))
    assert names.index("BufferStore") < names.index("BlockRealize") < names.index("For")
    loops: list[str] = []

    def enter(node: Any) -> bool:
        if isinstance(node, tir.For):
            loops.append(node.loop_var.name)
            return node.loop_var.name != "i"
        return True

    pre_order_visit(func.body, enter)
    assert loops == ["i"]

    def parallel(loop: tir.For) -> tir.For | None:
        return loop.replace(kind="parallel") if loop.loop_var.name == "i" else None

    made = ir_transform(func.body, None, parallel, ["tir.For"])
    assert "T.parallel(4)" in func.replace(body=made).script()
    assert ir_transform(func.body, lambda node: None, None) is func.body

    n = tir.Var("n")
    assert int(substitute(n + 1, {n: 3}).a) == 3
    copy = renew_defs(func)
    assert copy.params[0] is not func.params[0] and copy.script() == func.script()


def test_operators_as_classes() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert isinstance(x & y, tir.BitwiseAnd) and not isinstance(x | y, tir.BitwiseAnd)
    assert isinstance(tir.Mod(x, y), tir.Mod) and tir.Mod(x, y).args == (x, y)
    assert isinstance(x << 1, tir.LShift) and isinstance(~x, tir.BitwiseNot)
    assert tir.stmt_list(tir.stmt_seq(x, y))[1].value is y


def test_constructors_in_tvms_form() -> None:
    assert tir.IntImm("int32", 3).value == 3 and tir.FloatImm("float16", 1.5).dtype == "float16"
    assert tir.Cast("int8", tir.Var("x", "int32")).dtype == "int8"
    axis = tir.IterVar((0, 8), "k", tir.IterVar.CommReduce)
    assert (axis.kind, axis.var.name, int(axis.dom.extent)) == ("reduce", "k", 8)
    thread = te.thread_axis("threadIdx.x")
    body = tir.Evaluate(1)
    loop = tir.For(tir.Var("t"), 0, 8, 4, body, thread)
    assert loop.kind == tir.ForKind.THREAD_BINDING and loop.thread == "threadIdx.x"
    assert loop.thread_binding is not None and loop.thread_binding.thread_tag == "threadIdx.x"
    assert tir.For(tir.Var("t"), 0, 8, 1, body).thread_binding is None
    buffer = tir.decl_buffer((4, 4), "float16")
    store = tir.BufferStore(buffer, 1, [0, tir.Var("j")])
    assert store.value.dtype == "float16" and store.indices[0].dtype == "int64"
    assert tir.BufferLoad(buffer, [1, 2]).dtype == "float16"
