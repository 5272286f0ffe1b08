"""Prints TensorIR functions as ``@T.prim_func``; importing this registers all printers of ``T``."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import (
    IntImm,
    Let,
    Node,
    Var,
    collect,
)
from tilewright.script.printer import (
    Printer,
    quote,
    register_lines,
)
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.script.print_expr import buffer_arguments, define_buffer
from tilewright.tir.script.print_stmt import is_true, write_allocations, write_suite
from tilewright.tir.stmt import (
    BlockRealize,
    Stmt,
)

# ---- functions --------------------------------------------------------------------------------


def _is_static(p: Printer, buffer: Buffer) -> bool:
    parts = [*buffer.shape, *buffer.strides]
    if buffer.elem_offset is not None:
        parts.append(buffer.elem_offset)
    return buffer.data not in p.names and all(
        type(part) is IntImm or not collect(part, (Buffer, Let, Var)) for part in parts
    )


def _holds_nodes(value: object) -> bool:
    """Whether an attribute may use names that lines below the signature define."""
    if isinstance(value, Mapping):
        return any(map(_holds_nodes, value.values()))
    if isinstance(value, (tuple, list)):
        return any(map(_holds_nodes, value))
    return isinstance(value, Node)


@register_lines(PrimFunc)
def _function(p: Printer, node: PrimFunc) -> None:
    p.use("tir")
    if not _write_function(p, node, explicit_handles=False, explicit_root=False):
        return
    for handles, root in ((False, True), (True, False), (True, True)):
        if not _write_function(p, node, explicit_handles=handles, explicit_root=root):
            return


def _write_function(
    p: Printer, node: PrimFunc, *, explicit_handles: bool, explicit_root: bool
) -> bool:
    """Write the function; return whether another form is needed, and write nothing then.

    A handle parameter that the body uses needs a name of its own, and a root block without blocks
    or allocations inside must be spelled out. Both are rare and only seen while printing.
    """
    saved = p.save()
    p.context["blocks"] = False
    p.context["result"] = node.ret_dtype
    params, inline, later = _parameters(p, node, explicit_handles)
    pad, p.pad = p.pad, ""
    with p.captured() as matches:
        for handle, buffer in later:
            arguments = buffer_arguments(p, buffer)
            p.line(f"{define_buffer(p, buffer)} = T.match_buffer({handle}, {arguments})")
    p.pad = pad
    p.context["outer"] = len(p._defined)
    with p.captured() as lines, p.indented():
        if node.attrs:
            p.line(f"T.func_attr({p.value(dict(node.attrs))})")
        body_start = 0 if _holds_nodes(node.attrs) else len(p.lines)
        has_root = _write_body(p, node, explicit_root)
        blocks = p.context["blocks"]
    redo = any(var in p.names for var in inline)
    if has_root and not blocks and not explicit_root:
        redo = redo or not node.root.alloc_buffers
    if redo:
        p.restore(saved)
        return True
    _write_signature(p, node, params, rootless=bool(blocks) and not (has_root or explicit_root))
    inner = pad + "    "
    p.lines.extend(lines[:body_start])
    p.lines.extend(inner + text for text in (*p.prelude, *matches, *p.late_prelude))
    p.lines.extend(lines[body_start:])
    return False


def _parameters(
    p: Printer, node: PrimFunc, explicit_handles: bool
) -> tuple[list[str], list[Var], list[tuple[str, Buffer]]]:
    """Return parameters as text, those that stand for their buffers, and handles with buffers."""
    params: list[str] = []
    inline: list[Var] = []
    later: list[tuple[str, Buffer]] = []
    for var in node.params:
        buffer = node.buffer_map.get(var)
        if buffer is None:
            params.append(f"{p.define(var)}: T.{var.dtype}")
        elif not explicit_handles and _is_static(p, buffer):
            arguments = buffer_arguments(p, buffer)
            params.append(f"{define_buffer(p, buffer)}: T.Buffer({arguments})")
            inline.append(var)
        else:
            base = var.name if var.name != buffer.name else f"{var.name}_handle"
            handle = p.define(var, base)
            params.append(f"{handle}: T.handle")
            later.append((handle, buffer))
    return params, inline, later


def _write_signature(p: Printer, node: PrimFunc, params: list[str], *, rootless: bool) -> None:
    """Write the decorator and the line that begins with ``def``."""
    options = ["root=False"] if rootless else []
    name = "main" if p.option_name is None else p.option_name
    safe = Printer().fresh(name)
    if safe != name:
        options.append(f"name={quote(name)}")
    p.line(f"@T.prim_func({', '.join(options)})" if options else "@T.prim_func")
    returns = "" if node.ret_dtype == "void" else f" -> T.{node.ret_dtype}"
    p.signature(f"def {safe}", params, f"{returns}:")


def _write_body(p: Printer, node: PrimFunc, explicit_root: bool) -> bool:
    """Write the body; return whether it is an implicit root block."""
    body = node.body
    if explicit_root or not _is_implicit_root(p, body):
        write_suite(p, body)
        # An explicit root is recognised by the parser; anything else with blocks is marked.
        return (
            isinstance(body, BlockRealize) and not body.iter_values and (body.block.name == "root")
        )
    assert isinstance(body, BlockRealize)
    write_allocations(p, body.block)
    write_suite(p, body.block.body)
    return True


def _is_implicit_root(p: Printer, body: Stmt) -> bool:
    if type(body) is not BlockRealize or body.iter_values or not is_true(body.predicate):
        return False
    block = body.block
    return (
        block.name == "root"
        and not (block.iter_vars or block.reads or block.writes or block.match_buffers)
        and block.init is None
        and not block.annotations
        and body not in p.marks
        and block not in p.marks
    )
