"""Python functions on numbers and arrays, translated into LLVM's instructions.

Compilers of the whole language take ten times as long: here the kinds of values follow from the arguments,
and what the loops of this package do not need is refused. There are

- 64-bit integers, float64, truth values, vectors of `simd`, arrays in C order, and tuples of these, with or
  without names; a variable keeps the kind of its first value;
- assignments, conditions, loops over `range` or while something holds, calls of `inner` and generated
  functions, `min`, `max`, `abs`, `len`, square roots, exponentials and logarithms.

The meaning is Python's, but indices are not tested: they must lie within their array. A condition that is
constant decides what is translated. Loops over a tuple are unrolled, and so are lists, which become tuples.
"""

# ruff: noqa: D102 (methods are named after the kinds of syntax that they translate)

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
import textwrap
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, NoReturn

from llvmlite import ir

INT = ir.IntType(64)
FLOAT = ir.DoubleType()
BOOL = ir.IntType(1)
_BYTE = ir.IntType(8)
# What is in memory for a number of each of NumPy's types.
STORED = {"<f8": FLOAT, "<f4": ir.FloatType(), "<i8": INT, "|b1": _BYTE}
_FUNCTIONS = {abs: "fabs", math.sqrt: "sqrt", math.log: "log", math.exp: "exp"}
# What Python and the builder do for integers and for floats.
_OPERATORS: dict[type[ast.operator], tuple[Callable[[Any, Any], Any], str, str]] = {
    ast.Add: (operator.add, "add", "fadd"),
    ast.Sub: (operator.sub, "sub", "fsub"),
    ast.Mult: (operator.mul, "mul", "fmul"),
    ast.Div: (operator.truediv, "", "fdiv"),
    ast.FloorDiv: (operator.floordiv, "floor", ""),
    ast.Mod: (operator.mod, "rest", ""),
    ast.LShift: (operator.lshift, "shl", ""),
    ast.RShift: (operator.rshift, "ashr", ""),
    ast.BitAnd: (operator.and_, "and_", ""),
    ast.BitOr: (operator.or_, "or_", ""),
    ast.Pow: (operator.pow, "", ""),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[Callable[[Any, Any], bool], str]] = {
    ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, "<="),
    ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, ">="),
    ast.Eq: (operator.eq, "=="),
    ast.NotEq: (operator.ne, "!="),
}


class Inner:
    """A function that compiled functions call: its code becomes a part of theirs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = f"{function.__module__}.{function.__name__}"

    def __call__(self, *arguments: Any) -> Any:
        """Call the function as it is."""
        return self.function(*arguments)

    @cached_property
    def tree(self) -> Any:
        """The function's syntax."""
        lines, first = inspect.getsourcelines(self.function)
        return ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))).body[0], first - 1)

    @cached_property
    def scope(self) -> Mapping[str, Any]:
        """What names mean that the function does not define."""
        outer = dict(inspect.getclosurevars(self.function).nonlocals)
        return ChainMap(outer, self.function.__globals__, vars(builtins))


inner = Inner  # the name of the decorator


