"""Facts about graph functions: what uses what, what is known of values, whether all is well formed.

Nothing here changes a function, apart from ``remove_all_unused``.
"""

from __future__ import annotations

from tilewright.relax.analysis.memory_usage import estimate_memory_usage
from tilewright.relax.analysis.struct_info import (
    collect_non_negative_expressions,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    get_static_type,
    tir_vars_in_struct_info,
)
from tilewright.relax.analysis.tensor_functions import has_reshape_pattern
from tilewright.relax.analysis.uses import (
    called_functions,
    contains_impure_call,
    detect_recursion,
    get_var2val,
    has_effect,
    has_operators,
    is_impure,
    name_to_binding,
    private_functions,
    remove_all_unused,
    udchain,
    use_counts,
    used_graph_vars,
)
from tilewright.relax.analysis.variables import (
    all_global_vars,
    all_vars,
    bound_vars,
    called_global_vars,
    defined_symbolic_vars,
    free_symbolic_vars,
    free_vars,
    post_order_visit,
)
from tilewright.relax.analysis.verify import verify_graph, well_formed
from tilewright.relax.analysis.weights import NUM_INPUT, computable_at_compile_time, weights_of
from tilewright.relax.struct_info import BaseCheckResult, struct_info_base_check, struct_info_lca

# Other names of TVM's, by generation.
check_well_formed = well_formed
definable_tir_vars_in_type = definable_tir_vars_in_struct_info
derive_call_ret_type = derive_call_ret_struct_info
get_static_struct_info = get_static_type
tir_vars_in_type = tir_vars_in_struct_info
type_base_check = struct_info_base_check
type_lca = struct_info_lca
used_vars = used_graph_vars

__all__ = [
    "check_well_formed", "definable_tir_vars_in_type", "derive_call_ret_type",
    "get_static_struct_info", "get_static_type", "tir_vars_in_type", "type_base_check", "type_lca",
    "used_vars",
    "BaseCheckResult", "NUM_INPUT", "all_global_vars", "all_vars", "bound_vars", "called_functions",
    "called_global_vars", "collect_non_negative_expressions", "computable_at_compile_time",
    "contains_impure_call", "definable_tir_vars_in_struct_info", "defined_symbolic_vars",
    "derive_call_ret_struct_info", "detect_recursion", "erase_to_well_defined",
    "estimate_memory_usage", "free_symbolic_vars", "free_vars", "get_var2val", "has_effect",
    "has_operators", "has_reshape_pattern", "is_impure", "name_to_binding", "post_order_visit",
    "private_functions", "remove_all_unused", "struct_info_base_check", "struct_info_lca",
    "tir_vars_in_struct_info", "udchain", "use_counts", "used_graph_vars", "verify_graph",
    "weights_of", "well_formed",
]  # fmt: skip
