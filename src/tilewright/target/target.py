"""``Target``: a target of code generation, as a value.

A target prints as text that parses back (``llvm -mcpu=znver4 -num-cores=2``), so that it can be
stored in a database record. Properties determined by the CPU name and its features (vector width,
number of vector registers) are derived; cache sizes are detected where possible.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tilewright.ir import register_text
from tilewright.support.errors import TargetError
from tilewright.support.registry import near_matches
from tilewright.target import cpus, gpus
from tilewright.target import host as machine
from tilewright.target.costs import Costs, costs_of

# Options of each kind with the type of their value. ``None`` options are left out of the text.
_COMMON_CPU: dict[str, type] = {
    "mcpu": str,
    "mtriple": str,
    "mattr": str,
    "sve-vector-bits": int,
    "num-cores": int,
    "l1": int,
    "l2": int,
    "l3": int,
}
# GPUs whose kernels are written as text only.
_GPU: dict[str, type] = {
    "arch": str,
    "max-threads": int,
    "max-shared-memory": int,
    "thread-warp-size": int,
    "num-cores": int,
    "math": str,
}
TARGET_KINDS: dict[str, dict[str, type]] = {
    "llvm": _COMMON_CPU,
    "c": {"num-cores": int},
    "cuda": {
        "model": str,
        "arch": str,
        "max-threads": int,
        "max-shared-memory": int,
        "thread-warp-size": int,
        "num-cores": int,
        "registers": int,
        "l2": int,
        "bandwidth": int,
        "memory": int,
        "clock": int,
        "math": str,
    },
    "hip": _GPU,
    "opencl": _GPU,
    "metal": _GPU,
}
# Other names of options: those that TVM has.
_ALIASES = {
    "max-threads-per-block": "max-threads",
    "max-num-threads": "max-threads",
    "max-shared-memory-per-block": "max-shared-memory",
    "registers-per-block": "registers",
    "l2-cache-size-bytes": "l2",
    "multi-processor-count": "num-cores",
}
# Options of every kind: words for who reads ``Target.keys``.
_WORDS: dict[str, type] = {"keys": str, "device": str}
for _options in TARGET_KINDS.values():
    _options.update(_WORDS)
_CHOICES = {"math": ("exact", "fast")}
DEVICE_OF_KIND = {
    "llvm": "cpu",
    "c": "cpu",
    "cuda": "cuda",
    "hip": "rocm",
    "opencl": "opencl",
    "metal": "metal",
}
# DLPack's numbers of these devices.
_DEVICE_TYPES = {"cpu": 1, "cuda": 2, "opencl": 4, "metal": 8, "rocm": 10}
#: What users' tags stand for: see ``target/tags.py``.
REGISTERED_TAGS: dict[str, dict[str, Any]] = {}


class TargetKind(str):
    """A kind of target: the text ``llvm``, ``cuda`` …, and what is known about it."""

    @property
    def name(self) -> str:
        """The kind as a plain text."""
        return str.__str__(self)

    @property
    def default_device_type(self) -> int:
        """DLPack's number for the devices that code of this kind runs on."""
        return _DEVICE_TYPES[DEVICE_OF_KIND[self]]

    @property
    def default_keys(self) -> tuple[str, ...]:
        """The ``keys`` of a target that names no others."""
        device = DEVICE_OF_KIND[self]
        return (device,) if device == "cpu" else (device, "gpu")

    @property
    def options(self) -> dict[str, str]:
        """The options that targets of this kind take, each with the type of its value."""
        return self.options_from_name(self)

    @staticmethod
    def options_from_name(kind_name: str) -> dict[str, str]:
        """Return the options of a kind; ``TargetError`` if there is none of that name."""
        if kind_name not in TARGET_KINDS:
            raise TargetError(
                f"unknown kind of target {kind_name!r}; {near_matches(kind_name, [*TARGET_KINDS])}"
            )
        return {key: kind.__name__ for key, kind in TARGET_KINDS[kind_name].items()}


