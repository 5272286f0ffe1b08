"""Evaluates the expressions of script text: the part that all dialects share.

The evaluator walks Python's ``ast`` rather than calling ``eval``, for three reasons. What stands in
the text is built *as it stands*: ``x + 0`` gives an ``Add`` (only two constants fold), so that
printing and parsing are inverse. ``and``, ``or``, ``not`` and comparisons give nodes. And every
error points at its line and column. Python values that a function captures fold as usual:
with ``N = 0`` outside, ``x + N`` is ``x``.

A dialect says what subscripting its own symbols means with :func:`register_subscript`.

Text that isn't the user's own source has a scope with a budget: then ``allowance`` says which
names, attributes and values it may use, and each step is paid for.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.ir import (
    EQ,
    FALSE,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    And,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Mul,
    Node,
    Not,
    Or,
    Sub,
    add,
    as_expr,
    compare,
    const_value,
    div,
    dtypes,
    floordiv,
    floormod,
    if_then_else,
    match_types,
    mul,
    sub,
)
from tilewright.script.allowance import (
    Decorator,
    may_be_named,
    may_name,
    register_values,
)
from tilewright.script.bounded import apply_operator, compare_values, format_value, item_of
from tilewright.script.diagnostics import ScriptError, Source
from tilewright.script.printer import is_printable
from tilewright.script.scope import Scope
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import near_matches

Subscript = Callable[[Any, tuple[Any, ...]], Any]
_SUBSCRIPTS: dict[type, Subscript] = {}


def register_subscript(cls: type) -> Callable[[Subscript], Subscript]:
    """Return a decorator: the function gives the meaning of ``value[indices]`` for a class.

    ``indices`` is a tuple; slices come as Python ``slice`` objects of evaluated bounds.
    """

    def decorate(function: Subscript) -> Subscript:
        _SUBSCRIPTS[cls] = function
        return function

    return decorate


_ARITHMETIC: dict[type, tuple[Any, Callable[[Any, Any], Expr]]] = {
    ast.Add: (Add, add),
    ast.Sub: (Sub, sub),
    ast.Mult: (Mul, mul),
    ast.Div: (Div, div),
    ast.FloorDiv: (FloorDiv, floordiv),
    ast.Mod: (FloorMod, floormod),
}
_PYTHON_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}
_COMPARE: dict[type, Any] = {
    ast.Eq: EQ,
    ast.NotEq: NE,
    ast.Lt: LT,
    ast.LtE: LE,
    ast.Gt: GT,
    ast.GtE: GE,
}
_PYTHON_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def to_value(value: Any) -> Any:
    """Turn what stands for an expression (a slice of a buffer) into one; leave the rest alone."""
    if isinstance(value, Expr) or not hasattr(value, "as_expr"):
        return value
    return value.as_expr()


def build_arithmetic(op: type, a: Any, b: Any, *, literal: bool = True) -> Expr:
    """Build the node of a binary operator as it stands; only two constants fold.

    ``literal`` says that a Python number among the operands stands in the text itself.
    """
    kind, fold = _ARITHMETIC[op]
    if not literal and not (isinstance(a, Expr) and isinstance(b, Expr)):
        return fold(a, b)
    a, b = match_types(a, b)
    if const_value(a) is not None and const_value(b) is not None:
        return fold(a, b)
    if op is ast.Div:
        if not dtypes.is_float(dtypes.element_of(a.dtype)):
            return fold(a, b)  # raises, with the reason
    elif op in (ast.FloorDiv, ast.Mod) and (
        const_value(b) == 0 or not dtypes.is_integer(dtypes.element_of(a.dtype))
    ):
        return fold(a, b)  # raises, with the reason
    made: Expr = kind(a, b)
    return made


def build_compare(op: type, a: Any, b: Any) -> Expr:
    """Build a comparison as it stands."""
    return compare(_COMPARE[op], a, b)


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"r": repr, "s": str, "a": ascii}


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


class Evaluator:
    """Evaluates ``ast`` expressions in a scope."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    def fail(self, node: ast.AST, message: str, cause: BaseException | None = None) -> Any:
        """Raise a ``ParseError`` that points at ``node``."""
        self.source.fail(node, message, cause)

    def guard(
        self, node: ast.AST, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function; what it raises becomes a ``ParseError`` that points at ``node``."""
        try:
            return function(*args, **kwargs)
        except (ScriptError, RecursionError):
            raise
        except TilewrightError as error:
            self.fail(node, error.message, error)
        except Exception as error:
            # User code may raise anything; the cause is chained.
            self.fail(node, f"{type(error).__name__}: {error}", error)

    def guarded_statement(self, node: ast.AST, read: Callable[..., Any], *before: Any) -> Any:
        """Let ``read(*before, node)`` read a statement; whatever it raises points at that."""
        try:
            if self.scope.budget is not None:
                self.scope.budget.spend()
            return read(*before, node)
        except ScriptError:
            raise
        except RecursionError as error:
            self.fail(node, "the program is nested too deeply", error)
        except TilewrightError as error:
            self.fail(node, error.message, error)
        except Exception as error:
            # What a dialect's functions make of odd values is known only when they meet them.
            self.fail(node, f"{type(error).__name__}: {error}", error)

    def eval(self, node: ast.expr) -> Any:
        """Return the value of an expression: an IR node, a declaration or a Python value."""
        method = _DISPATCH.get(type(node), _UNSUPPORTED)
        budget = self.scope.budget
        try:
            if budget is None:
                return method(self, node)
            budget.spend()
            value = method(self, node)
            budget.admit(value)
            return value
        except ScriptError:
            raise
        except RecursionError as error:
            # The innermost frame with enough room left makes the error.
            self.fail(node, "the expression is nested too deeply", error)
        except TilewrightError as error:
            self.fail(node, error.message, error)

    def eval_expr(self, node: ast.expr) -> Expr:
        """Return the value as an IR expression."""
        value = self.eval(node)
        if isinstance(value, Expr):
            return value
        made: Expr = self.guard(node, as_expr, value)
        return made

    def parse_text(self, node: ast.AST, text: str) -> ast.expr:
        """Return the expression that a string of the program holds; reading it has its price."""
        if self.scope.budget is not None:
            self.guard(node, self.scope.budget.spend, len(text))
        return self.source.parse_expression(node, text)

    def _unsupported(self, node: ast.expr) -> Any:
        return self.fail(node, f"{type(node).__name__} has no meaning in script")

    def bind_plain(self, target: ast.expr, value: Any) -> None:
        """Bind names of a comprehension or a function's parameter to Python values."""
        if isinstance(target, ast.Name):
            self.scope.define(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(self.iterate(target, value))
            if len(values) != len(target.elts):
                self.fail(target, f"{len(target.elts)} names for {len(values)} values")
            for item, part in zip(target.elts, values):
                self.bind_plain(item, part)
        else:
            self.fail(target, "expected a name")

    def iterate(self, node: ast.AST, value: Any) -> Iterable[Any]:
        """Return the items of a value that a program iterates over."""
        if self.scope.budget is not None:
            value = self.guard(node, self.scope.budget.parts_of, value)
        made: Iterable[Any] = self.guard(node, iter, value)
        return made

    def _generate(self, generators: list[ast.comprehension], give: Callable[[], None]) -> None:
        """Run the loops of a comprehension, calling ``give`` for each element."""
        if not generators:
            give()
            return
        first, *others = generators
        for value in self.iterate(first.iter, self.eval(first.iter)):
            self.scope.push()
            self.bind_plain(first.target, value)
            if all(self.eval(condition) for condition in first.ifs):
                self._generate(others, give)
            self.scope.pop()

    def _list_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Any:
        made: list[Any] = []
        self._generate(node.generators, lambda: made.append(self.eval(node.elt)))
        if not isinstance(node, ast.SetComp):
            return made
        for item in made:
            self._check_key(node, item)
        if self.scope.budget is not None:
            self.scope.budget.spend_keys(made)
        return self.guard(node, set, made)

    def _dict_comprehension(self, node: ast.DictComp) -> Any:
        made: dict[Any, Any] = {}

        def give() -> None:
            key = self._key(node.key)
            made[key] = self.eval(node.value)
            if self.scope.budget is not None and type(key) is not str:
                self.scope.budget.spend(len(made) >> 6)

        self._generate(node.generators, give)
        return made

    def _key(self, node: ast.expr) -> Any:
        key = self.eval(node)
        self._check_key(node, key)
        return key

    def _check_key(self, node: ast.AST, key: Any) -> None:
        if self.scope.budget is not None:
            self.guard(node, self.scope.budget.admit_key, key)
        self.guard(node, hash, key)

    def _lambda(self, node: ast.Lambda) -> Any:
        given = node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults or given.posonlyargs:
            self.fail(node, "a lambda in script takes plain parameters")
        scope = self.scope.inner()
        scope.frames = list(self.scope.frames)
        return Lambda(Evaluator(self.source, scope), node)

    def _format(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.eval(part)) for part in node.values)

    def _formatted(self, node: ast.FormattedValue) -> str:
        value = self.eval(node.value)
        specification = "" if node.format_spec is None else self.eval(node.format_spec)
        budget = self.scope.budget
        if node.conversion != -1:
            if budget is not None:
                budget.spend(budget.size(value))
            value = self.guard(node, _CONVERSIONS[chr(node.conversion)], value)
        if budget is not None:
            return self.guard(node, format_value, budget, value, specification)  # type: ignore[no-any-return]
        return self.guard(node, format, value, specification)  # type: ignore[no-any-return]

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        try:
            return self.scope.lookup(node.id)
        except KeyError:
            pass
        except ImportError as error:
            self.fail(node, f"the dialect {node.id} is not available: {error}", error)
        near = near_matches(node.id, self.scope.names())
        return self.fail(node, f"undefined variable {node.id!r}; {near}")

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.named(node.value)
        name = node.attr
        listed = self.scope.budget is None or may_name(value, name)
        if not listed:
            self.unknown_attribute(node, value)
        try:
            found = getattr(value, name)
        except AttributeError:
            self.unknown_attribute(node, value)
        except ImportError as error:
            self.fail(node, f"{ast.unparse(node)} is not available: {error}", error)
        except TilewrightError as error:
            self.fail(node, error.message, error)
        if self.scope.budget is not None and not may_be_named(found):
            self.fail(node, f"{ast.unparse(node)} can't be used in text from elsewhere")
        return found

    def named(self, node: ast.expr) -> Any:
        """Evaluate what stands before ``(`` or ``.``: there text may name functions and modules."""
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        return self.eval(node)

    def decorator(self, node: ast.expr) -> Any:
        """Evaluate what stands after ``@``."""
        if self.scope.budget is None:
            return self.eval(node)
        target = node.func if isinstance(node, ast.Call) else node
        if isinstance(target, ast.Attribute):
            owner = self.named(target.value)
            found = getattr(owner, target.attr, None) if may_name(owner, target.attr) else None
        else:
            found = self.named(target)
        if not isinstance(found, Decorator):
            return self.fail(node, f"`{ast.unparse(target)}` is no decorator such as T.prim_func")
        if not isinstance(node, ast.Call):
            return found
        if node.args:
            self.fail(node.args[0], "a decorator in text takes options by name")
        configure: Callable[..., Any] = found  # type: ignore[assignment]  # all of them take options
        return self.guard(node, configure, **self._options(node.keywords))

    def unknown_attribute(self, node: ast.Attribute, value: Any) -> None:
        """Raise the error for an attribute that is not there, with near matches."""
        names = [name for name in dir(value) if not name.startswith("_")]
        if self.scope.budget is not None:
            names = [name for name in names if may_name(value, name)]
        owner = ast.unparse(node.value)
        at = ast.Name(node.attr)
        at.lineno = at.end_lineno = node.end_lineno or node.lineno  # type: ignore[attr-defined]
        at.end_col_offset = node.end_col_offset  # type: ignore[attr-defined]
        at.col_offset = (node.end_col_offset or 0) - len(node.attr.encode())  # type: ignore[attr-defined]
        near = f"; {near_matches(node.attr, names)}" if names else ""
        self.fail(at, f"{owner} has no {node.attr!r}{near}")

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _list(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def _items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        made: list[Any] = []
        for item in nodes:
            if isinstance(item, ast.Starred):
                made.extend(self.iterate(item, self.eval(item.value)))
            else:
                made.append(self.eval(item))
        return made

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                made.update(self._mapping(value))
            else:
                name = self._key(key)
                if name in made:
                    self.fail(key, f"the key {name!r} is given twice")
                made[name] = self.eval(value)
        return made

    def add_attributes(
        self, node: ast.AST, attrs: dict[str, Any], added: Mapping[str, Any]
    ) -> None:
        """Add attributes that a statement states; each may be stated once."""
        for name, value in added.items():
            if not isinstance(name, str):
                self.fail(node, f"the name of an attribute is text, got {name!r}")
            if name in attrs:
                self.fail(node, f"the attribute {name!r} is given twice")
            if not is_printable(value):
                self.fail(node, f"the attribute {name!r} can't hold {value!r}")
            attrs[name] = value

    def _mapping(self, node: ast.expr) -> dict[Any, Any]:
        """Evaluate what stands after ``**``."""
        value = self.eval(node)
        if self.scope.budget is not None and type(value) is not dict:
            self.fail(node, "expected a dictionary")
        made: dict[Any, Any] = self.guard(node, dict, value)
        return made

    def _options(self, keywords: Sequence[ast.keyword]) -> dict[str, Any]:
        """Evaluate the arguments that are given by name."""
        made: dict[str, Any] = {}
        for keyword in keywords:
            found = (
                {keyword.arg: self.eval(keyword.value)}
                if keyword.arg is not None
                else self._mapping(keyword.value)
            )
            for name, value in found.items():
                if name in made:
                    self.fail(keyword.value, f"the argument {name!r} is given twice")
                made[name] = value
        return made

    def _slice(self, node: ast.Slice) -> slice:
        lower, upper, step = (
            None if part is None else self.eval(part)
            for part in (node.lower, node.upper, node.step)
        )
        return slice(lower, upper, step)

    def _subscript(self, node: ast.Subscript) -> Any:
        # What a name stands for was weighed when it was made; taking an item of it costs one step.
        plain = isinstance(node.value, ast.Name)
        value = self.named(node.value) if plain else self.eval(node.value)
        index = self.eval(node.slice)
        function = _SUBSCRIPTS.get(type(value))
        if function is None:
            if self.scope.budget is None:
                return self.guard(node, operator.getitem, value, index)
            return self.guard(node, item_of, self.scope.budget, value, index)
        return self.guard(node, function, value, index if isinstance(index, tuple) else (index,))

    def _call(self, node: ast.Call) -> Any:
        function = self.named(node.func)
        if not callable(function):
            self.fail(node.func, f"{ast.unparse(node.func)} can't be called")
        return self.call(node, function, self._items(node.args), self._options(node.keywords))

    def call(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function that the text names; dialects may override this."""
        return self.guard(node, function, *args, **kwargs)

    def _binary(self, node: ast.BinOp) -> Any:
        # Chains such as a + b + c are as deep as they are long: go down them without recursion.
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        value = to_value(self.eval(chain[-1].left))
        literal = _is_literal(chain[-1].left)
        for item in reversed(chain):
            value = self._combine(item, value, literal)
            literal = False
        return value

    def _combine(self, node: ast.BinOp, a: Any, literal: bool) -> Any:
        """Apply one operator; ``literal`` says whether the left operand stands in the text."""
        b = to_value(self.eval(node.right))
        op = type(node.op)
        if op in _ARITHMETIC and (isinstance(a, Expr) or isinstance(b, Expr)):
            stands = (isinstance(a, Expr) or literal) and (
                isinstance(b, Expr) or _is_literal(node.right)
            )
            try:
                return build_arithmetic(op, a, b, literal=stands)
            except TilewrightError as error:
                self.fail(node, error.message, error)
        if self.scope.budget is not None:
            return self.guard(
                node, apply_operator, self.scope.budget, op.__name__, _PYTHON_BINARY[op], a, b
            )
        return self.guard(node, _PYTHON_BINARY[op], a, b)

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = to_value(self.eval(node.operand))
        if isinstance(node.op, ast.Not):
            if not isinstance(value, Expr):
                return not value
            self.check_condition(node.operand, value)
            return Not(value)
        if isinstance(node.op, ast.USub):
            return self.guard(node, operator.neg, value)
        if isinstance(node.op, ast.Invert):
            return self.guard(node, operator.invert, value)
        return value

    def check_condition(self, node: ast.expr, value: Any) -> Expr:
        """Refuse what is not a truth value."""
        value = to_value(value)
        if isinstance(value, bool):
            return TRUE if value else FALSE
        if not isinstance(value, Expr) or dtypes.element_of(value.dtype) != "bool":
            found = value.dtype if isinstance(value, Expr) else type(value).__name__
            self.fail(node, f"a condition must be bool, got {found}; compare it with something")
        return value  # type: ignore[no-any-return]

    def _logic(self, node: ast.BoolOp) -> Any:
        conjunction = isinstance(node.op, ast.And)
        kind = And if conjunction else Or
        result: Any = None
        value: Any = None
        for part in node.values:
            value = to_value(self.eval(part))
            if isinstance(value, Expr):
                self.check_condition(part, value)
                result = value if result is None else kind(result, value)
            elif bool(value) is not conjunction:
                # A Python value decides the whole; as in Python, the rest is not evaluated.
                return value if result is None else (FALSE if conjunction else TRUE)
        return value if result is None else result

    def _compare(self, node: ast.Compare) -> Any:
        left = to_value(self.eval(node.left))
        result: Any = None
        for op, right_node in zip(node.ops, node.comparators):
            right = to_value(self.eval(right_node))
            made = self._compare_one(node, type(op), left, right)
            if result is None:
                result = made
            elif isinstance(result, Expr) or isinstance(made, Expr):
                result = And(as_expr(result), as_expr(made))
            else:
                result = result and made
            left = right
        return result

    def _compare_one(self, node: ast.Compare, op: type, a: Any, b: Any) -> Any:
        if op in _COMPARE and (isinstance(a, Expr) or isinstance(b, Expr)):
            return self.guard(node, build_compare, op, a, b)
        if self.scope.budget is not None:
            return self.guard(
                node, compare_values, self.scope.budget, op.__name__, _PYTHON_COMPARE[op], a, b
            )
        return self.guard(node, _PYTHON_COMPARE[op], a, b)

    def _conditional(self, node: ast.IfExp) -> Any:
        condition = to_value(self.eval(node.test))
        if not isinstance(condition, Expr):
            return self.eval(node.body if condition else node.orelse)
        self.check_condition(node.test, condition)
        return self.guard(
            node, if_then_else, condition, self.eval(node.body), self.eval(node.orelse)
        )


class Lambda:
    """A lambda of the text."""

    def __init__(self, evaluator: Evaluator, node: ast.Lambda) -> None:
        self._evaluator = evaluator
        self._node = node
        self._names = [item.arg for item in node.args.args]
        parameter = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, parameter) for name in self._names]
        )
        self.__name__ = "<lambda>"

    def __call__(self, *values: Any) -> Any:
        """Evaluate the body with these values for the parameters."""
        if len(values) != len(self._names):
            raise TypeError(f"the lambda takes {len(self._names)} arguments, got {len(values)}")
        scope = self._evaluator.scope
        scope.push()
        scope.frames[-1].update(zip(self._names, values))
        try:
            return self._evaluator.eval(self._node.body)
        finally:
            scope.pop()


register_values(Lambda)
register_values(Node)
register_values(Expr, attributes="dtype astype")


_UNSUPPORTED: Callable[[Evaluator, Any], Any] = Evaluator._unsupported
_DISPATCH: dict[type, Callable[[Evaluator, Any], Any]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Tuple: Evaluator._tuple,
    ast.List: Evaluator._list,
    ast.Dict: Evaluator._dict,
    ast.Slice: Evaluator._slice,
    ast.Subscript: Evaluator._subscript,
    ast.Call: Evaluator._call,
    ast.BinOp: Evaluator._binary,
    ast.UnaryOp: Evaluator._unary,
    ast.BoolOp: Evaluator._logic,
    ast.Compare: Evaluator._compare,
    ast.IfExp: Evaluator._conditional,
    ast.ListComp: Evaluator._list_comprehension,
    ast.GeneratorExp: Evaluator._list_comprehension,
    ast.SetComp: Evaluator._list_comprehension,
    ast.DictComp: Evaluator._dict_comprehension,
    ast.Lambda: Evaluator._lambda,
    ast.JoinedStr: Evaluator._format,
    ast.FormattedValue: Evaluator._formatted,
}
