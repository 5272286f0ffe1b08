"""``ToMixedPrecision``: products and convolutions in half floats, what is delicate in float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import IRModule
from tilewright.relax import ops
from tilewright.relax.expr import (
    Binding,
    Constant,
    Function,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    TupleGetItem,
)
from tilewright.relax.registry import RelaxOp
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError

HALF, SINGLE = "float16", "float32"

ALWAYS = frozenset(
    """matmul nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose
    nn.conv3d_transpose nn.scaled_dot_product_attention""".split()
)
"""Operators that always take half floats: that is what the pass is for."""

FOLLOW = frozenset(
    """add subtract multiply divide maximum minimum negative abs clip where nn.relu nn.relu6
    nn.leaky_relu nn.gelu nn.silu tanh sigmoid nn.pad nn.max_pool1d nn.max_pool2d nn.max_pool3d
    reshape permute_dims expand_dims squeeze broadcast_to concat split strided_slice take
    flip repeat tile layout_transform""".split()
)
"""Operators that take half floats if an operand is one already, and none is a result in float32.

All others are computed in float32: sums over many elements, exponentials, norms, softmax; and those
with constants that are infinite or 0 as halves, such as the large negative numbers of masks.
"""


class ToMixedPrecision(GraphPass):
    """Compute ``ALWAYS`` operators on ``float16`` operands, and what follows them.

    ``out_dtype`` is the dtype in which products are summed and given: ``float32`` or ``float16``
    (attention and plain convolutions have no ``out_dtype``: they give ``float16``).
    Parameters named in ``fp16_input_names`` become ``float16``; other parameters and the results
    keep their dtypes. Only ``float32`` values are touched.

    Raises ``VerifyError`` for another ``out_dtype``.

    Before:
        gv = R.matmul(x, w)
    After:
        lv = R.astype(x, "float16")
        lv1 = R.astype(w, "float16")
        gv = R.matmul(lv, lv1, out_dtype="float32")
    """

    def __init__(
        self, out_dtype: str = SINGLE, fp16_input_names: Sequence[str] | None = None
    ) -> None:
        if out_dtype not in (HALF, SINGLE):
            raise VerifyError(f"out_dtype must be {SINGLE} or {HALF}, got {out_dtype!r}")
        self.out_dtype = out_dtype
        self.fp16_input_names = tuple(fp16_input_names or ())

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild all functions.

        Raises ``VerifyError`` if no function has a parameter of a given name.
        """
        known = {
            param.name
            for function in mod.functions.values()
            if isinstance(function, Function)
            for param in function.params
        }
        for name in self.fp16_input_names:
            if name not in known:
                raise VerifyError(f"fp16_input_names: no graph function has a parameter {name!r}")
        return super().transform(mod)

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Mixer(mod, self.out_dtype, self.fp16_input_names)