class Target:
    """A compilation target.

    ``Target("native")`` is this machine's CPU: name, features and cores are detected.
    ``Target("llvm -mcpu=znver4 -num-cores=2")`` specifies it; other options come from this machine
    if the named CPU is this machine's (or none is named), else from the CPU's name. CPUs and
    features are LLVM's: ``-mattr=+avx2`` also enables what it implies, ``-mattr=-avx512f`` also
    disables what depends on it.

    ``Target("nvidia/nvidia-h200")`` (or ``"h200"``) is a GPU of the table in ``target/gpus.py``;
    ``Target("cuda -arch=sm_90a")`` names an architecture, and ``Target("cuda")`` takes ``sm_80``.
    TVM's names of options (``max_shared_memory_per_block``) are understood.

    ``host`` is the CPU that launches a GPU's kernels: this machine. The options ``keys`` and
    ``device`` are words for who reads :attr:`keys`.

    Raises ``TargetError`` for an unknown kind, option, triple, CPU, feature or GPU.
    """

    _local = threading.local()

    def __init__(
        self,
        target: str | Mapping[str, Any] | Target,
        host: str | Mapping[str, Any] | Target | None = None,
    ) -> None:
        kind, options = _kind_and_options(target)
        host = options.pop("host", None) if host is None else host
        if kind in REGISTERED_TAGS or options.get("tag") in REGISTERED_TAGS:
            tag = options.pop("tag", kind)
            options = {**REGISTERED_TAGS[tag], **options}
            kind, beside = options.pop("kind", ""), options.pop("host", None)
            host = beside if host is None else host
        if not options.get("tag", True):
            del options["tag"]  # TVM exports targets with an empty one
        if kind == "native":
            kind, options = "llvm", {"mcpu": machine.cpu_name(), **options}
        if kind not in TARGET_KINDS and gpus.is_tag(kind or str(options.get("tag", ""))):
            kind, options = _tagged(kind or options.pop("tag"), options)
        known = TARGET_KINDS.get(kind)
        if known is None:
            names = ["native", *TARGET_KINDS]
            raise TargetError(f"unknown target {kind!r}; {near_matches(kind, names)}")
        self.kind = TargetKind(kind)
        options = {_option_name(known, key): value for key, value in options.items()}
        self.options: dict[str, Any] = {
            key: _option(kind, known, key, value) for key, value in options.items()
        }
        if kind == "llvm":
            self._fill_in_cpu()
        elif kind == "cuda":
            gpus.arch_of(self.arch)
        self.host = None if host is None else _checked_host(Target(host))

    def _fill_in_cpu(self) -> None:
        options = self.options
        here = "mtriple" not in options and options.get("mcpu") in (None, machine.cpu_name())
        self._is_here = here
        if here:
            options.setdefault("mcpu", machine.cpu_name())
        if "num-cores" not in options:
            options["num-cores"] = machine.core_count()
        caches = machine.cache_sizes() if here else {}
        for level, fallback in (("l1", 32 << 10), ("l2", 1 << 20), ("l3", 32 << 20)):
            options.setdefault(level, caches.get(level, fallback))
        self._features, self._lacking = self._cpu_features(here)
        self._check_vector_length()

    def _cpu_features(self, here: bool) -> tuple[frozenset[str], frozenset[str]]:
        """Return the usable features, and those that LLVM must be told to disable."""
        changes = self.options.get("mattr", "")
        table = cpus.table_of(self.triple)
        if table is None:
            wrong = machine.wrong_triple(self.triple)
            if wrong is not None:
                raise TargetError(f"LLVM has no target for -mtriple={self.triple!r}: {wrong}")
            # LLVM itself knows which CPUs and features there are, and says so when it compiles.
            return cpus.named(changes, "+"), cpus.named(changes, "-")
        if not here:
            self.options.setdefault("mcpu", table.baseline)
        own = frozenset() if here and self.mcpu not in table.cpus else table.features_of(self.mcpu)
        features = own
        if here:  # a hypervisor may hide some that the CPU's name stands for
            has, lacking = machine.cpu_features()
            features = table.without(own | table.closed(has), lacking)
        features = table.changed(features, changes)
        missing = sorted(table.needed - features)
        if missing:
            raise TargetError(
                f"code for {table.name} needs {missing[0]}, which -mcpu={self.mcpu} "
                + (f"with -mattr={changes} lacks" if changes else "lacks")
            )
        return features, (own | cpus.named(changes, "-")) - features

    def _check_vector_length(self) -> None:
        bits = self.options.get("sve-vector-bits")
        if bits is not None and (not self.has("sve") or bits % 128):
            raise TargetError(
                f"-sve-vector-bits takes a multiple of 128 and needs a CPU with sve, got {bits} "
                f"for {self.mcpu or 'no -mcpu'}"
            )

    @staticmethod
    def from_device(device: object) -> Target:
        """Return the target of a device (``tilewright.cpu()``, ``"cpu"``, ``tilewright.cuda(0)``).

        Raises ``TargetError`` for devices that can't be queried, ``RunError`` for a GPU that isn't
        there.
        """
        kind = str(getattr(device, "kind", device)).split(":")[0].split("(")[0]
        if kind in ("cpu", "llvm"):
            return Target("native")
        if kind == "cuda" and hasattr(device, "compute_version"):
            return Target({"kind": "cuda", **gpus.options_of_device(cast(gpus.Asked, device))})
        raise TargetError(
            f"no target can be detected for device {device!s}; tilewright.cpu() and "
            "tilewright.cuda(0) can be asked, for others write the target, such as "
            "'cuda -arch=sm_90'"
        )

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """Return the target of the innermost ``with target:``, or ``None``.

        Raises ``TargetError`` if there is none and one is required.
        """
        stack = getattr(Target._local, "stack", None)
        if stack:
            found: Target = stack[-1]
            return found
        if allow_none:
            return None
        raise TargetError("no target is active; use `with Target(...):` or pass one")

    @staticmethod
    def target_or_current(target: str | Mapping[str, Any] | Target | None) -> Target:
        """Return a target, or the current one if none is given; ``TargetError`` without either."""
        found = Target.current(allow_none=False) if target is None else Target(target)
        assert found is not None
        return found

    @staticmethod
    def list_kinds() -> list[str]:
        """Return the names of all kinds of targets."""
        return list(TARGET_KINDS)

    def __enter__(self) -> Target:
        if not hasattr(Target._local, "stack"):
            Target._local.stack = []
        Target._local.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Target._local.stack.pop()

    @property
    def device_kind(self) -> str:
        """Kind of the device that runs the code: ``cpu``, ``cuda``, ``rocm`` …"""
        return DEVICE_OF_KIND[self.kind]

    def get_target_device_type(self) -> int:
        """Return DLPack's number for the kind of device that runs the code."""
        return self.kind.default_device_type

    @property
    def keys(self) -> tuple[str, ...]:
        """Words that say what the target is, from the most special one: ``("cuda", "gpu")``.

        Options ``keys`` and ``device`` name others; the device comes first.
        """
        stated = str(self.options.get("keys", "")).split(",")
        words = [self.options.get("device", ""), *stated]
        words += [] if any(stated) else self.kind.default_keys
        return tuple(dict.fromkeys(word for word in words if word))

    @property
    def attrs(self) -> dict[str, Any]:
        """The options by our names, and by TVM's."""
        named = {tvm: self.options.get(ours) for tvm, ours in _ALIASES.items()}
        found = {**self.options, **{k: value for k, value in named.items() if value is not None}}
        return {**found, **{key.replace("-", "_"): value for key, value in found.items()}}

    @property
    def tag(self) -> str:
        """The tag of the GPU that the target names, or nothing."""
        return gpus.tag_of(str(self.options.get("model", ""))) or ""

    def with_host(self, host: str | Mapping[str, Any] | Target | None = None) -> Target:
        """Return a copy with another host."""
        copy = Target(self)
        copy.host = None if host is None else _checked_host(Target(host))
        return copy

    @property
    def mcpu(self) -> str:
        """LLVM's name of the CPU."""
        return str(self.options.get("mcpu", ""))

    @property
    def triple(self) -> str:
        """LLVM target triple; empty for the host's."""
        return str(self.options.get("mtriple", ""))

    @property
    def features(self) -> frozenset[str]:
        """LLVM's names of the CPU features that may be used (``avx2``, ``fma``, ``neon`` …)."""
        return self._features if self.kind == "llvm" else frozenset()

    def has(self, feature: str) -> bool:
        """Whether a CPU feature may be used."""
        return feature in self.features

    @property
    def feature_string(self) -> str:
        """Features in the form LLVM takes: ``+avx2,+fma,-avx512f``, sorted.

        Features with a minus are those that the CPU's name alone would imply.
        """
        lacking = self._lacking if self.kind == "llvm" else ()
        signed = [f"+{name}" for name in sorted(self.features)]
        return ",".join(signed + [f"-{name}" for name in sorted(lacking)])

    @property
    def num_cores(self) -> int:
        """Number of threads that a parallel loop runs on."""
        return int(self.options.get("num-cores", 1))

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register in bits.

        For SVE it is the CPU's register length: ``-sve-vector-bits``, or the value known for
        ``-mcpu``.
        """
        if self.has("avx512f"):
            return 512
        if self.has("sve"):
            return int(self.options.get("sve-vector-bits", cpus.sve_vector_bits(self.mcpu)))
        return 256 if self.has("avx") else 128

    @property
    def has_scalable_vectors(self) -> bool:
        """Whether there are vectors whose length the machine knows: SVE, or RVV (``+v``)."""
        return self.has("sve") or (self.has("v") and self.triple.startswith("riscv"))

    def require_scalable_vectors(self) -> None:
        """Raise ``TargetError`` unless there are vectors whose length the machine knows."""
        if not self.has_scalable_vectors:
            raise TargetError(
                f"the program has scalable vectors (T.vscale), which the target {str(self)!r} has "
                "not: SVE has them (llvm -mtriple=aarch64-linux-gnu -mattr=+sve), and RVV (llvm "
                "-mtriple=riscv64-linux-gnu -mattr=+v); elsewhere vectors have a constant number "
                "of lanes, and the interpreter runs any program with the vscale that it is given"
            )

    @property
    def vector_registers(self) -> int:
        """Number of architectural vector registers."""
        return 32 if self.has("avx512f") or self.has("neon") else 16

    def vector_lanes(self, dtype_bits: int = 32) -> int:
        """Elements of ``dtype_bits`` bits in the widest vector."""
        return self.vector_bits // dtype_bits

    @property
    def has_fast_bf16_dots(self) -> bool:
        """Whether dot products of bfloat16 pairs are as fast as float32 multiply-adds, or faster.

        Without instructions for them, numbers would be converted at each use.
        """
        has_dots = self.has("avx512bf16") or self.has("bf16")
        return has_dots and 2 * self.costs.bf16_dots >= self.costs.multiply_adds

    @property
    def l1_bytes(self) -> int:
        """Bytes of level-1 data cache per core."""
        return int(self.options.get("l1", 32 << 10))

    @property
    def l2_bytes(self) -> int:
        """Bytes of level-2 cache per core."""
        return int(self.options.get("l2", 1 << 20))

    @property
    def l3_bytes(self) -> int:
        """Bytes of the last-level cache, shared by all cores."""
        return int(self.options.get("l3", 32 << 20))

    @property
    def arch(self) -> str:
        """Architecture of a GPU: ``sm_90a``. ``sm_80`` for a ``cuda`` target that says nothing."""
        return str(self.options.get("arch", gpus.DEFAULT_ARCH if self.kind == "cuda" else ""))

    @property
    def gpu(self) -> gpus.GPUArch:
        """What GPUs of the target's architecture have; ``TargetError`` if it is no GPU."""
        if self.device_kind == "cpu":
            raise TargetError(f"target {self.kind!r} is no GPU: it has no architecture of one")
        if self.kind == "cuda":
            return gpus.arch_of(self.arch)
        size = int(self.options.get("thread-warp-size", 64 if self.kind == "hip" else 32))
        return replace(gpus.GENERIC, warp_size=size)

    @property
    def max_shared_memory(self) -> int:
        """Bytes of shared memory that a thread block may have.

        48 KB unless the target states it or names an architecture: so much is on any GPU.
        """
        stated = self.options.get("max-shared-memory")
        if stated is not None:
            return int(stated)
        if self.kind == "cuda" and "arch" not in self.options:
            return gpus.STATIC_SHARED_BYTES
        return self.gpu.shared_per_block

    @property
    def has_fast_math(self) -> bool:
        """Whether functions may be the GPU's approximations (``-math=fast``)."""
        return self.options.get("math") == "fast"

    @property
    def costs(self) -> Costs:
        """The costs: measured ones, if the target's CPU is this machine's and they exist."""
        here = self.kind == "llvm" and self._is_here
        return costs_of(self.kind, self.mcpu, self.vector_bits, here)

    def with_options(self, **options: object) -> Target:
        """Return a copy with options changed (``num_cores=1`` means ``-num-cores=1``)."""
        changed = {key.replace("_", "-"): value for key, value in options.items()}
        return Target({"kind": self.kind, **self.options, **changed})

    def export(self) -> dict[str, Any]:
        """Return kind and options as a dict."""
        return {"kind": str(self.kind), **dict(sorted(self.options.items()))}

    def __str__(self) -> str:
        options = "".join(
            f" -{key}={shlex.quote(str(value))}" for key, value in sorted(self.options.items())
        )
        return self.kind + options

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def content_key(self, ignore_ndarray: bool = False) -> str:
        """Return the target's key for structural hashing: functions have targets as attributes."""
        return f"target:{self}"


