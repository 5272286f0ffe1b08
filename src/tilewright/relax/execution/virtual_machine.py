"""``VirtualMachine``: TVM's interface to compiled graphs.

Calls go to native functions. An instrument, and the profiler, see the kernels one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from tilewright.ir import IRModule
from tilewright.relax.execution.executable import Executable, as_numpy, build
from tilewright.relax.execution.graph_call import flat_inputs, parameters_of
from tilewright.relax.execution.profiling import Report, profile
from tilewright.relax.execution.stepwise import KernelCall, planned_graph, run_stepwise
from tilewright.runtime import BaseModule, Device, from_numpy
from tilewright.runtime.timing import TimingResult, check_pauses, measure_with_pauses
from tilewright.support.errors import RunError
from tilewright.support.registry import near_matches
from tilewright.target import Target


class VMInstrumentReturnKind(IntEnum):
    """What an instrument returns before a kernel: whether it runs."""

    NO_OP = 0
    SKIP_RUN = 1


Instrument = Callable[..., Any]
"""``instrument(function, name, before_run, result, *operands)``, before and after each kernel."""

_LARGEST_L2 = 128 << 20  # of GPUs whose model the target doesn't name
_FLUSH = "cache_flush_cpu_non_first_arg"


class VirtualMachine:
    """Runs an executable: ``VirtualMachine(executable, cpu())["main"](x)``.

    ``rt_mod`` may also be a library that ``load_module`` has loaded, with the signatures beside it.
    ``device`` is what the graphs are compiled for, or a list of it. ``memory_cfg`` is
    ``"pooled"`` (results come from cached memory), also for each device. ``profile=True`` allows
    ``profile``.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(
        self,
        rt_mod: Executable | BaseModule | IRModule,
        device: Device | Sequence[Device] | None = None,
        memory_cfg: str | Mapping[Device, str] | None = None,
        profile: bool = False,
    ) -> None:
        self.executable = _executable(rt_mod)
        kind = self.executable.device_kind
        given = [device] if isinstance(device, Device) else list(device or [Device(kind)])
        for item in given:
            self._check_device(item)
        kinds = memory_cfg.values() if isinstance(memory_cfg, Mapping) else (memory_cfg,)
        if not set(kinds) <= {None, "pooled"}:
            raise RunError(f"memory_cfg must be 'pooled', got {memory_cfg!r}")
        self.device = given[0]
        self.profiling = profile
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._outputs: dict[str, object] = {}
        self._saved: dict[str, Callable[[], object]] = {}
        self._instrument: Instrument | None = None

    def _check_device(self, device: Device) -> None:
        kind = self.executable.device_kind
        if device.kind not in (kind, "cpu") or (kind == "cpu" and device.kind != kind):
            raise RunError(f"these graphs run on the {kind}, got {device}")

    @property
    def module(self) -> BaseModule:
        """The compiled module."""
        return self.executable.module

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a graph function, or one that ``save_function`` saved.

        Raises ``RunError`` if there is none.
        """
        if name in self._saved:
            return self._saved[name]
        function = self.executable[name]
        if self._instrument is None:
            return function
        return lambda *inputs: self._observed(name, inputs)

    def invoke_closure(self, closure: Callable[..., object], *args: object) -> Any:
        """Call a function of this machine."""
        return closure(*args)

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: object,
        include_return: bool = True,
        **kwargs: object,
    ) -> None:
        """Save a call with its arguments: ``vm[saved_name]()`` makes it.

        Without ``include_return`` the call returns ``None``. Raises ``RunError`` if a function has
        that name.
        """
        if saved_name in self.executable.signatures:
            raise RunError(f"{saved_name!r} is the name of a graph function: choose another")
        function, inputs = self.executable[func_name], self._in_order(func_name, args, kwargs)

        def call() -> Any:
            result = function(*inputs)
            return result if include_return else None

        self._saved[saved_name] = call

    # ---- calls in parts ---------------------------------------------------------------------

    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Set the arguments of the next ``invoke_stateful``.

        Raises ``RunError`` for missing and unknown arguments.
        """
        self._inputs[func_name] = self._in_order(func_name, args, kwargs)
        self._outputs.pop(func_name, None)

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments that were set; ``get_outputs`` gives its results.

        Raises ``RunError`` if none were set.
        """
        self._outputs[func_name] = self[func_name](*self._set(func_name))

    def get_outputs(self, func_name: str) -> Any:
        """Return the results of ``invoke_stateful``: a tensor or a (nested) tuple.

        Raises ``RunError`` if it wasn't called after ``set_input``.
        """
        if func_name not in self._outputs:
            raise RunError(f"{func_name!r} has no outputs: call invoke_stateful({func_name!r})")
        return self._outputs[func_name]

    def get_input_index(self, input_name: str, func_name: str) -> int:
        """Return the position of a parameter.

        Raises ``RunError`` if there is none of that name.
        """
        names = self._names(func_name)
        if input_name not in names:
            raise RunError(
                f"{func_name} has no input {input_name!r}; {near_matches(input_name, names)}"
            )
        return names.index(input_name)

    def _names(self, func_name: str) -> list[str]:
        self.executable[func_name]  # an unknown name is refused there
        return [name for name, _ in parameters_of(self.executable.signatures[func_name])]

    def _in_order(
        self, func_name: str, args: Sequence[object], kwargs: dict[str, object]
    ) -> tuple[object, ...]:
        names = self._names(func_name)
        rest = names[len(args) :]
        if len(args) > len(names) or set(rest) != set(kwargs):
            given = [f"{len(args)} by position", *kwargs]
            raise RunError(
                f"{func_name} takes {len(names)} arguments ({', '.join(names)}), got "
                + ", ".join(given)
            )
        return (*args, *(kwargs[name] for name in rest))

    def _set(self, func_name: str) -> tuple[object, ...]:
        self.executable[func_name]
        if func_name not in self._inputs:
            raise RunError(f"{func_name!r} has no inputs: call set_input({func_name!r}, ...)")
        return self._inputs[func_name]

    # ---- kernels one by one -----------------------------------------------------------------

    def set_instrument(self, instrument: Instrument | None) -> None:
        """Call ``instrument(function, name, before_run, result, *operands)`` around each kernel.

        Operands are inputs, results (NumPy arrays) and sizes. Before a kernel the instrument may
        return ``VMInstrumentReturnKind.SKIP_RUN``, so that the kernel doesn't run; its results then
        are what the instrument wrote into them. ``None`` removes the instrument.
        """
        if instrument is not None:
            for name in self.executable.signatures:
                planned_graph(self.executable, name)
        self._instrument = instrument

    def _observed(self, name: str, inputs: Sequence[object]) -> object:
        instrument = self._instrument
        assert instrument is not None

        def run(step: KernelCall, kernel: Callable[..., Any]) -> None:
            kind = instrument(kernel, step.name, True, None, *step.operands)
            if kind != VMInstrumentReturnKind.SKIP_RUN:
                kernel(*step.operands)
            instrument(kernel, step.name, False, None, *step.operands)

        return _tensors(run_stepwise(self.executable, name, inputs, run))

    def profile(self, func_name: str, *args: object, repeat: int = 10) -> Report:
        """Measure each kernel of a call: time, share, GFLOP/s, GB/s, share of the roofline.

        Kernels are called one by one from Python; each time is the median of ``repeat`` runs. Such
        a call takes a few microseconds itself, so kernels that are shorter take less in the graph.

        Raises ``RunError`` unless the machine was made with ``profile=True``.
        """
        if not self.profiling:
            raise RunError("profiling is off: VirtualMachine(..., profile=True) allows it")
        return profile(self.executable, func_name, args, repeat)

    # ---- timing -----------------------------------------------------------------------------

    def time_evaluator(
        self,
        func_name: str = "main",
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0.0,
        cooldown_interval_ms: float = 0.0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., TimingResult]:
        """Return a function that takes inputs and measures the native call, without allocation.

        Of ``"invoke_stateful"`` it takes the name of a function whose inputs were set. After each
        ``repeats_to_cooldown`` repeats there is a pause of ``cooldown_interval_ms``. ``f_preproc``
        may be ``"cache_flush_cpu_non_first_arg"``, which flushes the caches before each repeat.

        Raises ``RunError`` for an unknown function, and for other options than these.
        """
        if dev is not None:
            self._check_device(dev)
        if f_preproc not in ("", _FLUSH):
            raise RunError(f"f_preproc must be '' or {_FLUSH!r}, got {f_preproc!r}")
        check_pauses(cooldown_interval_ms, repeats_to_cooldown)
        flush = _flushed_bytes(Target(self.executable.target)) if f_preproc else 0

        def timed(call: Callable[..., object], args: Sequence[object]) -> TimingResult:
            return measure_with_pauses(
                call,
                args,
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                flush_cache_bytes=flush,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown,
            )

        def evaluate(*inputs: object) -> TimingResult:
            name, given = func_name, inputs
            if func_name == "invoke_stateful":
                name, given = str(inputs[0]), self._set(str(inputs[0]))
            if name in self._saved:
                return timed(self._saved[name], ())
            function = self.executable[name]
            flat = flat_inputs(function.signature, given)
            return timed(function.native, function.operands(flat, function(*given)))

        if func_name != "invoke_stateful":
            self[func_name]  # an unknown name is refused here
        return evaluate


def _executable(given: Executable | BaseModule | IRModule) -> Executable:
    if isinstance(given, IRModule):
        return build(given)
    return given if isinstance(given, Executable) else Executable(given)


def _flushed_bytes(target: Target) -> int:
    """Twice the last cache."""
    if target.device_kind == "cuda":
        return 2 * int(target.options.get("l2", _LARGEST_L2))
    return 2 * target.l3_bytes


def _tensors(value: object) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_tensors, value))
    return from_numpy(as_numpy(value))