class _Mixer(FunctionRewriter):
    """Keeps each variable in the dtype that its value has; casts are made when they are needed."""

    isolated = ("casts",)

    def __init__(self, mod: IRModule, out_dtype: str, names: Sequence[str]) -> None:
        super().__init__(mod)
        self.out_dtype = out_dtype
        self.names = names

    def rewrite(self, function: Function) -> Function:
        self.casts: dict[tuple[RelaxExpr, str], RelaxExpr] = {}
        # Values that may be rounded: results of products in out_dtype, parameters.
        self.narrow: set[RelaxExpr] = set()
        self.params: set[RelaxExpr] = set()
        return super().rewrite(function)

    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        made = []
        for param in function.params:
            info = param.struct_info
            if (
                param.name in self.names
                and isinstance(info, TensorStructInfo)
                and info.dtype == SINGLE
            ):
                made.append(self.renew(param, info.replace(dtype=HALF)))
            else:
                made.append(param)
        self.params.update(made)
        return made

    def rewrite_block(self, bindings: Sequence[Binding]) -> None:
        super().rewrite_block(bindings)
        self.casts.clear()  # they may be dataflow variables

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(binding, MatchCast):
            self.builder.emit_binding(
                binding.replace(value=self.as_before(self.resolve(value), value))
            )
        elif not isinstance(value, RelaxCall):
            self.bind_as_is(binding, self.resolve(value))
        else:
            args = tuple(self.resolve(arg) for arg in value.args)
            name = value.op.key if isinstance(value.op, RelaxOp) else ""
            if name in ALWAYS and self.may_narrow(value, args):
                self.always(binding.var, value, args)
            elif name in FOLLOW and self.follows(value, args):
                halves = tuple(self.cast(arg, HALF) for arg in args)
                self.bind(binding.var, RelaxCall(value.op, halves, value.attrs))
            else:
                self.restore(binding, value, args)

    def may_narrow(self, value: RelaxCall, args: Sequence[RelaxExpr]) -> bool:
        """Whether a product is one of float32 (large negative masks of attention are no halves)."""
        masked = "attention" in value.op_name and len(args) > 3
        return _is_single(value.struct_info) and self.all_single(args) and not masked

    def always(self, var: RelaxVar, value: RelaxCall, args: Sequence[RelaxExpr]) -> None:
        attrs = dict(value.attrs)
        if "out_dtype" in attrs:
            attrs["out_dtype"] = self.out_dtype
        halves = tuple(self.cast(arg, HALF) for arg in args)
        self.bind(var, RelaxCall(value.op, halves, attrs))
        self.narrow.add(self.mapping.get(var, var))

    def all_single(self, args: Sequence[RelaxExpr]) -> bool:
        """Whether all float operands are of the two dtypes that the pass is about."""
        return all(
            info.dtype in (HALF, SINGLE) or not info.dtype.startswith(("float", "bfloat"))
            for arg in args
            for info in _tensors(arg.struct_info)
        )

    def follows(self, value: RelaxCall, args: Sequence[RelaxExpr]) -> bool:
        """Whether an operand is narrow, and none would lose digits that were computed for it."""
        if "dtype" in value.attrs or not self.all_single(args):
            return False
        if value.op_name != "clip" and not all(map(_fits_half, value.attrs.values())):
            return False
        leaves = [item for arg in args for item in _items(arg)]
        floats = [item for item in leaves if self.is_float(item)]
        narrow = [
            item for item in floats if item in self.narrow or not _is_single(item.struct_info)
        ]
        free = all(
            item in self.narrow
            or item in self.params
            or (isinstance(item, Constant) and _fits_half(item.data))
            or not _is_single(item.struct_info)
            for item in floats
        )
        return bool(narrow) and free

    def is_float(self, item: RelaxExpr) -> bool:
        found = _tensors(item.struct_info)
        return bool(found) and all(info.dtype in (HALF, SINGLE) for info in found)

    def bind_as_is(self, binding: Binding, value: RelaxExpr) -> None:
        """Bind an item of a tuple, a tuple or a name, whatever its dtype is now."""
        if value is binding.value:
            self.builder.emit_binding(binding)
        else:
            self.bind(binding.var, value)
        if any(item in self.narrow for item in _items(value)):
            self.narrow.add(self.mapping.get(binding.var, binding.var))

    def restore(self, binding: Binding, value: RelaxCall, args: Sequence[RelaxExpr]) -> None:
        """Bind what was bound before: operands in the dtypes that they had."""
        made = tuple(self.as_before(new, old) for new, old in zip(args, value.args))
        if all(new is old for new, old in zip(made, value.args)):
            self.builder.emit_binding(binding)
        else:
            self.bind(binding.var, RelaxCall(value.op, made, value.attrs, value.sinfo_args))

    def as_before(self, new: RelaxExpr, old: RelaxExpr) -> RelaxExpr:
        """Cast a value back to the dtype of what it stands for."""
        if isinstance(new, Tuple) and isinstance(old, Tuple):
            items = tuple(self.as_before(a, b) for a, b in zip(new.fields, old.fields))
            return old if all(a is b for a, b in zip(items, old.fields)) else Tuple(items)
        have, want = new.struct_info, old.struct_info
        if isinstance(have, TensorStructInfo) and isinstance(want, TensorStructInfo):
            return new if have.dtype == want.dtype else self.cast(new, want.dtype)
        if isinstance(have, TupleStructInfo) and isinstance(want, TupleStructInfo):
            pairs = list(zip(_tensors(have), _tensors(want)))
            if any(a.dtype != b.dtype for a, b in pairs):
                return Tuple(tuple(self.as_before(new[i], old[i]) for i in range(len(want.fields))))
        return new

    def cast(self, value: RelaxExpr, dtype: str) -> RelaxExpr:
        """Cast floats of the two dtypes; other values stay."""
        if isinstance(value, Tuple):
            return Tuple(tuple(self.cast(item, dtype) for item in value.fields))
        info = value.struct_info
        if not isinstance(info, TensorStructInfo) or info.dtype not in (HALF, SINGLE):
            return value
        if info.dtype == dtype:
            return value
        known = self.casts.get((value, dtype))
        if known is None:
            known = self.builder.emit(ops.astype(value, dtype))
            self.casts[value, dtype] = known
        return known

    def rewrite_branch_result(self, branch: SeqExpr) -> RelaxExpr:
        return self.as_before(self.resolve(branch.body), branch.body)

    def rewrite_result(self, body: object) -> RelaxExpr:
        assert self.function is not None
        before = self.function.body.body
        return self.as_before(self.resolve(before), before)


def _tensors(info: StructInfo) -> list[TensorStructInfo]:
    if isinstance(info, TupleStructInfo):
        return [leaf for field in info.fields for leaf in _tensors(field)]
    return [info] if isinstance(info, TensorStructInfo) else []


def _items(expr: RelaxExpr) -> list[RelaxExpr]:
    if isinstance(expr, Tuple):
        return [leaf for item in expr.fields for leaf in _items(item)]
    if isinstance(expr, TupleGetItem):
        return [expr.tuple_value]
    return [expr]


def _fits_half(value: object) -> bool:
    """Whether no float of an attribute or a constant becomes infinite or 0 as a half."""
    if not isinstance(value, (float, np.ndarray)):
        return True
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return True
    with np.errstate(all="ignore"):
        half = array.astype(HALF)
    same = (np.isfinite(half) == np.isfinite(array)) & ((half == 0) == (array == 0))
    return bool(np.all(same))


def _is_single(info: StructInfo) -> bool:
    found = _tensors(info)
    return bool(found) and all(item.dtype == SINGLE for item in found)