def _kind_and_options(
    target: str | Mapping[str, Any] | Target,
) -> tuple[str, dict[str, Any]]:
    """Read a target in any form; its host is an option."""
    if isinstance(target, Target):
        host = {} if target.host is None else {"host": target.host}
        return target.kind, {**target.options, **host}
    if isinstance(target, str):
        if not target.lstrip().startswith("{"):
            return _parse(target)
        try:
            target = json.loads(target)
        except ValueError as error:
            raise TargetError(f"target {target!r} is no JSON: {error}") from None
    if not isinstance(target, Mapping):
        raise TargetError(
            "a target is text such as 'native' or 'llvm -num-cores=4', or a dictionary, "
            f"got {type(target).__name__}"
        )
    options = dict(target)
    return options.pop("kind", ""), options


def _checked_host(host: Target) -> Target:
    if host.kind != "llvm" or not host._is_here:
        raise TargetError(
            f"the host that launches kernels is this machine's CPU ('llvm' or 'native'), not {host}"
        )
    return host


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``kind -key=value -key value`` into its parts."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} can't be read: {error}") from None
    if not words:
        raise TargetError("an empty target; write 'native' or 'llvm -num-cores=4'")
    options: dict[str, Any] = {}
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            raise TargetError(f"expected an option such as -num-cores=4 in {text!r}, got {word!r}")
        key, equals, value = word.lstrip("-").partition("=")
        if not equals:
            if not rest:
                raise TargetError(f"option -{key} of target {text!r} has no value")
            value = rest.pop(0)
        options[key] = value
    return words[0], options


