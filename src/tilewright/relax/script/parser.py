"""Parses ``@R.function``: the statements of the dialect ``R``.

Extents in the header are text: ``R.Tensor(("n", 784), "float32")`` defines the symbolic extent
``n``, which the body then uses by name; ``"n * 2"`` is computed from such names. ``R.match_cast``
defines extents likewise.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilewright.ir import Expr, GlobalVar, IRModule, Var, set_span
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If
from tilewright.relax.closures import invoke_closure
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    LocalFunction,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_atom,
)
from tilewright.relax.script.declarations import (
    Dataflow,
    EmitTE,
    FunctionAttrs,
    Info,
    MatchCastDecl,
    Output,
    info_or_none,
    is_symbol_declaration,
)
from tilewright.relax.struct_info import StructInfo
from tilewright.relax.values import as_relax
from tilewright.script.diagnostics import Source
from tilewright.script.evaluation import Method
from tilewright.script.evaluator import Evaluator
from tilewright.script.ir import (
    MetaVar,
    ModuleReference,
    add_function,
    free_name,
    functions_of,
    parsed_function,
)
from tilewright.script.parser import Configured, FunctionDecorator, parse_function
from tilewright.script.scope import Scope
from tilewright.tir.attrs import IMPURE
from tilewright.tir.script import Macro

_MOST_MACROS = 50


class GraphParser(Evaluator):
    """Parses one function."""

    def __init__(self, source: Source, scope: Scope) -> None:
        super().__init__(source, scope)
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.attrs: dict[str, Any] = {}
        self.outputs: set[str] | None = None
        self.names: set[str] = set()
        self.of_branches: dict[str, Var] = {}
        """Extents that branches have defined: one of the same name, elsewhere, is the same one."""
        self.rest: Sequence[ast.stmt] = ()
        self.expanding = 0

    # ---- header -----------------------------------------------------------------------------

    def parse(self, node: ast.FunctionDef) -> Function:
        """Parse a function definition."""
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            self.fail(node, "a graph function takes parameters by position, without defaults")
        infos: list[tuple[ast.arg, Any]] = []
        self.check_parameters(arguments)
        for item in arguments.args:
            if item.annotation is None:
                self.fail(item, f"parameter {item.arg!r} needs an annotation such as R.Tensor(...)")
                raise AssertionError
            infos.append((item, self.annotation(item.annotation)))
        for _, info in infos:
            for symbol in info.symbols():
                self.define_symbol(symbol)
        params = []
        for item, info in infos:
            assert item.annotation is not None
            var = RelaxVar(item.arg, self.resolve(item.annotation, info))
            self.scope.define(item.arg, var)
            params.append(var)
        body = self.suite(node)
        result: StructInfo | None = None
        if node.returns is not None:
            result = self.resolve(node.returns, self.annotation(node.returns))
        return Function(tuple(params), body, result or body.struct_info, attrs=self.attrs)

    def annotation(self, node: ast.expr) -> Info:
        """The declared struct info of a parameter or a variable."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = self.parse_text(node, node.value)
        value = self.eval(node)
        info = info_or_none(value)
        if info is not None:
            return info
        return self.fail(node, "expected R.Tensor, R.Shape, R.Tuple, R.Prim or R.Object")  # type: ignore[no-any-return]

    def define_symbol(self, name: str) -> None:
        """Define a symbolic size on its first use in a declaration."""
        try:
            known = self.scope.lookup(name)
        except KeyError:
            known = None
        if not (isinstance(known, Var) and known.name == name and name in self.names):
            self.scope.define(name, self.of_branches.get(name, Var(name)))
            self.names.add(name)

    def resolve(self, node: ast.expr, info: Info) -> StructInfo:
        """Turn a declaration into struct info, looking up extents given as text."""
        made: StructInfo = self.guard(node, info.resolve, lambda text: self.extent(node, text))
        return made

    def extent(self, node: ast.expr, text: str) -> Expr:
        """An extent that is given as text."""
        return self.eval_expr(self.parse_text(node, text))

    # ---- body -------------------------------------------------------------------------------

    def suite(self, node: ast.FunctionDef) -> SeqExpr:
        """The function's body; its last statement returns."""
        result: RelaxExpr | None = None
        for position, stmt in enumerate(node.body):
            if result is not None:
                self.fail(stmt, "nothing may follow return")
            if isinstance(stmt, ast.Return):
                if stmt.value is None:
                    self.fail(stmt, "a graph function returns a value")
                    raise AssertionError
                result = self.value(stmt.value)
                if not is_atom(result):
                    result = self.bind("gv", result, None, stmt)
            elif isinstance(stmt, ast.With):
                self.dataflow(stmt)
            else:
                self.statement(stmt, node.body[position + 1 :])
        if result is None:
            self.fail(node, "a graph function ends with return")
            raise AssertionError
        self.close(BindingBlock)
        return SeqExpr(tuple(self.blocks), result)

    def close(self, kind: type[BindingBlock]) -> None:
        """End the open block of bindings, if it has any."""
        if self.bindings:
            self.blocks.append(kind(tuple(self.bindings)))
            self.bindings = []

    def dataflow(self, node: ast.With) -> None:
        """A block without effects, and which of its variables are visible outside."""
        if len(node.items) != 1 or not isinstance(self.eval(node.items[0].context_expr), Dataflow):
            self.fail(node, "only R.dataflow() can stand after with")
        self.close(BindingBlock)
        self.outputs = set()
        last = node.body[-1]
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            # Which variables leave the block is needed before they are bound.
            self.outputs = {arg.id for arg in last.value.args if isinstance(arg, ast.Name)}
        for stmt in node.body:
            self.statement(stmt)
        self.outputs = None
        self.close(DataflowBlock)

    def statement(self, node: ast.stmt, rest: Sequence[ast.stmt] = ()) -> None:
        """One statement of the body, with those that follow it; errors point at it."""
        self.rest = rest
        self.guarded_statement(node, self._statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Pass):
            return
        if isinstance(node, ast.If):
            self.branches(node, self.rest)
            return
        if isinstance(node, ast.FunctionDef):
            self.local_function(node)
            return
        if isinstance(node, ast.Expr):
            self.expression(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is None:
                self.fail(node, f"{node.target.id} needs a value")
                raise AssertionError
            self.assign(node.target, self.annotation(node.annotation), node.value, node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)):
                self.unpack(target, node)
                return
            if not isinstance(target, ast.Name):
                self.fail(target, "expected a name")
                raise AssertionError
            self.assign(target, None, node.value, node)
        else:
            self.fail(node, f"{type(node).__name__} is not part of the dialect R")

    def branches(self, node: ast.If, rest: Sequence[ast.stmt]) -> None:
        """An ``If``: a variable that both branches bind and the rest reads, else the last one.

        If the rest reads several of them, they are items of a tuple.
        """
        if self.outputs is not None:
            self.fail(node, "an if doesn't belong in a dataflow block")
        condition = self.value(node.test)
        condition = self.atom(condition, node.test)
        first, second = _bound_names(node.body), _bound_names(node.orelse)
        read = self.names_read(rest)
        names = [name for name in first if name in second and name in read]
        if not names and first and second and first[-1] == second[-1]:
            names = first[-1:]
        if not names:
            self.fail(
                node, "both branches of an if must bind the variable that is its result: `y = ...`"
            )
        made = [self.branch(body, names, node) for body in (node.body, node.orelse)]
        value = self.guard(node, If, condition, *made)
        if len(names) == 1:
            self.bind(names[0], value, None, node)
            return
        whole = self.bind("_".join(names), value, None, node)
        for position, name in enumerate(names):
            self.bind(name, TupleGetItem(whole, position), None, node)

    def branch(self, body: Sequence[ast.stmt], names: Sequence[str], node: ast.If) -> SeqExpr:
        """One branch; its result is what it binds to the names at last."""
        outer = self.blocks, self.bindings
        self.blocks, self.bindings = [], []
        self.scope.push()
        known = set(self.names)
        for position, stmt in enumerate(body):
            if isinstance(stmt, ast.With):
                self.dataflow(stmt)
            elif (
                stmt is body[-1] and len(names) == 1 and _bound_names([stmt]) == list(names)
                and isinstance(stmt, (ast.Assign, ast.AnnAssign))
            ):  # fmt: skip
                self.statement(stmt, ())
                self.drop_alias(names[0])
            else:
                # What follows in the branch reads, and so does what comes after the If.
                after = [*body[position + 1 :], *(ast.Expr(ast.Name(n, ast.Load())) for n in names)]
                self.statement(stmt, after)
        made = tuple(self.to_value(self.scope.lookup(name), node.test) for name in names)
        self.close(BindingBlock)
        result = SeqExpr(tuple(self.blocks), made[0] if len(made) == 1 else Tuple(made))
        defined = ((name, self.scope.lookup(name)) for name in self.names - known)
        self.of_branches.update((name, var) for name, var in defined if isinstance(var, Var))
        self.names = known
        self.scope.pop()
        self.blocks, self.bindings = outer
        return result

    def names_read(self, body: Sequence[ast.stmt]) -> set[str]:
        """Names that statements read before they bind them."""
        read: set[str] = set()
        bound: set[str] = set()
        for stmt in body:
            nodes = list(ast.walk(stmt))
            if self.scope.budget is not None:
                self.scope.budget.spend(len(nodes))
            names = (item for item in nodes if isinstance(item, ast.Name))
            read |= {item.id for item in names if isinstance(item.ctx, ast.Load)} - bound
            bound.update(_bound_names([stmt]))
        return read

    def drop_alias(self, name: str) -> None:
        """Let the name of a branch's result stand for the value, if that needs no variable."""
        last = self.bindings[-1] if self.bindings else None
        if isinstance(last, VarBinding) and last.var.name == name and is_atom(last.value):
            self.bindings.pop()
            self.scope.define(name, last.value)

    def local_function(self, node: ast.FunctionDef) -> None:
        """A function inside of this one."""
        made = parse_function(self, node)
        if not isinstance(made, Function):
            self.fail(node, "a function inside of a graph function is an R.function")
            raise AssertionError
        self.bind(node.name, LocalFunction(made), None, node)

    def expression(self, node: ast.Expr) -> None:
        """A statement that is a call: of function attributes, or for its effect."""
        value = self.eval(node.value)
        if isinstance(value, FunctionAttrs):
            self.add_attributes(node, self.attrs, value.attrs)
        elif isinstance(value, Output):
            if self.outputs is None:
                self.fail(node, "R.output belongs at the end of a dataflow block")
        elif isinstance(value, RelaxCall):
            self.bind("_", value, None, node)
        elif not isinstance(value, str):
            self.fail(node, "expected a binding, R.func_attr or R.output")

    def assign(
        self, target: ast.Name, info: Info | None, value_node: ast.expr, node: ast.stmt
    ) -> None:
        """A binding, a symbolic size or a Python value, depending on the right-hand side."""
        value = self.eval(value_node)
        if isinstance(value, (ModuleReference, MetaVar)) and info is None:
            # `cls = Module` is a name, no binding
            self.scope.define(target.id, value.value if isinstance(value, MetaVar) else value)
            return
        self.assign_value(target, info, value, value_node, node)

    def unpack(self, target: ast.Tuple | ast.List, node: ast.Assign) -> None:
        """``a, b = value``: sizes, values, or the items of a tuple of the graph."""
        value = self.eval(node.value)
        if isinstance(value, RelaxExpr) and not isinstance(value, Tuple):
            whole = self.atom(value, node)
            count = len(getattr(whole.struct_info, "fields", ()))
            value = [TupleGetItem(whole, position) for position in range(count)]
        parts = value.fields if isinstance(value, Tuple) else getattr(value, "items", value)
        if not isinstance(parts, (tuple, list)) or len(parts) != len(target.elts):
            self.fail(target, f"{len(target.elts)} names for a value of another number of items")
        for name, part in zip(target.elts, parts):
            if not isinstance(name, ast.Name):
                self.fail(name, "expected a name")
                raise AssertionError
            self.assign_value(name, None, part, node.value, node)

    def assign_value(
        self, target: ast.Name, info: Info | None, value: Any, value_node: ast.expr, node: ast.stmt
    ) -> None:
        """Bind a value that has been evaluated."""
        if is_symbol_declaration(value):
            # `n = T.int64()`: the header has defined it already, or it is new.
            if target.id not in self.names:
                self.scope.define(target.id, Var(target.id, value.dtype))
                self.names.add(target.id)
            return
        if isinstance(value, MatchCastDecl):
            self.match_cast(target.id, value, value_node, node)
            return
        made = self.to_value(value, value_node)
        declared = None if info is None else self.resolve(value_node, info)
        self.bind(target.id, made, declared, node)

    def value(self, node: ast.expr) -> RelaxExpr:
        """An expression of the graph."""
        return self.to_value(self.eval(node), node)

    def to_value(self, value: object, node: ast.expr) -> RelaxExpr:
        """A Python value as an expression of the graph."""
        if isinstance(value, MatchCastDecl):
            return self.match_cast("lv", value, node, node)
        made: RelaxExpr = self.guard(node, as_relax, value)
        return self.normal(made, node)

    # ---- calls of the module's functions ---------------------------------------------------

    def _graph_call(self, node: ast.Call) -> Any:
        """A call; graph functions of the module, and those that variables hold, are called so."""
        function = self.named(node.func)
        if isinstance(function, Macro):
            return self.expand(node, function)
        if not isinstance(function, (GlobalVar, RelaxVar)):
            made = super()._call(node)
            return self.tensor_code(made, node) if isinstance(made, EmitTE) else made
        if node.keywords:
            self.fail(node, "a graph function takes its arguments by position")
        args = [self.atom(self.to_value(value, node), node) for value in self._items(node.args)]
        if isinstance(function, RelaxVar):
            return self.guard(node, invoke_closure, function, args)
        module = self.module(node)
        callee = self.guard(node, parsed_function, module, function.name)
        if not isinstance(callee, Function):
            self.fail(
                node, f"{function.name} is no graph function; call it by R.call_tir(cls."
                f"{function.name}, args, out_sinfo=R.Tensor(...))"
            )  # fmt: skip
        builder = BlockBuilder(IRModule({function.name: callee}))
        return self.guard(node, builder.call_function, function, *args)

    def expand(self, node: ast.Call, macro: Macro) -> RelaxExpr:
        """Write what a macro binds here, and return what it returns."""
        if self.expanding == _MOST_MACROS:
            self.fail(node, f"macros call each other more than {_MOST_MACROS} deep")
        values = self.guard(node, macro.bind, self._items(node.args), self._options(node.keywords))
        outer = self.source, self.scope, self.outputs, self.rest
        seen: Mapping[str, Any] = macro.captured
        if not macro.hygienic:
            seen = {**seen, **self.scope.flatten()}
        self.source, self.scope = macro.source, Scope(seen, macro.budget)
        # What a macro binds leaves no block by its name.
        self.outputs = None if self.outputs is None else set()
        self.expanding += 1
        *body, last = macro.node.body
        for name in macro.parameters:
            given = values[name] if name in values else self.eval(macro.defaults[name])
            self.scope.define(name, given)
        for position, stmt in enumerate(body):
            self.statement(stmt, [*body[position + 1 :], last])
        if not isinstance(last, ast.Return) or last.value is None:
            self.fail(last, "a macro of graphs ends with return, of a value")
            raise AssertionError
        result = self.value(last.value)
        self.expanding -= 1
        self.source, self.scope, self.outputs, self.rest = outer
        return result

    def module(self, node: ast.AST) -> ModuleReference:
        """The module that the function stands in."""
        try:
            found = self.scope.lookup("cls")
        except KeyError:
            found = None
        if not isinstance(found, ModuleReference):
            self.fail(node, "this needs a module: put the function into a class of @I.ir_module")
            raise AssertionError
        return found

    def tensor_code(self, value: EmitTE, node: ast.expr) -> RelaxExpr:
        """The call of a new function of the module, which ``te`` code computes."""
        module = self.module(node)
        known = {k: f for k, f in functions_of(module).items() if not isinstance(f, Function)}
        builder = BlockBuilder(IRModule(known))
        options: dict[str, Any] = dict(value.options)
        hint = str(options.pop("primfunc_name_hint", getattr(value.function, "__name__", "te")))
        options["primfunc_name_hint"] = free_name(module, "te" if hint == "<lambda>" else hint)
        made: Function = self.guard(
            node,
            builder.build_function,
            (),
            lambda: builder.emit(builder.call_te(value.function, *value.args, **options)),
        )
        for name, function in builder.get().functions.items():
            if name not in known:
                add_function(module, name, function)
        *checks, last = made.bindings
        self.bindings.extend(checks)
        assert isinstance(last, VarBinding)
        return last.value

    def normal(self, value: RelaxExpr, node: ast.AST) -> RelaxExpr:
        """Bind operands that are calls themselves."""
        if is_atom(value):
            return value
        return value.map_children(
            lambda item: self.atom(item, node) if isinstance(item, RelaxExpr) else item
        )

    def atom(self, value: RelaxExpr, node: ast.AST) -> RelaxExpr:
        """A value that may be an operand: anything else is bound to a variable first."""
        if is_atom(value):
            return value
        if isinstance(value, Tuple):
            return Tuple(tuple(self.atom(item, node) for item in value.fields))
        return self.bind("lv", self.normal(value, node), None, node)

    def bind(self, name: str, value: RelaxExpr, info: StructInfo | None, node: ast.AST) -> RelaxVar:
        """Bind a value to a new variable of that name, and return the variable."""
        var = self.variable(name, value.struct_info if info is None else info)
        binding = VarBinding(var, value)
        set_span(binding, self.source.span(node))
        self.bindings.append(binding)
        return var

    def variable(self, name: str, info: StructInfo) -> RelaxVar:
        """A new variable: local to its dataflow block unless that outputs it."""
        local = self.outputs is not None and name not in self.outputs
        var = (DataflowVar if local else RelaxVar)(name, info)
        self.scope.define(name, var)
        return var

    def match_cast(
        self, name: str, value: MatchCastDecl, value_node: ast.expr, node: ast.AST
    ) -> RelaxVar:
        """Bind a value to a new variable of the struct info that is cast to."""
        for symbol in value.info.symbols():
            self.define_symbol(symbol)
        info = self.resolve(value_node, value.info)
        operand = self.atom(self.to_value(value.value, value_node), node)
        var = self.variable(name, info)
        binding = MatchCast(var, operand, info)
        set_span(binding, self.source.span(node))
        self.bindings.append(binding)
        return var

    METHODS: ClassVar[Mapping[type, Method]] = {**Evaluator.METHODS, ast.Call: _graph_call}