class Generated(NamedTuple):
    """A function for compiled code whose instructions ``emit(builder, *arguments)`` generates.

    Arrays are passed to `emit` as pointers to their numbers.
    """

    emit: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Generate the instructions at the position of a builder, the first argument."""
        return self.emit(*arguments)


class Array(NamedTuple):
    """An array in translated code."""

    pointer: Any
    stored: ir.Type  # what a number is in memory
    shape: tuple[Any, ...]


class _Slot(NamedTuple):
    """The memory of a number, which LLVM turns into registers."""

    pointer: Any
    kind: ir.Type


class _Variable(NamedTuple):
    """A name whose value is in memory."""

    slots: Any


class Translation(ast.NodeVisitor):
    """Translates a call of a function with the given values, at the position of a builder."""

    def __init__(self, builder: ir.IRBuilder, function: Inner, arguments: Sequence[Any]) -> None:
        self._build, self._function = builder, function
        self._names: dict[str, Any] = {}
        self._loops: list[tuple[Any, ...]] = []  # where `continue` and `break` go
        self._result: Any = None
        names = [node for node in ast.walk(function.tree) if isinstance(node, ast.Name)]
        self._assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for parameter, value in zip(function.tree.args.args, arguments, strict=True):
            if parameter.arg in self._assigned:
                self._assign_name(parameter.arg, value)
            else:
                self._names[parameter.arg] = value

    def translate(self) -> Any:
        """Generate the instructions, and return the value of the function."""
        self._end = self._build.append_basic_block("end")
        self._run(self._function.tree.body)
        if not self._build.block.is_terminated:
            self._build.branch(self._end)
        self._build.position_at_end(self._end)
        return None if self._result is None else self._loaded(self._result)

    # ------------------------------------------------------------ statements

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._build.block.is_terminated:
                return
            try:
                self.visit(statement)
            except NotImplementedError:
                raise
            except Exception as error:
                where = f"{self._function.name}, line {statement.lineno}"
                raise NotImplementedError(f"{where}, cannot be compiled: {error}") from error

    def generic_visit(self, node: ast.AST) -> NoReturn:
        """Refuse what is not known."""
        raise TypeError(f"{type(node).__name__} is not among what can be translated")

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self._assign(target, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        found = self._combined(type(node.op), self.visit(node.target), self.visit(node.value))
        self._assign(node.target, found)

    def visit_If(self, node: ast.If) -> None:
        test = self._truth(self.visit(node.test))
        if isinstance(test, bool):
            return self._run(node.body if test else node.orelse)
        with self._build.if_else(test) as branches:
            for branch, statements in zip(branches, (node.body, node.orelse), strict=True):
                with branch:
                    self._run(statements)

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            self.generic_visit(node.orelse[0])
        test, body, after = self._blocks(3)
        self._build.branch(test)
        self._build.position_at_end(test)
        self._build.cbranch(self._number(self._truth(self.visit(node.test))), body, after)
        self._build.position_at_end(body)
        self._repeat(node.body, test, after)

    def visit_For(self, node: ast.For) -> None:
        if node.orelse:
            self.generic_visit(node.orelse[0])
        if not isinstance(node.iter, ast.Call) or self.visit(node.iter.func) is not range:
            self._loops.append(())  # an unrolled loop cannot be left
            for value in self._values(node.iter):
                self._bind(node.target, value)
                self._run(node.body)
            self._loops.pop()
            return
        bounds = [self.visit(each) for each in node.iter.args]
        first, last, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        # A step that is not constant must be positive.
        sign = ">" if isinstance(step, int) and step < 0 else "<"
        stop, before = self._number(last), self._build.block
        test, body, again, after = self._blocks(4)
        self._build.branch(test)
        self._build.position_at_end(test)
        counter = self._build.phi(INT)
        counter.add_incoming(self._number(first), before)
        self._build.cbranch(self._build.icmp_signed(sign, counter, stop), body, after)
        self._build.position_at_end(again)
        counter.add_incoming(self._build.add(counter, self._number(step), flags=["nsw"]), again)
        self._build.branch(test)
        self._build.position_at_end(body)
        self._assign(node.target, counter)
        self._repeat(node.body, again, after)

    def _repeat(self, statements: Sequence[ast.stmt], again: Any, after: Any) -> None:
        self._loops.append((again, after))
        self._run(statements)
        self._loops.pop()
        if not self._build.block.is_terminated:
            self._build.branch(again)
        self._build.position_at_end(after)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._build.branch(self._loops[-1][0])

    def visit_Break(self, node: ast.Break) -> None:
        self._build.branch(self._loops[-1][1])

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._result = self._stored(self._result, self.visit(node.value))
        self._build.branch(self._end)

    def _blocks(self, count: int) -> list[Any]:
        return [self._build.append_basic_block() for _ in range(count)]

    # ------------------------------------------------------------ variables

    def _stored(self, slots: Any, value: Any) -> Any:
        """Store a value in memory that is made for the first one, and return where that is."""
        if isinstance(value, Array):
            if slots and slots[0] != value.stored:
                raise TypeError("an array of other numbers is assigned to a name")
            return value.stored, self._stored(slots and slots[1], (value.pointer, *value.shape))
        if isinstance(value, tuple):
            pairs = zip(slots or [None] * len(value), value, strict=True)
            return tuple(self._stored(*pair) for pair in pairs)
        value = self._number(value)
        if slots is None:
            with self._build.goto_entry_block():
                slots = _Slot(self._build.alloca(value.type), value.type)
        self._build.store(self._as(value, slots.kind), slots.pointer)
        return slots

    def _loaded(self, slots: Any) -> Any:
        if isinstance(slots, _Slot):
            return self._build.load(slots.pointer)
        if isinstance(slots[0], ir.Type):
            pointer, *shape = self._loaded(slots[1])
            return Array(pointer, slots[0], tuple(shape))
        return tuple(self._loaded(each) for each in slots)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target.id, value)
        elif isinstance(target, ast.Tuple):
            for each, part in zip(target.elts, value, strict=True):
                self._assign(each, part)
        elif isinstance(target, ast.Subscript):
            part = self._part(self.visit(target.value), self.visit(target.slice))
            value, stored = self._number(value), part.stored
            if part.shape:
                raise TypeError("only numbers of arrays are assigned")
            if stored == _BYTE:
                value = self._build.zext(self._as(value, BOOL), _BYTE)
            self._build.store(self._as(value, stored), part.pointer)
        else:
            self.generic_visit(target)

    def _assign_name(self, name: str, value: Any) -> None:
        held = self._names.get(name)
        if value is None or (hasattr(value, "_fields") and not isinstance(value, Array)):
            if held is not None:
                raise TypeError(f"{name} has a value already")
            self._names[name] = value
        else:
            self._names[name] = _Variable(self._stored(held.slots if held else None, value))

    def _bind(self, target: ast.expr, value: Any) -> None:
        """Name a value that stays as it is."""
        parts = zip(target.elts, value, strict=True) if isinstance(target, ast.Tuple) else [(target, value)]
        self._names |= {name.id: part for name, part in parts}  # type: ignore[attr-defined]

    # ------------------------------------------------------------ expressions
    #
    # Their values are LLVM's, Python's if they are constant, or tuples of these.

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        found = self._names.get(node.id)
        if isinstance(found, _Variable):
            return self._loaded(found.slots)
        if node.id in self._names:
            return found
        if node.id in self._assigned:
            raise TypeError(f"{node.id} has no value yet")
        return self._function.scope[node.id]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.visit(node.value), node.attr)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.visit(each) for each in node.elts)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        if any(each.ifs for each in node.generators):
            self.generic_visit(node)
        found, outer = [], self._names
        for values in product(*(self._values(each.iter) for each in node.generators)):
            self._names = {**outer}  # names inside are not seen outside
            for each, value in zip(node.generators, values, strict=True):
                self._bind(each.target, value)
            found.append(self.visit(node.elt))
        self._names = outer
        return tuple(found)

    def _values(self, node: ast.expr) -> Any:
        values = self.visit(node)
        if isinstance(values, Array) or not isinstance(values, tuple | list):
            raise TypeError("loops are over ranges or tuples")
        return values

    def visit_Slice(self, node: ast.Slice) -> Any:
        return slice(*(each and self.visit(each) for each in (node.lower, node.upper, node.step)))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        index, held = self.visit(node.slice), self._names.get(getattr(node.value, "id", ""))
        if isinstance(index, int) and isinstance(held, _Variable) and not isinstance(held.slots[0], ir.Type):
            return self._loaded(held.slots[index])
        whole = self.visit(node.value)
        if not isinstance(whole, Array):
            return whole[index]
        part = self._part(whole, index)
        if part.shape:
            return part
        found = self._build.load(part.pointer)
        if part.stored == _BYTE:
            return self._build.icmp_signed("!=", found, _BYTE(0))
        if part.stored == STORED["<f4"]:
            return self._build.fpext(found, FLOAT)
        return found

    def _part(self, array: Array, index: Any) -> Array:
        """Return the part of an array at indices of its first axes, or in a slice of its only axis."""
        if isinstance(index, slice):
            (length,), first = array.shape, self._number(index.start or 0)
            if index.step is not None:
                raise TypeError("slices have no steps")
            length = self._build.sub(length if index.stop is None else self._number(index.stop), first)
            return Array(self._build.gep(array.pointer, [first]), array.stored, (length,))
        indices, place = index if isinstance(index, tuple) else (index,), INT(0)
        if len(indices) > len(array.shape) or any(isinstance(each, int) and each < 0 for each in indices):
            raise TypeError("an index is negative, or there are too many")
        for axis, length in enumerate(array.shape):
            place = self._build.mul(place, length)
            if axis < len(indices):
                place = self._build.add(place, self._as(self._number(indices[axis]), INT))
        return Array(self._build.gep(array.pointer, [place]), array.stored, array.shape[len(indices) :])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            truth = self._truth(value)
            return not truth if isinstance(truth, bool) else self._build.not_(truth)
        if not isinstance(node.op, ast.USub):
            self.generic_visit(node.op)
        if not isinstance(value, ir.Value):
            return -value
        return self._build.fneg(value) if value.type == FLOAT else self._build.neg(self._as(value, INT))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self._combined(type(node.op), self.visit(node.left), self.visit(node.right))

    def _combined(self, kind: type[ast.operator], a: Any, b: Any) -> Any:
        in_python, of_integers, of_floats = _OPERATORS[kind]
        if _are_constant(a, b):
            return in_python(a, b)
        if kind is ast.Pow and b == 2:
            return self._combined(ast.Mult, a, a)
        one, other = self._alike(a, b, FLOAT if kind is ast.Div else BOOL)
        if one.type == BOOL and of_integers not in ("and_", "or_"):
            one, other = self._as(one, INT), self._as(other, INT)
        if of_integers in ("floor", "rest"):
            return self._divided(one, other)[of_integers == "rest"]
        return getattr(self._build, of_floats if one.type == FLOAT else of_integers)(one, other)

    def _divided(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Return ⌊a / b⌋ and what is left."""
        build, quotient, rest = self._build, self._build.sdiv(a, b), self._build.srem(a, b)
        signs_differ = build.icmp_signed("<", build.xor(rest, b), INT(0))
        below = build.and_(build.icmp_signed("!=", rest, INT(0)), signs_differ)
        return build.sub(quotient, build.zext(below, INT)), build.select(below, build.add(rest, b), rest)

    def visit_Compare(self, node: ast.Compare) -> Any:
        values, found = [self.visit(each) for each in (node.left, *node.comparators)], True
        for kind, a, b in zip(node.ops, values, values[1:], strict=False):
            one = self._compared(type(kind), a, b)
            found = one if found is True else self._combined(ast.BitAnd, found, one)
        return found

    def _compared(self, kind: type[ast.cmpop], a: Any, b: Any) -> Any:
        if kind in (ast.Is, ast.IsNot):
            return (a is b) == (kind is ast.Is)
        in_python, sign = _COMPARISONS[kind]
        if _are_constant(a, b):
            return in_python(a, b)
        one, other = self._alike(a, b, INT)
        if one.type == INT:
            return self._build.icmp_signed(sign, one, other)
        return (self._build.fcmp_unordered if sign == "!=" else self._build.fcmp_ordered)(sign, one, other)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        def decided(nodes: Sequence[ast.expr]) -> Any:
            truth = self.visit(nodes[0])
            if self._number(truth).type != BOOL:
                raise TypeError("a number is given for a truth value")
            if not nodes[1:]:
                return truth
            if isinstance(node.op, ast.Or):
                return self._either(truth, lambda: True, lambda: decided(nodes[1:]))
            return self._either(truth, lambda: decided(nodes[1:]), lambda: False)

        return decided(node.values)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self._truth(self.visit(node.test))
        return self._either(test, lambda: self.visit(node.body), lambda: self.visit(node.orelse))

    def _either(self, test: Any, *ways: Callable[[], Any]) -> Any:
        if isinstance(test, bool):
            return ways[not test]()
        slots = None
        with self._build.if_else(test) as branches:
            for branch, way in zip(branches, ways, strict=True):
                with branch:
                    slots = self._stored(slots, way())
        return self._loaded(slots)

    def visit_Call(self, node: ast.Call) -> Any:
        function, given = self.visit(node.func), [self.visit(each) for each in node.args]
        if node.keywords:
            self.generic_visit(node.keywords[0])
        if isinstance(function, Inner):
            return Translation(self._build, function, given).translate()
        if isinstance(function, Generated):
            return self._emitted(function, given)
        if function is len:
            return given[0].shape[0] if isinstance(given[0], Array) else len(given[0])
        if _are_constant(*given):
            return function(*given)
        if function in (min, max):
            best = given[0]
            for each in given[1:]:
                best, other = self._alike(best, each, INT)
                better = self._compared(ast.Lt if function is min else ast.Gt, other, best)
                best = self._build.select(better, other, best)
            return best
        return intrinsic(self._build, _FUNCTIONS[function], self._as(given[0], FLOAT))

    def _emitted(self, function: Generated, given: list[Any]) -> Any:
        def value(each: Any) -> Any:
            if isinstance(each, Array):
                return each.pointer
            return [value(one) for one in each] if isinstance(each, tuple) else self._number(each)

        found = function.emit(self._build, *map(value, given))
        return tuple(found) if isinstance(found, list) else found

    # ------------------------------------------------------------ numbers

    def _number(self, value: Any) -> Any:
        """Return a number as one of LLVM's values."""
        if isinstance(value, ir.Value):
            return value
        for of_python, kind in ((bool, BOOL), (int, INT), (float, FLOAT)):
            if isinstance(value, of_python):
                return kind(value)
        raise TypeError(f"{value!r} is no number")

    def _as(self, value: Any, kind: ir.Type) -> Any:
        """Convert a value to a kind that holds it."""
        if value.type == kind:
            return value
        if value.type == BOOL and kind in (INT, FLOAT):
            return self._as(self._build.zext(value, INT), kind)
        if value.type == INT and kind == FLOAT:
            return self._build.sitofp(value, FLOAT)
        raise TypeError(f"a value of the kind {value.type} is given for {kind}")

    def _alike(self, a: Any, b: Any, least: ir.Type) -> tuple[Any, Any]:
        """Return two numbers as the first kind, from `least` on, that holds both."""
        values, kinds = (self._number(a), self._number(b)), [BOOL, INT, FLOAT]
        kind = kinds[max(kinds.index(each) for each in (least, values[0].type, values[1].type))]
        return self._as(values[0], kind), self._as(values[1], kind)

    def _truth(self, value: Any) -> Any:
        """Return whether a value is true: a bool if that is constant."""
        if value is None or _are_constant(value):
            return bool(value)
        return value if self._number(value).type == BOOL else self._compared(ast.NotEq, value, 0)


def _are_constant(*values: Any) -> bool:
    return all(isinstance(each, int | float) for each in values)


def intrinsic(builder: ir.IRBuilder, name: str, *arguments: Any) -> Any:
    """Call a function of LLVM that returns what its arguments are."""
    kind = arguments[0].type
    full = f"llvm.{name}.{f'v{kind.count}' if isinstance(kind, ir.VectorType) else ''}f64"
    if full not in builder.module.globals:
        ir.Function(builder.module, ir.FunctionType(kind, [kind] * len(arguments)), full)
    return builder.call(builder.module.globals[full], arguments)
