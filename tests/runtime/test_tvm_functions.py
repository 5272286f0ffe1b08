"""Functions of `runtime` take the arguments that TVM's take."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import runtime
from tilewright.support.errors import RunError

X = np.arange(6, dtype="float32").reshape(2, 3)


def test_devices_by_name_number_and_target() -> None:
    assert runtime.cpu(dev_id=0) == runtime.device("cpu") == runtime.device(1, 0)
    assert runtime.device("cuda", 1) == runtime.cuda(1) == runtime.device(device_type="cuda:1")
    assert runtime.device("llvm") == runtime.cpu()
    assert runtime.device_from_target("llvm -num-cores=2") == runtime.cpu()
    target = tilewright.Target("nvidia/nvidia-h200")
    assert runtime.device_from_target(target, 2) == runtime.cuda(2)
    assert runtime.device_from_target("nvidia/nvidia-h100") == runtime.cuda()
    with pytest.raises(RunError, match="KIND:INDEX"):
        runtime.device("cuda:1", 1)
    with pytest.raises(RunError, match="unknown device '99'"):
        runtime.device(99)


def test_what_can_run_here_is_enabled() -> None:
    assert runtime.enabled("llvm") and runtime.enabled(tilewright.Target("native"))
    assert not runtime.enabled("hexagon") and not runtime.enabled("metal")
    assert runtime.enabled("cuda") == runtime.cuda().exist


def test_tensors_take_device_and_scope_in_tvms_places() -> None:
    given = runtime.tensor(X, runtime.cpu(), "global")
    made = runtime.empty((2, 3), "float32", runtime.cpu(0), mem_scope="global")
    assert made.copyfrom(source_array=X) is made
    np.testing.assert_array_equal(given.copyto(runtime.cpu(), mem_scope=None).numpy(), X)
    np.testing.assert_array_equal(runtime.from_dlpack(ext_tensor=made).numpy(), X)
    assert runtime.tensor(arr=X, dtype="float64").dtype == "float64"
    for make in (lambda: runtime.tensor(X, None, "shared"), lambda: made.copyto("cpu", "vtcm")):
        with pytest.raises(RunError, match="tensors are in global memory"):
            make()


def test_data_types_and_shapes() -> None:
    dtype = runtime.DataType("float16x4")
    assert (dtype.bits, dtype.lanes, dtype.type_code) == (16, 4, runtime.DataTypeCode.FLOAT)
    assert list(runtime.ShapeTuple((2, 3))) == [2, 3]
    assert list(runtime.convert([1, 2])) == [1, 2]
    assert isinstance(runtime.convert([1]), runtime.Object)
