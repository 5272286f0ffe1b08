"""Script: text that a program prints to and parses from, without loss.

The machinery is neutral; the dialects live with what they print. ``from tilewright.script import
ir as I, tir as T, relax as R`` loads a dialect's vocabulary on first use (``scope.DIALECTS``
says where it lives).

How to add a dialect (``relax`` is the model):

1. A row in ``DIALECTS``: name, alias and module path of the vocabulary. All public names of that
   module are the vocabulary; functions there return IR or small declaration objects, and hold no
   state, so that they work outside of a parser too.
2. Printing: ``@printer.register(cls)`` for what stands within a line and
   ``@printer.register_lines(cls)`` for statements and functions; call ``printer.use("relax")``
   so that the header imports the alias. A function's printer writes ``@R.function`` and the
   definition under ``printer.option_name``.
3. Parsing: a subclass of ``parser.FunctionDecorator`` whose ``parse_function(source, node, scope,
   options)`` walks the ``ast`` with a subclass of ``evaluator.Evaluator``; expressions, scopes,
   captured variables and errors come from there. Inside a module the class's name and ``cls`` are
   an ``ir.ModuleReference``.
4. ``@references.register_subscript(cls)`` if ``value[...]`` means something.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import module as _module
from tilewright.script import evaluator, ir, parser, printer
from tilewright.script.diagnostics import ScriptError, Source, Span
from tilewright.script.highlight import print_highlighted, show
from tilewright.script.ir import ir_module
from tilewright.script.notebook import script_html
from tilewright.script.parser import from_source, parse
from tilewright.script.printer import script, to_text
from tilewright.script.scope import DIALECTS, NAMES, load_dialect

_module.set_printer(script, show, script_html)


def __getattr__(name: str) -> Any:
    if name in DIALECTS or name in NAMES:
        return load_dialect(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DIALECTS",
    "ScriptError",
    "Source",
    "Span",
    "evaluator",
    "from_source",
    "ir",
    "ir_module",
    "parse",
    "parser",
    "print_highlighted",
    "printer",
    "script",
    "show",
    "to_text",
]
