"""From LLVM IR text to machine code.

The last step of the LLVM backend: text from the generators goes in, a relocatable object comes
out. Nothing here knows TensorIR. Objects are position independent, and refer to other code by
symbol; ``runtime.loader`` puts them into the process, ``codegen.elf`` into a shared library.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tilewright.codegen.llvm.shared_llvm import BrokenModule, RefusedText, SharedLLVM, load_llvm
from tilewright.support.errors import CodegenError
from tilewright.support.settings import setting
from tilewright.target import host

# What the pass set "fast" runs, in order. Kernels come with explicit vectors and register tiles in
# allocas; these passes put the tiles into registers and clean up. Strength reduction, common
# subexpressions and invariant code are dealt with when code is emitted. On a 6x64 matmul kernel of
# 750 lines this takes 12 ms and LLVM's O1, O2, O3 15 to 17 ms, all for the same speed. GVN would
# save another ms, but of it the bindings have only NewGVN, which LLVM itself doesn't trust yet.
# Names are those of the bindings; beside them stands what LLVM itself calls the pass.
_FAST_PASSES = {
    "always_inliner": "always-inline",
    "sroa": "function(sroa<preserve-cfg>)",
    "instruction_combine": "function(instcombine<no-verify-fixpoint>)",
    "simplify_cfg": "function(simplifycfg)",
}
# LLVM 22 may take apart vectors in memory (``sroa``) so that one is used before it is made, and
# generating code from that ends the process. Such a module is compiled again without that pass,
# and if even that breaks it, without any.
_WITHOUT_SROA = "fast without sroa"
_INSTEAD = _WITHOUT_SROA, "none"
# Where LLVM 22 computes something wrong: it may join stores of single elements of a vector into one
# of other elements, if the vector's length is neither a power of two nor a multiple of a register's
# (24 x i32 with AVX-512) and they are stored in another order than they lie.
_FAULTS = {"combiner-store-merging": ("false", "true")}
# Strength reduction takes a sixth of the code generator's time, and addresses come reduced.
_FAST_SWITCHES = {"disable-lsr": ("true", "false")}
# Combining instructions is the dearest of these. It finds nothing to do among the loads, sums and
# shuffles that most kernels consist of, but much where conditions and bits are computed: it runs if
# there are more than a few instructions of this kind.
_LOGIC = re.compile(r" = (?:select|fcmp|icmp \w+ <|trunc|[zs]ext|and|x?or|[al]shr|shl) ")
_FEW = 8
_LEVELS = {"O0": 0, "O1": 1, "O2": 2, "O3": 3}
PASS_SETS = ("none", "fast", *_LEVELS)
# Of the code generator's levels the second adds little but another scheduling after register
# allocation, which cores that reorder instructions don't need.
_FAST_LEVEL = 1

# LLVM's bindings share one context per process: compile one module at a time.
_lock = threading.RLock()
_keeps_switches = False
_USUAL = {name: usual for name, (_, usual) in {**_FAULTS, **_FAST_SWITCHES}.items()}
_switched_to = dict(_USUAL)
_ERROR_LINE = re.compile(r"<string>:(\d+):(\d+)|line (\d+)")


@lru_cache(maxsize=1)
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Inline assembly in a module is read by the host's assembler parser.
    llvm.initialize_native_asmparser()
    return llvm


def llvm_version() -> str:
    """Return the version of the LLVM that compiles, and whose it is."""
    import llvmlite

    shared = _shared()
    if shared is not None:
        return f"{'.'.join(map(str, shared.version))} {shared.name}"
    return f"{'.'.join(map(str, _llvm().llvm_version_info))} llvmlite {llvmlite.__version__}"


def _shared() -> SharedLLVM | None:
    """The library that the setting ``llvm_library`` names, if it names one."""
    name = setting("llvm_library")
    return load_llvm(name, tuple(_llvm().llvm_version_info)) if name else None


@lru_cache(maxsize=1)
def host_triple() -> str:
    """Return the triple of the running process, such as ``x86_64-unknown-linux-gnu``."""
    return str(_llvm().get_process_triple())


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, str]:
    """Return LLVM's name of this CPU, and its feature string."""
    return host.cpu_name(), host.feature_text()


@lru_cache(maxsize=64)
def _machine(triple: str, cpu: str, features: str, opt_level: int) -> Any:
    llvm = _llvm()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as err:
        raise CodegenError(f"LLVM has no target for triple {triple!r}: {err}") from err
    machine, said = _with_messages(
        lambda: target.create_target_machine(
            cpu=cpu, features=features, opt=opt_level, reloc="pic", codemodel="small"
        )
    )
    unknown = [line for line in said.splitlines() if " is not a recognized " in line]
    if unknown:
        # To go on would generate code for another CPU, or end the process later.
        names = ", ".join(dict.fromkeys(line.partition(" is not ")[0] for line in unknown))
        raise CodegenError(
            f"LLVM {'.'.join(map(str, llvm.llvm_version_info))} knows no CPU or feature {names} "
            f"for {triple}; -mcpu of this machine is {host.cpu_name()}"
        )
    return machine


