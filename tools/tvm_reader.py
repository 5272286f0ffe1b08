"""Read the public names of packages, with their parameters: ours, or TVM's.

Run as a program by a Python that has TVM, this prints TVM's names as JSON; it imports nothing of
this project.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import re
import sys
import types
from typing import Any

# Packages, and where TVM defines what is a name of them: the rest they import for their own use.
PACKAGES = {
    "te": "tvm",
    "topi": "tvm.topi",
    "topi.nn": "tvm.topi.nn",
    "topi.image": "tvm.topi.image",
    "topi.vision": "tvm.topi.vision",
    "tirx": "tvm",
    "tirx.analysis": "tvm.tirx.analysis",
    "tirx.transform": "tvm.tirx.transform",
    "s_tir": "tvm.s_tir",
    "s_tir.schedule": "tvm.s_tir",
    "s_tir.transform": "tvm.s_tir.transform",
    "s_tir.analysis": "tvm.s_tir.analysis",
    "s_tir.tensor_intrin": "tvm.s_tir",
    "s_tir.meta_schedule": "tvm.s_tir.meta_schedule",
    "s_tir.meta_schedule.builder": "tvm.s_tir.meta_schedule.builder",
    "s_tir.meta_schedule.cost_model": "tvm.s_tir.meta_schedule.cost_model",
    "s_tir.meta_schedule.database": "tvm.s_tir.meta_schedule.database",
    "s_tir.meta_schedule.feature_extractor": "tvm.s_tir.meta_schedule.feature_extractor",
    "s_tir.meta_schedule.measure_callback": "tvm.s_tir.meta_schedule.measure_callback",
    "s_tir.meta_schedule.mutator": "tvm.s_tir.meta_schedule.mutator",
    "s_tir.meta_schedule.postproc": "tvm.s_tir.meta_schedule.postproc",
    "s_tir.meta_schedule.runner": "tvm.s_tir.meta_schedule.runner",
    "s_tir.meta_schedule.schedule_rule": "tvm.s_tir.meta_schedule.schedule_rule",
    "s_tir.meta_schedule.search_strategy": "tvm.s_tir.meta_schedule.search_strategy",
    "s_tir.meta_schedule.space_generator": "tvm.s_tir.meta_schedule.space_generator",
    "s_tir.meta_schedule.task_scheduler": "tvm.s_tir.meta_schedule.task_scheduler",
    "s_tir.meta_schedule.arg_info": "tvm.s_tir.meta_schedule.arg_info",
    "s_tir.meta_schedule.relax_integration": "tvm.s_tir.meta_schedule.relax_integration",
    "s_tir.meta_schedule.tir_integration": "tvm.s_tir.meta_schedule.tir_integration",
    "s_tir.dlight": "tvm.s_tir.dlight",
    "s_tir.dlight.analysis": "tvm.s_tir.dlight.analysis",
    "s_tir.dlight.base": "tvm.s_tir.dlight.base",
    "s_tir.dlight.cpu": "tvm.s_tir.dlight.cpu",
    "s_tir.dlight.gpu": "tvm.s_tir.dlight.gpu",
    "sym": "tvm.sym",
    "ir": "tvm",
    "ir.transform": "tvm.ir",
    "ir.instrument": "tvm.ir",
    "ir.supply": "tvm.ir",
    "target": "tvm.target",
    "runtime": "tvm",
    "relax": "tvm",
    "relax.analysis": "tvm.relax.analysis",
    "relax.transform": "tvm.relax.transform",
    "relax.dpl": "tvm.relax.dpl",
    "relax.op": "tvm.relax.op",
    "relax.op.nn": "tvm.relax.op.nn",
    "relax.op.image": "tvm.relax.op.image",
    "relax.op.vision": "tvm.relax.op.vision",
    "relax.op.grad": "tvm.relax.op.grad",
    "relax.frontend.nn": "tvm.relax.frontend.nn",
    "relax.frontend.nn.op": "tvm.relax.frontend.nn",
    "relax.frontend.nn.spec": "tvm.relax.frontend.nn.spec",
    "relax.testing": "tvm.relax.testing",
    "relax.training": "tvm.relax.training",
    "relax.block_builder": "tvm.relax.block_builder",
    "relax.expr_functor": "tvm.relax.expr_functor",
    "script": "tvm.script",
    "script.tirx": "",
    "script.relax": "",
    "script.ir": "",
    "script.ir_builder": "tvm.script.ir_builder",
    "script.ir_builder.tirx": "",
    "script.ir_builder.relax": "",
    "script.ir_builder.ir": "",
    "": "tvm",
    "topi.testing": "tvm.topi.testing",  # last: SciPy makes the import of other parts slow
}


def named(path: str) -> Any:
    """Return what a dotted path stands for: modules, and names in them."""
    package, _, name = path.rpartition(".")
    try:
        return getattr(named(package), name) if package else importlib.import_module(path)
    except AttributeError as error:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError:
            raise error from None


#: The parameters of functions that can't say theirs.
UNKNOWN = "*args, **kwargs"


def signature_text(function: Any) -> str | None:
    """Write the parameters of a callable as Python text, without annotations.

    Defaults that aren't plain values are written ``...``. ``None`` if nobody can say.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if [each.kind for each in parameters] == [
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ]:
        return None
    parts: list[str] = []
    starred = False
    for number, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        prefixes: dict[object, str] = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}
        prefix = prefixes.get(each.kind, "")
        starred = starred or each.kind is each.VAR_POSITIONAL
        default = "" if each.default is each.empty else "=" + default_text(each.default)
        parts.append(prefix + each.name + default)
        following = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if each.kind is each.POSITIONAL_ONLY and following is not each.POSITIONAL_ONLY:
            parts.append("/")
    return ", ".join(parts)


