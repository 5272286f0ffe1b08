"""Running compiled code: devices, tensors, modules, threads, timing.

Independent of the compiler: the results of a build can be loaded and run with this package alone.
"""

from tilewright.runtime.device import Device, cpu, cuda, device, device_from_target, enabled
from tilewright.runtime.dlpack import dlpack_dtype, dtype_name, numpy_dtype
from tilewright.runtime.executable import Executable
from tilewright.runtime.ffi import (
    DataType,
    DataTypeCode,
    Object,
    ShapeTuple,
    convert,
)
from tilewright.runtime.global_functions import (
    get_global_func,
    register_global_func,
    remove_global_func,
)
from tilewright.runtime.gpu.graphs import CUDAGraph
from tilewright.runtime.gpu.streams import Event, Stream
from tilewright.runtime.guarded_memory import GuardedArray, guarded
from tilewright.runtime.loader import (
    Library,
    SupportObject,
    register_support_object,
    support_addresses,
)
from tilewright.runtime.module import (
    BaseModule,
    CompiledFunction,
    FunctionInfo,
    LibraryModule,
    Link,
    Linker,
    Module,
    ModuleCode,
    linked_objects,
    load_module,
)
from tilewright.runtime.params import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from tilewright.runtime.seal import stored_checksum
from tilewright.runtime.tensor import Tensor, empty, from_dlpack, from_numpy, tensor
from tilewright.runtime.threads import (
    num_threads,
    set_num_threads,
    set_thread_affinity,
    thread_affinity,
)
from tilewright.runtime.timing import TimingResult, fetch, flush_cache, measure

register_func = register_global_func  # the name of TVM's earlier versions

__all__ = [
    "BaseModule",
    "CUDAGraph",
    "CompiledFunction",
    "DataType",
    "DataTypeCode",
    "Device",
    "Event",
    "Executable",
    "FunctionInfo",
    "GuardedArray",
    "Library",
    "LibraryModule",
    "Link",
    "Linker",
    "Module",
    "ModuleCode",
    "Object",
    "ShapeTuple",
    "Stream",
    "SupportObject",
    "Tensor",
    "TimingResult",
    "convert",
    "cpu",
    "cuda",
    "device",
    "device_from_target",
    "dlpack_dtype",
    "dtype_name",
    "empty",
    "enabled",
    "fetch",
    "flush_cache",
    "from_dlpack",
    "from_numpy",
    "get_global_func",
    "guarded",
    "linked_objects",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "measure",
    "num_threads",
    "numpy_dtype",
    "register_func",
    "register_global_func",
    "register_support_object",
    "remove_global_func",
    "save_param_dict",
    "save_param_dict_to_file",
    "set_num_threads",
    "set_thread_affinity",
    "stored_checksum",
    "support_addresses",
    "tensor",
    "thread_affinity",
]
