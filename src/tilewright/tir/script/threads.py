"""The part of the dialect ``T`` that launches threads as lowered programs of TVM do.

::

    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 32)

What follows runs on these threads: each launch is a loop of kind ``thread_binding`` around the rest
of the suite, and prints as one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import INDEX, Expr, ExprLike, Var, as_expr, dtypes
from tilewright.script.allowance import register_values
from tilewright.support.errors import VerifyError
from tilewright.tir.script.scalars import DTypeLike, as_dtype
from tilewright.tir.stmt import check_thread


@dataclass
class EnvThread:
    """``tx = T.env_thread("threadIdx.x")``: the number of a thread, before that is launched."""

    tag: str
    var: Var

    def as_expr(self) -> Var:
        """Stand for the number where a value is expected."""
        return self.var


@dataclass
class LaunchThread:
    """``bx = T.launch_thread("blockIdx.x", 4)``."""

    tag: str
    extent: Expr
    var: Var | None


def env_thread(thread_tag: str, dtype: DTypeLike = INDEX) -> EnvThread:
    """Name the number of a thread that ``T.launch_thread`` launches later."""
    check_thread(thread_tag)
    made = as_dtype(dtype)
    if not dtypes.is_integer(made):
        raise VerifyError(f"the number of a thread is an integer, got {made}")
    return EnvThread(thread_tag, Var(thread_tag.replace(".", "_"), made))


def launch_thread(thread: str | EnvThread, extent: ExprLike) -> LaunchThread:
    """Run what follows on threads of a tag, ``extent`` of them."""
    count = as_expr(extent)
    if not dtypes.is_integer(count.dtype):
        raise VerifyError(f"the number of threads is an integer, got {count.dtype}")
    if isinstance(thread, EnvThread):
        return LaunchThread(thread.tag, count, thread.var)
    check_thread(thread)
    return LaunchThread(thread, count, None)


register_values(EnvThread, LaunchThread)