def _with_messages(function: Callable[[], object]) -> tuple[Any, str]:
    """Call; return the result and what was written to the error output meanwhile.

    LLVM has no other way to tell that a CPU's name is unknown.
    """
    with _lock, tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            result = function()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        file.seek(0)
        return result, file.read().decode(errors="replace")


def host_machine(cpu: str | None = None, features: str | None = None, *, opt_level: int = 3) -> Any:
    """Return the (cached) LLVM target machine for this process's triple."""
    return target_machine(None, cpu, features, opt_level=opt_level)


def target_machine(
    triple: str | None, cpu: str | None, features: str | None, *, opt_level: int = 3
) -> Any:
    """Return the (cached) LLVM target machine.

    Without ``triple`` that of this process; without ``cpu`` this very CPU when the triple is this
    process's, else the triple's baseline. Features of the CPU are those it is known to have.
    """
    return _machine(*resolve_cpu(triple, cpu, features), opt_level)


def resolve_cpu(triple: str | None, cpu: str | None, features: str | None) -> tuple[str, str, str]:
    """Return triple, CPU and features in words, where they are left to this machine."""
    own = triple is None or triple == host_triple()
    if own and cpu is None:
        host_name, host_features = host_cpu()
        cpu, features = host_name, host_features if features is None else features
    return triple or host_triple(), cpu or "", features or ""


def _around(text: str, error: str) -> str:
    """The line of the program that an LLVM message is about, with its neighbours and a caret."""
    match = _ERROR_LINE.search(error)
    if match is None:
        return ""
    line = int(match.group(1) or match.group(3))
    lines = text.splitlines()
    shown = []
    for number in range(max(1, line - 2), min(len(lines), line + 1) + 1):
        shown.append(f"{number:6d} | {lines[number - 1]}")
        if number == line and match.group(2):
            shown.append(" " * 9 + " " * (int(match.group(2)) - 1) + "^")
    return "\n" + "\n".join(shown)