def _tagged(tag: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return kind and options of a GPU by its tag; options given beside it count."""
    known = TARGET_KINDS["cuda"]
    given = {_option_name(known, key): value for key, value in options.items()}
    return "cuda", {**gpus.options_of(tag), **given}


def _option_name(known: Mapping[str, type], key: str) -> str:
    """Return our name of an option that may be spelt as TVM does."""
    spelt = key.replace("_", "-") if isinstance(key, str) else key
    spelt = _ALIASES.get(spelt, spelt)
    return spelt if spelt in known else key


def _option(kind: str, known: Mapping[str, type], key: str, value: object) -> object:
    expected = known.get(key)
    if expected is None:
        raise TargetError(
            f"target {kind!r} has no option {key!r}; {near_matches(key, list(known))}"
        )
    if isinstance(value, (list, tuple)):
        value = ",".join(value)
    try:
        made = expected(value)
    except (TypeError, ValueError):
        raise TargetError(
            f"option {key!r} of target {kind!r} takes {expected.__name__}, got {value!r}"
        ) from None
    if key in _CHOICES and made not in _CHOICES[key]:
        raise TargetError(
            f"option {key!r} of target {kind!r} is one of {', '.join(_CHOICES[key])}, got {value!r}"
        )
    if expected is int and made < 1:
        raise TargetError(f"option {key!r} of target {kind!r} must be positive, got {value!r}")
    return made


register_text("target", Target, str, Target)
