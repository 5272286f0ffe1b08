"""Running compiled code: devices, tensors, modules, threads, timing.

Independent of the compiler: the results of a build can be loaded and run with this package alone.
"""

from tilewright.runtime.device import Device, cpu, cuda, device
from tilewright.runtime.dlpack import dlpack_dtype, dtype_name, numpy_dtype
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
    Linker,
    Module,
    ModuleCode,
    linked_objects,
    load_module,
)
from tilewright.runtime.seal import stored_checksum
from tilewright.runtime.tensor import Tensor, empty, from_dlpack, from_numpy, tensor
from tilewright.runtime.threads import (
    num_threads,
    set_num_threads,
    set_thread_affinity,
    thread_affinity,
)
from tilewright.runtime.timing import TimingResult, flush_cache, measure

__all__ = [
    "BaseModule",
    "CUDAGraph",
    "CompiledFunction",
    "Device",
    "Event",
    "FunctionInfo",
    "GuardedArray",
    "Library",
    "LibraryModule",
    "Linker",
    "Module",
    "ModuleCode",
    "Stream",
    "SupportObject",
    "Tensor",
    "TimingResult",
    "cpu",
    "cuda",
    "device",
    "dlpack_dtype",
    "dtype_name",
    "empty",
    "flush_cache",
    "from_dlpack",
    "from_numpy",
    "get_global_func",
    "guarded",
    "linked_objects",
    "load_module",
    "measure",
    "num_threads",
    "numpy_dtype",
    "register_global_func",
    "register_support_object",
    "remove_global_func",
    "set_num_threads",
    "set_thread_affinity",
    "stored_checksum",
    "support_addresses",
    "tensor",
    "thread_affinity",
]