def _blame(text: str, error: str) -> str:
    """The line that the verifier quotes, found again in the text by what defines it."""
    for quoted in error.splitlines():
        name = quoted.strip().split(" =")[0]
        if not name.startswith("%"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip().startswith(f"{name} ="):
                return f"\n{number:6d} | {line}"
    return ""


def parse(text: str) -> Any:
    """Parse and verify a module; a fault becomes a :class:`CodegenError` that shows the line."""
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as err:
        message = str(err).strip()
        raise CodegenError(
            f"LLVM can't read the module: {message}{_around(text, message)}"
        ) from err
    try:
        module.verify()
    except RuntimeError as err:
        message = str(err).strip()
        raise CodegenError(
            f"LLVM's verifier refuses the module: {message}{_blame(text, message)}"
        ) from err
    return module


def _fast_passes(text: str, passes: str) -> Iterator[str]:
    """The passes of the set "fast", or of that without one, that a module needs."""
    for name in _FAST_PASSES:
        if name == "sroa" and passes == _WITHOUT_SROA:
            continue
        if name == "always_inliner" and "alwaysinline" not in text:
            continue
        if name == "instruction_combine" and len(_LOGIC.findall(text)) <= _FEW:
            continue
        yield name


def _optimize(module: object, machine: object, passes: str, text: str) -> None:
    if passes == "none":
        return
    llvm = _llvm()
    tuning = llvm.create_pipeline_tuning_options(speed_level=_LEVELS.get(passes, 2))
    # Loops come scheduled: LLVM's own vectorisers only help where a loop was left scalar.
    tuning.loop_vectorization = tuning.slp_vectorization = passes == "O3"
    builder = llvm.create_pass_builder(machine, tuning)
    if passes in ("fast", _WITHOUT_SROA):
        manager = llvm.create_new_module_pass_manager()
        for name in _fast_passes(text, passes):
            getattr(manager, f"add_{name}_pass")()
    else:
        manager = builder.getModulePassManager()
    manager.run(module, builder)


def _switches(passes: str) -> Mapping[str, tuple[str, str]]:
    """The switches of LLVM for generating code: what they are set to, and put back to."""
    return _FAULTS if passes in _LEVELS else {**_FAULTS, **_FAST_SWITCHES}


def keep_switches() -> None:
    """Don't put LLVM's switches back after each module: nobody else compiles in this process.

    Setting one makes LLVM look through all that it has, which costs a tenth of a millisecond.
    """
    global _keeps_switches
    _keeps_switches = True


def _set_switches(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if _switched_to.get(name) != value:
            _llvm().set_option("tilewright", f"-{name}={value}")
            _switched_to[name] = value


@contextmanager
def _switched(passes: str) -> Iterator[None]:
    """Set llvmlite's LLVM for generating code.

    Switches are of the process, so they are put back at once; whoever else compiles at this very
    moment, in another thread, gets slightly different code.
    """
    _set_switches(_USUAL | {name: value for name, (value, _) in _switches(passes).items()})
    try:
        yield
    finally:
        if not _keeps_switches:
            _set_switches(_USUAL)


def _prepare(
    text: str, triple: str | None, cpu: str | None, features: str | None, passes: str
) -> tuple[Any, Any]:
    """A module after the passes and its machine, both llvmlite's."""
    machine = target_machine(triple, cpu, features, opt_level=_LEVELS.get(passes, _FAST_LEVEL))
    for chosen in (passes, *_INSTEAD):
        module = parse(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        _optimize(module, machine, chosen, text)
        if chosen == "none" or _is_valid(module):
            break
    return module, machine


def _is_valid(module: Any) -> bool:
    """Whether the passes left a module whose values are made before they are used."""
    try:
        module.verify()
    except RuntimeError:
        return False
    return True


def _compile(
    text: str,
    triple: str | None,
    cpu: str | None,
    features: str | None,
    passes: str,
    output: str,
) -> bytes:
    """Compile to an ``object``, ``assembly``, or the text of the module after the passes, ``ll``.

    The LLVM of the setting ``llvm_library`` does it if there is one, else llvmlite's.
    """
    if passes not in PASS_SETS:
        raise CodegenError(f"unknown pass set {passes!r}; expected one of {', '.join(PASS_SETS)}")
    with _lock:
        shared = _shared()
        if shared is not None:
            target_machine(triple, cpu, features)  # refuses what is unknown, with an explanation
            target = resolve_cpu(triple, cpu, features)
            return _compile_shared(shared, text, target, passes, output)
        module, machine = _prepare(text, triple, cpu, features, passes)
        if output == "ll":
            return str(module).encode()
        with _switched(passes):
            if output == "assembly":
                return str(machine.emit_assembly(module)).encode()
            return bytes(machine.emit_object(module))


def _compile_shared(
    shared: SharedLLVM,
    text: str,
    target: tuple[str, str, str],
    passes: str,
    output: str,
) -> bytes:
    for chosen in (passes, *_INSTEAD):
        if chosen in ("fast", _WITHOUT_SROA):
            pipeline = ",".join(map(_FAST_PASSES.__getitem__, _fast_passes(text, chosen)))
        else:
            pipeline = "" if chosen == "none" else f"default<{chosen}>"
        try:
            return shared.compile(
                text,
                target,
                _LEVELS.get(passes, _FAST_LEVEL),
                pipeline,
                output=output,
                vectorizes=passes == "O3",
                switches=_switches(passes),
            )
        except BrokenModule:
            continue
        except RefusedText as error:
            parse(text)  # says the same, and shows the line
            raise CodegenError(f"{shared.name} refuses the module: {error}") from error
    raise AssertionError("without passes a module stays as it was parsed")


def compile_ll(
    text: str,
    *,
    triple: str | None = None,
    cpu: str | None = None,
    features: str | None = None,
    passes: str = "fast",
) -> bytes:
    """Compile LLVM IR text to a relocatable, position-independent object.

    ``passes`` is ``"none"``, ``"fast"`` (a short pipeline for kernels with explicit vectors) or
    LLVM's ``"O0"`` … ``"O3"``; only ``"O3"`` runs LLVM's vectorisers. The result depends on the
    arguments and on :func:`llvm_version` alone.
    """
    return _compile(text, triple, cpu, features, passes, "object")


def optimized_ll(text: str, *, passes: str = "fast", **machine: str | None) -> str:
    """Return the module's text after the passes, for a machine as :func:`compile_ll` takes it."""
    return _for_people(text, passes, "ll", **machine)


def assembly(text: str, *, passes: str = "fast", **machine: str | None) -> str:
    """Return the assembly text that :func:`compile_ll` would encode for a machine."""
    return _for_people(text, passes, "assembly", **machine)


def _for_people(
    text: str,
    passes: str,
    output: str,
    *,
    triple: str | None = None,
    cpu: str | None = None,
    features: str | None = None,
) -> str:
    return _compile(text, triple, cpu, features, passes, output).decode()
