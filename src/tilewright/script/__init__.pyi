from tilewright.relax import script as relax
from tilewright.script import evaluator as evaluator
from tilewright.script import ir as ir
from tilewright.script import parser as parser
from tilewright.script import printer as printer
from tilewright.script.diagnostics import ScriptError as ScriptError
from tilewright.script.diagnostics import Source as Source
from tilewright.script.diagnostics import Span as Span
from tilewright.script.ir import ir_module as ir_module
from tilewright.script.highlight import print_highlighted as print_highlighted
from tilewright.script.highlight import show as show
from tilewright.script.parser import from_source as from_source
from tilewright.script.parser import parse as parse
from tilewright.script.printer import script as script
from tilewright.script.printer import to_text as to_text
from tilewright.script.scope import DIALECTS as DIALECTS
from tilewright.tir import script as tir
from tilewright.tir import script as tirx

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
    "relax",
    "script",
    "show",
    "tir",
    "tirx",
    "to_text",
]