def default_text(value: Any) -> str:
    """Write a default: plain values as they are, others as ``...``."""
    if isinstance(value, enum.Enum):
        value = value.value
    plain = (bool, int, float, str, type(None))
    if type(value) in plain:
        return repr(value)
    if isinstance(value, (tuple, list)) and all(type(item) in plain for item in value):
        return repr(tuple(value))
    return "..."


def own_members(cls: type) -> dict[str, str | None]:
    """The public members that a class defines itself: signatures of methods, null for fields."""
    if issubclass(cls, enum.Enum):
        return dict.fromkeys(cls.__members__)
    found: dict[str, str | None] = {}
    for name, value in vars(cls).items():
        if name.startswith("_") or isinstance(value, type):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            found[name] = signature_text(getattr(cls, name)) or UNKNOWN
        elif inspect.isfunction(value):
            text = signature_text(value)
            found[name] = re.sub(r"^self(, )?", "", text) if text else UNKNOWN
        else:
            found[name] = None
    return found


def read_names(root: str) -> dict[str, Any]:
    """Collect the public names of all packages, and the classes among them."""
    packages: dict[str, dict[str, Any]] = {}
    classes: dict[str, Any] = {}
    for package, home in PACKAGES.items():
        module = named(f"{root}.{package}".rstrip("."))
        found: dict[str, Any] = {}
        for name in sorted(dir(module)):
            value = getattr(module, name)
            if name.startswith("_") or isinstance(value, types.ModuleType):
                continue
            source = getattr(value, "__module__", None) or ""
            typed = source == "typing" or type(value).__module__ in (
                "typing",
                "__future__",
                "logging",
            )
            plain = not (inspect.isclass(value) or callable(value))
            if typed or not (
                plain
                or source.startswith((home or root, "tvm_ffi") if home in ("tvm", "") else home)
            ):
                continue
            if inspect.isclass(value):
                add_class(value, classes)
                found[name] = {"class": class_key(value)}
            else:
                found[name] = signature_text(value) or UNKNOWN if callable(value) else None
        packages[package] = found
    return {
        "version": importlib.import_module(root).__version__,
        "packages": packages,
        "classes": classes,
    }


def class_key(cls: type) -> str:
    if "<locals>" in cls.__qualname__:  # a decorator's class, for the one that it derives from
        return f"{class_key(cls.__mro__[1])}, decorated: {cls.__module__}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def add_class(cls: type, classes: dict[str, Any]) -> None:
    """Note a class's constructor and members, and those of the classes it derives from."""
    for each in cls.__mro__:
        if (each is cls or each.__module__.startswith("tvm.")) and class_key(each) not in classes:
            bases = [class_key(b) for b in each.__mro__[1:] if b.__module__.startswith("tvm.")]
            known = not issubclass(each, enum.Enum)
            classes[class_key(each)] = {
                "init": signature_text(each) if known else None,
                "bases": bases,
                "members": own_members(each),
            }


if __name__ == "__main__":
    json.dump(read_names("tvm"), sys.stdout)