def _bound_names(body: Sequence[ast.stmt]) -> list[str]:
    """Names that statements bind where others see them, the one bound last at the end."""
    found: dict[str, None] = {}
    for stmt in body:
        names: list[str] = []
        if isinstance(stmt, ast.Assign):
            targets = [t for item in stmt.targets for t in getattr(item, "elts", [item])]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        elif isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name):
            names = [stmt.target.id]
        elif isinstance(stmt, ast.If):
            second = _bound_names(stmt.orelse)
            names = [name for name in _bound_names(stmt.body) if name in second]
        elif isinstance(stmt, ast.With) and isinstance(stmt.body[-1], ast.Expr):
            call = stmt.body[-1].value
            args = call.args if isinstance(call, ast.Call) else []
            names = [arg.id for arg in args if isinstance(arg, ast.Name)]
        for name in names:
            found.pop(name, None)
            found[name] = None
    return list(found)


class _GraphFunctionDecorator(FunctionDecorator):
    """``@R.function``."""

    priority = 1

    def __call__(
        self,
        f: Any = None,
        pure: bool = True,
        private: bool = False,
        check_well_formed: bool = True,
        **options: Any,
    ) -> Any:
        """Decorate a Python function, or keep options for it.

        ``private`` says nothing here: functions are called by their module's names.
        """
        given = {"pure": pure, "private": private, "check_well_formed": check_well_formed}
        configured = Configured(self, {**given, **options})
        return configured if f is None else configured.decorate(f, depth=2)

    def parse_function(
        self, source: Source, node: ast.FunctionDef, scope: Scope, options: Mapping[str, object]
    ) -> Function:
        unknown = set(options) - {"name", "pure", *_OPTIONS}
        if unknown:
            source.fail(node, f"R.function takes name= and pure=, got {', '.join(sorted(unknown))}")
        made = GraphParser(source, scope).parse(node)
        return made if options.get("pure", True) else made.with_attr(IMPURE, True)


_OPTIONS = {"private", "check_well_formed"}
"""Options of TVM's decorator. All functions are checked, and are called by their module's names."""

function = _GraphFunctionDecorator()
