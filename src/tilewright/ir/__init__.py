"""The core of the IR: nodes, dtypes, expressions, modules, passes.

Statements and buffers live in ``tilewright.tir``, graph functions in ``tilewright.relax``.
"""

from __future__ import annotations

from tilewright.ir import dtype as dtypes
from tilewright.ir import integers
from tilewright.ir.attrs import Array, Attrs, DictAttrs, Map
from tilewright.ir.contents import (
    DEFINITIONS,
    EFFECTS,
    SCALABLE,
    STRIDED,
    VSCALE,
    add_content,
    annotated,
    collect,
    contains,
    content_mask,
    contents,
)
from tilewright.ir.dtype import INDEX, ScalableLanes
from tilewright.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Call,
    Cast,
    CompareExpr,
    Div,
    Expr,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    StringImm,
    Sub,
    Var,
    located,
)
from tilewright.ir.expr_checks import check_extents, check_name
from tilewright.ir.expr_convert import (
    FALSE,
    TRUE,
    as_expr,
    as_int,
    cast,
    const,
    const_value,
    greatest_of,
    is_const,
    least_of,
    match_types,
    max_value,
    min_value,
    value_in_memory,
)
from tilewright.ir.expr_operators import (
    add,
    and_,
    call,
    ceildiv,
    compare,
    div,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
    mul,
    neg,
    not_,
    or_,
    product,
    select,
    sub,
    truncdiv,
    truncmod,
    wrong_operand,
)
from tilewright.ir.global_info import DummyGlobalInfo, GlobalInfo
from tilewright.ir.instrument import (
    DumpIR,
    PassInfo,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    pass_instrument,
)
from tilewright.ir.json import load_json, make_node, register_text, save_json
from tilewright.ir.module import GLOBAL_INFOS, GLOBAL_SYMBOL, BaseFunc, GlobalVar, IRModule, Shown
from tilewright.ir.node import (
    Node,
    attr,
    child,
    child_map,
    children,
    definition,
    definitions,
    derived,
    node,
    set_span,
)
from tilewright.ir.op import (
    OPS,
    STATED_RESULTS,
    Op,
    register_op,
    register_op_attr,
    register_operators,
)
from tilewright.ir.range import Range
from tilewright.ir.scalable import (
    MAX_VSCALE,
    found_lanes,
    has_scalable,
    is_vscale,
    lane_count,
    least_lanes,
    most_lanes,
    vscale,
    with_vscale,
)
from tilewright.ir.span import SequentialSpan, SourceName, Span
from tilewright.ir.structural import (
    assert_structural_equal,
    exact_hash,
    expr_equal,
    first_difference,
    node_at,
    structural_equal,
    structural_hash,
)
from tilewright.ir.supply import UniqueNameSupply
from tilewright.ir.transform import (
    PASS_OPTIONS,
    InfoPass,
    ModulePass,
    Pass,
    PassContext,
    PassOption,
    PrintIR,
    Sequential,
    module_pass,
    pass_decorator,
    pass_option,
    pass_options,
)
from tilewright.ir.types import (
    FuncType,
    OpaqueType,
    PointerType,
    PrimType,
    StringType,
    TupleType,
    Type,
    is_prim_expr,
    is_prim_var,
    set_base_check,
)
from tilewright.ir.vector_expr import Broadcast, Ramp, Shuffle
from tilewright.ir.visitor import (
    ExprMutator,
    Mutator,
    Visitor,
    defined_symbols,
    definition_fields,
    free_vars,
    post_order,
    pre_order,
    rewrite_bottom_up,
    rewrite_top_down,
    substitute,
    uses_var,
)

__all__ = [name for name in dir() if not name.startswith("_") and name != "annotations"]
