"""Machine code of Python functions on numbers and arrays.

Functions are translated statement by statement into LLVM's instructions, which takes a tenth of the time that
a compiler of the whole language needs: types follow from the arguments, and there is nothing to infer. What
the loops of this package need is known, anything else is refused with its line:

- numbers (64-bit integers, float64, truth values), vectors of `simd`, arrays in C order, and tuples of these,
  with or without names; a variable keeps the kind of its first value;
- assignments, conditions, loops over `range` or while a condition holds, calls of `inner` and `generated`
  functions, `min`, `max`, `abs`, `len` and some of `math`; integers divide as Python's do;
- conditions that are constant choose what is translated, and indices are not tested.

Code is kept in files, so that a computer compiles once.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import hashlib
import inspect
import math
import operator
import os
import struct
import tempfile
import textwrap
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

INT = ir.IntType(64)
FLOAT = ir.DoubleType()
BOOL = ir.IntType(1)
_BYTE = ir.IntType(8)
# What is in memory for numbers of each of NumPy's types.
_STORED = {
    "<f8": FLOAT, "<f4": ir.FloatType(), "<i8": INT, "<i4": ir.IntType(32), "|b1": _BYTE,
}  # fmt: skip
_MATH = {math.sqrt: "sqrt", math.log: "log", math.exp: "exp"}
_BINARY = {
    ast.Add: (operator.add, "add", "fadd"),
    ast.Sub: (operator.sub, "sub", "fsub"),
    ast.Mult: (operator.mul, "mul", "fmul"),
    ast.Div: (operator.truediv, None, "fdiv"),
    ast.FloorDiv: (operator.floordiv, "floor", None),
    ast.Mod: (operator.mod, "rest", None),
    ast.LShift: (operator.lshift, "shl", None),
    ast.RShift: (operator.rshift, "ashr", None),
    ast.BitAnd: (operator.and_, "and_", None),
    ast.BitOr: (operator.or_, "or_", None),
}
_COMPARED = {
    ast.Lt: (operator.lt, "<"), ast.LtE: (operator.le, "<="), ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, ">="), ast.Eq: (operator.eq, "=="), ast.NotEq: (operator.ne, "!="),
}  # fmt: skip
_COMPILING = threading.RLock()


# ---------------------------------------------------------------- machine code and its files


@cache
def _machine() -> tuple[Any, Any]:
    """Return LLVM's description of this processor, and the engine that holds all code."""
    with contextlib.suppress(RuntimeError):  # newer versions do this themselves
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machines = [
        target.create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=3,
            reloc="static" if target.name.startswith("x86") else "default",
            codemodel="jitdefault",
            jit=True,
        )
        for _ in range(2)  # the engine owns one
    ]
    return machines[0], llvm.create_mcjit_compiler(llvm.parse_assembly(""), machines[1])


@lru_cache
def _version() -> str:
    """Return a digest of what compiled code depends on, beside the kinds of its arguments."""
    folder = Path(__file__).parents[1]
    parts = [(folder / name).read_bytes() for name in SOURCES]
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvmlite.__version__
    return hashlib.sha256(b"".join([*parts, repr(processor).encode()])).hexdigest()


# Files whose functions and constants become part of compiled code.
SOURCES = (
    "compute/arrays.py",
    "compute/matrices.py",
    "compute/native.py",
    "compute/simd.py",
    "estep/clusters.py",
    "estep/compiled.py",
    "estep/nearby.py",
)


def folders() -> list[Path]:
    """Return where compiled code may be kept, in order of preference."""
    own = os.environ.get("SKMIX_CACHE_DIR")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skmix"
    return [Path(own)] if own else [Path(__file__).parent / "__pycache__", users]


def machine_code(name: str, build: Callable[[ir.Module, str], None]) -> int:
    """Return the address of a function, from its file or from the module that `build` fills.

    The name says all that the code depends on besides this package and the processor.
    """
    with _COMPILING:
        symbol = f"{name.split(' ')[0]}_{hashlib.sha256(f'{name} {_version()}'.encode()).hexdigest()[:24]}"
        code = _read(symbol)
        if code is None:
            module = ir.Module(symbol)
            module.triple = llvm.get_process_triple()
            build(module, symbol)
            code = _optimised(module)
            _write(symbol, code)
        engine = _machine()[1]
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return int(engine.get_function_address(symbol))


def _optimised(module: ir.Module) -> bytes:
    parsed, machine = llvm.parse_assembly(str(module)), _machine()[0]
    parsed.data_layout = str(machine.target_data)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))


def _read(symbol: str) -> bytes | None:
    """Return the code of a file that is as it was written, if there is one."""
    for folder in folders():
        with contextlib.suppress(OSError):
            content = (folder / f"{symbol}.skmix").read_bytes()
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                return content[32:]
    return None


def _write(symbol: str, code: bytes) -> None:
    """Write a file into the first folder where that is possible; others see all of it or nothing."""
    for folder in folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                try:
                    file.write(hashlib.sha256(code).digest() + code)
                    file.close()
                    os.replace(file.name, folder / f"{symbol}.skmix")
                except OSError:
                    os.unlink(file.name)
                    raise
            return


@contextlib.contextmanager
def defined(module: ir.Module, name: str, kinds: Sequence[ir.Type]) -> Iterator[tuple[Any, Any]]:
    """Define a function of arguments of these kinds by the instructions that a builder gets meanwhile."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    body = function.append_basic_block("body")
    builder.branch(body)  # the entry will hold the memory of variables
    builder.position_at_end(body)
    yield builder, function.args
    builder.ret_void()


# ---------------------------------------------------------------- functions


class inner:
    """A function that only compiled functions call: its code becomes a part of theirs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = f"{function.__module__}.{function.__name__}"

    def __call__(self, *arguments: Any) -> Any:
        """Call the function as it is."""
        return self.function(*arguments)

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The function's syntax."""
        lines, first = inspect.getsourcelines(self.function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        ast.increment_lineno(tree, first - 1)
        return tree

    @cached_property
    def scope(self) -> Mapping[str, Any]:
        """What names mean that the function does not define."""
        found = inspect.getclosurevars(self.function)
        return ChainMap(dict(found.nonlocals), self.function.__globals__, vars(builtins))


class apart(inner):
    """An inner function of numbers and arrays that is called, so that its loops have the registers alone."""


class jit(inner):
    """A function that Python calls, compiled for the kinds of arguments that it is called with.

    Other threads run meanwhile. Results are written into arrays.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.__doc__ = function.__doc__
        self._entries: dict[tuple[str, ...], Callable[[bytes], None]] = {}
        self._packers: dict[tuple[str, ...], struct.Struct] = {}

    def __call__(self, *arguments: Any) -> None:
        kinds: list[str] = []
        numbers: list[Any] = []
        for each in arguments:
            _flatten(each, kinds, numbers)
        key = tuple(kinds)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._compiled(key, arguments)
        entry(self._packers[key].pack(*numbers))

    def _compiled(self, key: tuple[str, ...], arguments: Sequence[Any]) -> Callable[[bytes], None]:
        def build(module: ir.Module, symbol: str) -> None:
            with defined(module, symbol, [INT.as_pointer()]) as (builder, (frame,)):
                places = iter(range(1 << 20))
                given = [_unpacked(each, builder, frame, places) for each in arguments]
                Translation(builder, self, given).translate()

        address = machine_code(f"{self.name} {' '.join(key)}", build)
        self._packers[key] = struct.Struct("".join("qd"[kind == "f"] * (1 + len(kind[2:])) for kind in key))
        entry: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
        self._entries[key] = entry
        return entry  # type: ignore[no-any-return]


def _flatten(argument: Any, kinds: list[str], numbers: list[Any]) -> None:
    """Append the kinds of the numbers and arrays in an argument, and what describes them in memory."""
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise ValueError("Compiled code takes arrays in C order only.")
        kinds.append(_KINDS[argument.dtype] + "n" * argument.ndim)
        numbers.append(argument.ctypes.data)
        numbers.extend(argument.shape)
    elif isinstance(argument, tuple):
        for each in argument:
            _flatten(each, kinds, numbers)
    else:
        kinds.append("f" if isinstance(argument, float) else "b" if isinstance(argument, bool) else "i")
        numbers.append(argument)


_KINDS = {np.dtype(name): f"{place}a" for place, name in enumerate(_STORED)}


def _unpacked(argument: Any, builder: ir.IRBuilder, frame: Any, places: Iterator[int]) -> Any:
    """Return the values of an argument, read from what the numbers of `_flatten` were packed into."""

    def number(kind: ir.Type) -> Any:
        pointer = builder.gep(frame, [INT(next(places))])
        return builder.load(builder.bitcast(pointer, kind.as_pointer()))

    if isinstance(argument, np.ndarray):
        stored = _STORED[argument.dtype.str]
        address = builder.inttoptr(number(INT), stored.as_pointer())
        return Array(address, stored, tuple(number(INT) for _ in argument.shape))
    if isinstance(argument, tuple):
        values = [_unpacked(each, builder, frame, places) for each in argument]
        return type(argument)(*values) if hasattr(argument, "_fields") else tuple(values)
    if isinstance(argument, bool):
        return builder.icmp_signed("!=", number(INT), INT(0))
    return number(FLOAT if isinstance(argument, float) else INT)


class Array(NamedTuple):
    """An array in translated code."""

    pointer: Any
    stored: ir.Type  # what a number is in memory
    shape: tuple[Any, ...]


class generated:
    """A function for compiled code whose instructions ``emit(builder, *arguments)`` generates.

    Arrays are passed to `emit` as pointers to their numbers; the last `literals` arguments must be constants
    and are passed as Python's numbers.
    """

    def __init__(self, emit: Callable[..., Any], literals: int = 0) -> None:
        self.emit, self.literals = emit, literals


# ---------------------------------------------------------------- translation


class Translation:
    """Translates one call of a function, with the given values, at the position of a builder."""

    def __init__(self, builder: ir.IRBuilder, function: inner, arguments: Sequence[Any]) -> None:
        self._build, self._function = builder, function
        names = [each.arg for each in function.tree.args.args]
        if len(names) != len(arguments):
            raise TypeError(f"{function.name} takes {len(names)} arguments, not {len(arguments)}.")
        self._names: dict[str, Any] = {}
        self._loops: list[tuple[Any, Any]] = []  # where `continue` and `break` go
        self._result: Any = None
        self._assigned = {
            node.id
            for node in ast.walk(function.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for name, value in zip(names, arguments, strict=True):
            if name in self._assigned:
                self._assign_name(name, value)
            else:
                self._names[name] = value

    def translate(self) -> Any:
        """Generate the instructions, and return the value of the function."""
        self._end = self._build.append_basic_block("end")
        self._run(self._function.tree.body)
        if not self._build.block.is_terminated:
            self._build.branch(self._end)
        self._build.position_at_end(self._end)
        return None if self._result is None else self._loaded(self._result)

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        where = f"{self._function.name}, line {getattr(node, 'lineno', '?')}"
        raise NotImplementedError(f"{where}, cannot be compiled: {why}.")

    # Statements

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._build.block.is_terminated:
                return
            try:
                getattr(self, f"_run_{type(statement).__name__}", self._unknown)(statement)
            except (TypeError, ValueError, KeyError, AttributeError, AssertionError) as error:
                self._refuse(statement, f"{type(error).__name__}: {error}")

    def _unknown(self, node: ast.AST) -> NoReturn:
        self._refuse(node, f"{type(node).__name__} is not among the statements and expressions known here")

    def _run_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)

    def _run_Assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _run_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, self._binary(node, self._value(node.target), self._value(node.value)))

    def _run_If(self, node: ast.If) -> None:
        test = self._truth(self._value(node.test))
        if isinstance(test, bool):
            self._run(node.body if test else node.orelse)
            return
        then, other = self._block("then"), self._block("else")
        after = self._block("after")
        self._build.cbranch(test, then, other)
        for block, statements in ((then, node.body), (other, node.orelse)):
            self._build.position_at_end(block)
            self._run(statements)
            if not self._build.block.is_terminated:
                self._build.branch(after)
        self._build.position_at_end(after)

    def _run_While(self, node: ast.While) -> None:
        test, body, after = self._block("test"), self._block("body"), self._block("after")
        self._build.branch(test)
        self._build.position_at_end(test)
        holds = self._truth(self._value(node.test))
        self._build.cbranch(BOOL(holds) if isinstance(holds, bool) else holds, body, after)
        self._loop(node.body, test, body, after)

    def _loop(self, statements: Sequence[ast.stmt], again: Any, body: Any, after: Any) -> None:
        self._build.position_at_end(body)
        self._loops.append((again, after))
        self._run(statements)
        self._loops.pop()
        if not self._build.block.is_terminated:
            self._build.branch(again)
        self._build.position_at_end(after)

    def _run_For(self, node: ast.For) -> None:
        if not isinstance(node.iter, ast.Call) or self._value(node.iter.func) is not range:
            self._refuse(node, "loops are over ranges")
        given = [self._value(each) for each in node.iter.args]
        first, last, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
        # A step that is not constant must be positive.
        down = isinstance(step, int) and step < 0
        stop, counter = self._number(last), self._slot(INT)
        self._build.store(self._number(first), counter)
        test, body = self._block("test"), self._block("body")
        again, after = self._block("again"), self._block("after")
        self._build.branch(test)
        self._build.position_at_end(again)
        stepped = self._build.add(self._build.load(counter), self._number(step), flags=["nsw"])
        self._build.store(stepped, counter)
        self._build.branch(test)
        self._build.position_at_end(test)
        now = self._build.load(counter)
        self._build.cbranch(self._build.icmp_signed(">" if down else "<", now, stop), body, after)
        self._build.position_at_end(body)
        self._assign(node.target, now)
        self._loop(node.body, again, body, after)

    def _run_Break(self, node: ast.Break) -> None:
        self._build.branch(self._loops[-1][1])

    def _run_Continue(self, node: ast.Continue) -> None:
        self._build.branch(self._loops[-1][0])

    def _run_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._result = self._stored(self._result, self._value(node.value))
        self._build.branch(self._end)

    # Variables

    def _block(self, name: str) -> Any:
        return self._build.append_basic_block(name)

    def _slot(self, kind: ir.Type) -> Any:
        with self._build.goto_entry_block():
            return self._build.alloca(kind)

    def _stored(self, slots: Any, value: Any) -> Any:
        """Store a value in a variable's memory, which is made for its first value."""
        if isinstance(value, tuple) and not isinstance(value, Array) and not hasattr(value, "_fields"):
            known = slots if slots is not None else (None,) * len(value)
            return tuple(self._stored(*pair) for pair in zip(known, value, strict=True))
        if isinstance(value, Array):
            parts = self._stored(slots and slots[1], (value.pointer, *value.shape))
            return value.stored, parts
        value = self._number(value)
        slot, kind = slots or _Slot(self._slot(value.type), value.type)
        self._build.store(self._as(value, kind), slot)
        return _Slot(slot, kind)

    def _loaded(self, slots: Any) -> Any:
        if isinstance(slots, _Slot):
            return self._build.load(slots.pointer)
        if isinstance(slots[0], ir.Type):
            pointer, *shape = self._loaded(slots[1])
            return Array(pointer, slots[0], tuple(shape))
        return tuple(self._loaded(each) for each in slots)

    def _assign_name(self, name: str, value: Any) -> None:
        if value is None or hasattr(value, "_fields") and not isinstance(value, Array):
            if name in self._names:
                raise TypeError(f"{name} is assigned twice")
            self._names[name] = value
            return
        held = self._names.get(name)
        self._names[name] = _Variable(self._stored(held.slots if held else None, value))

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target.id, value)
        elif isinstance(target, ast.Tuple):
            parts = value.shape if isinstance(value, Array) else tuple(value)
            for each, part in zip(target.elts, parts, strict=True):
                self._assign(each, part)
        elif isinstance(target, ast.Subscript):
            array = self._value(target.value)
            part, value = self._part(array, self._value(target.slice)), self._number(value)
            if array.stored == _BYTE:
                value = self._build.zext(self._as(value, BOOL), _BYTE)
            elif array.stored in (FLOAT, INT):
                value = self._as(value, array.stored)
            else:
                value = self._build.trunc(self._as(value, INT), array.stored)
            self._build.store(value, part.pointer)
        else:
            self._unknown(target)

    # Expressions

    def _value(self, node: ast.expr) -> Any:
        return getattr(self, f"_value_{type(node).__name__}", self._unknown)(node)

    def _value_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _value_Name(self, node: ast.Name) -> Any:
        if node.id in self._names:
            found = self._names[node.id]
            return self._loaded(found.slots) if isinstance(found, _Variable) else found
        if node.id in self._assigned:
            self._refuse(node, f"{node.id} has no value yet")
        return self._function.scope[node.id]

    def _value_Attribute(self, node: ast.Attribute) -> Any:
        return getattr(self._value(node.value), node.attr)

    def _value_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._value(each) for each in node.elts)

    def _value_Subscript(self, node: ast.Subscript) -> Any:
        whole = self._value(node.value)
        if isinstance(node.slice, ast.Slice):
            (length,), zero = whole.shape, ast.Constant(0)
            first = self._number(self._value(node.slice.lower or zero))
            last = self._number(self._value(node.slice.upper)) if node.slice.upper else length
            return Array(self._build.gep(whole.pointer, [first]), whole.stored, (self._build.sub(last, first),))
        index = self._value(node.slice)
        if not isinstance(whole, Array):
            return whole[index]
        part = self._part(whole, index)
        if part.shape:
            return part
        found = self._build.load(part.pointer)
        if part.stored == _BYTE:
            return self._build.icmp_signed("!=", found, _BYTE(0))
        if isinstance(part.stored, ir.FloatType):
            return self._build.fpext(found, FLOAT)
        return found if part.stored in (FLOAT, INT) else self._build.sext(found, INT)

    def _part(self, array: Array, index: Any) -> Array:
        """Return the part of an array at an index, or at indices, of its first axes."""
        indices = index if isinstance(index, tuple) else (index,)
        place = self._number(0)
        for axis, length in enumerate(array.shape):
            place = self._build.mul(place, length)
            if axis < len(indices):
                place = self._build.add(place, self._as(self._number(indices[axis]), INT))
        return Array(self._build.gep(array.pointer, [place]), array.stored, array.shape[len(indices) :])

    def _value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self._value(node.operand)
        if isinstance(node.op, ast.Not):
            truth = self._truth(value)
            return not truth if isinstance(truth, bool) else self._build.not_(truth)
        if not isinstance(node.op, ast.USub):
            self._unknown(node.op)
        if not isinstance(value, ir.Value):
            return -value
        return self._build.fneg(value) if value.type == FLOAT else self._build.neg(self._as(value, INT))

    def _value_BinOp(self, node: ast.BinOp) -> Any:
        return self._binary(node, self._value(node.left), self._value(node.right))

    def _binary(self, node: Any, a: Any, b: Any) -> Any:
        if isinstance(node.op, ast.Pow) and isinstance(b, int) and b == 2:
            return self._arithmetic(a, a, *_BINARY[ast.Mult])
        if isinstance(node.op, ast.Pow) and not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            return a**b
        if type(node.op) not in _BINARY:
            self._unknown(node.op)
        return self._arithmetic(a, b, *_BINARY[type(node.op)])

    def _arithmetic(self, a: Any, b: Any, in_python: Any, of_ints: Any, of_floats: Any) -> Any:
        if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            return in_python(a, b)
        one, other = self._number(a), self._number(b)
        if one.type == other.type == BOOL and of_ints in ("and_", "or_"):
            return getattr(self._build, of_ints)(one, other)
        if of_ints is None or FLOAT in (one.type, other.type):
            return getattr(self._build, of_floats)(self._as(one, FLOAT), self._as(other, FLOAT))
        one, other = self._as(one, INT), self._as(other, INT)
        if of_ints in ("floor", "rest"):
            return self._divided(one, other, b)[of_ints == "rest"]
        return getattr(self._build, of_ints)(one, other)

    def _divided(self, a: Any, b: Any, number: Any) -> tuple[Any, Any]:
        """Return ⌊a / b⌋ and what is left."""
        build = self._build
        if isinstance(number, int) and number > 0 and number & (number - 1) == 0:
            return build.ashr(a, INT(number.bit_length() - 1)), build.and_(a, INT(number - 1))
        quotient, rest = build.sdiv(a, b), build.srem(a, b)
        below = build.and_(
            build.icmp_signed("!=", rest, INT(0)), build.icmp_signed("<", build.xor(rest, b), INT(0))
        )
        return (
            build.sub(quotient, build.zext(below, INT)),
            build.select(below, build.add(rest, b), rest),
        )

    def _value_Compare(self, node: ast.Compare) -> Any:
        values = [self._value(each) for each in (node.left, *node.comparators)]
        found: Any = True
        for kind, a, b in zip(node.ops, values[:-1], values[1:], strict=True):
            found = self._both(found, self._compared(kind, a, b))
        return found

    def _both(self, a: Any, b: Any) -> Any:
        if isinstance(a, bool):
            return b if a else False
        return a if b is True else False if b is False else self._build.and_(a, b)

    def _compared(self, kind: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(kind, ast.Is | ast.IsNot):
            return (a is b) == isinstance(kind, ast.Is)
        in_python, sign = _COMPARED[type(kind)]
        if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            return in_python(a, b)
        one, other = self._number(a), self._number(b)
        if FLOAT in (one.type, other.type):
            compare = self._build.fcmp_unordered if sign == "!=" else self._build.fcmp_ordered
            return compare(sign, self._as(one, FLOAT), self._as(other, FLOAT))
        return self._build.icmp_signed(sign, self._as(one, INT), self._as(other, INT))

    def _value_BoolOp(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        found = self._slot(BOOL)
        end = self._block("decided")
        for each in node.values:
            truth = self._truth(self._value(each))
            if isinstance(truth, bool):
                if truth != stops:
                    continue
                self._build.store(BOOL(truth), found)
                break
            self._build.store(truth, found)
            more = self._block("more")
            self._build.cbranch(truth, *((end, more) if stops else (more, end)))
            self._build.position_at_end(more)
        else:
            self._build.store(BOOL(not stops), found)
        self._build.branch(end)
        self._build.position_at_end(end)
        return self._build.load(found)

    def _value_IfExp(self, node: ast.IfExp) -> Any:
        test = self._truth(self._value(node.test))
        if isinstance(test, bool):
            return self._value(node.body if test else node.orelse)
        blocks, after, slots = [self._block("then"), self._block("else")], self._block("after"), None
        self._build.cbranch(test, *blocks)
        for block, each in zip(blocks, (node.body, node.orelse), strict=True):
            self._build.position_at_end(block)
            slots = self._stored(slots, self._value(each))
            self._build.branch(after)
        self._build.position_at_end(after)
        return self._loaded(slots)

    def _value_Call(self, node: ast.Call) -> Any:
        function, given = self._value(node.func), [self._value(each) for each in node.args]
        if node.keywords:
            self._refuse(node, "keywords")
        if isinstance(function, apart):
            return self._called(function, given)
        if isinstance(function, inner):
            return Translation(self._build, function, given).translate()
        if isinstance(function, generated):
            return self._emitted(function, given)
        if function is len:
            return given[0].shape[0] if isinstance(given[0], Array) else len(given[0])
        if not any(isinstance(each, ir.Value) for each in given):
            return function(*given)
        if function in (min, max):
            kind, best = ast.Lt() if function is min else ast.Gt(), given[0]
            for each in given[1:]:
                best, each = self._alike(best, each)
                best = self._build.select(self._compared(kind, each, best), each, best)
            return best
        if function is abs or function in _MATH:
            (x,) = (self._as(self._number(each), FLOAT) for each in given)
            return intrinsic(self._build, _MATH.get(function, "fabs"), x)
        self._refuse(node, f"calls of {getattr(function, '__name__', function)}")

    def _called(self, function: apart, given: list[Any]) -> None:
        parts = [(each.pointer, *each.shape) if isinstance(each, Array) else (each,) for each in given]
        values = [each for part in parts for each in part if isinstance(each, ir.Value)]
        name = f"{function.name} {[str(getattr(each, 'type', each)) for part in parts for each in part]}"
        if name not in self._build.module.globals:
            with defined(self._build.module, name, [each.type for each in values]) as (builder, arguments):
                own = dict(zip(map(id, values), arguments, strict=True))
                taken = [tuple(own.get(id(each), each) for each in part) for part in parts]
                Translation(
                    builder,
                    function,
                    [
                        Array(part[0], each.stored, part[1:]) if isinstance(each, Array) else part[0]
                        for each, part in zip(given, taken, strict=True)
                    ],
                ).translate()
            self._build.module.globals[name].linkage = "internal"
            self._build.module.globals[name].attributes.add("noinline")
        self._build.call(self._build.module.globals[name], values)

    def _emitted(self, function: generated, given: list[Any]) -> Any:
        n_values = len(given) - function.literals
        values = [
            each.pointer if isinstance(each, Array) else self._number(each) for each in given[:n_values]
        ]
        found = function.emit(self._build, *values, *given[n_values:])
        return tuple(found) if isinstance(found, list) else found

    # Numbers

    def _number(self, value: Any) -> Any:
        """Return a Python number as a constant; other values are left as they are."""
        if isinstance(value, ir.Value):
            return value
        if isinstance(value, bool):
            return BOOL(value)
        if isinstance(value, int):
            return INT(value)
        if isinstance(value, float):
            return FLOAT(value)
        raise TypeError(f"{value!r} is no number")

    def _as(self, value: Any, kind: ir.Type) -> Any:
        """Convert a number without loss."""
        if value.type == kind:
            return value
        if value.type == BOOL and kind == INT:
            return self._build.zext(value, INT)
        if kind == FLOAT and value.type in (BOOL, INT):
            return self._build.sitofp(self._as(value, INT), FLOAT)
        raise TypeError(f"a value of the kind {value.type} is needed as {kind}")

    def _alike(self, a: Any, b: Any) -> tuple[Any, Any]:
        one, other = self._number(a), self._number(b)
        kind = FLOAT if FLOAT in (one.type, other.type) else INT
        return self._as(one, kind), self._as(other, kind)

    def _truth(self, value: Any) -> Any:
        """Return whether a value is true: a bool if that is constant."""
        if not isinstance(value, ir.Value):
            return bool(value)
        return value if value.type == BOOL else self._compared(ast.NotEq(), value, 0)


class _Variable(NamedTuple):
    """A name whose value is in memory, which LLVM turns into registers."""

    slots: Any


class _Slot(NamedTuple):
    """Memory of one number."""

    pointer: Any
    kind: ir.Type


def intrinsic(builder: ir.IRBuilder, name: str, *arguments: Any) -> Any:
    """Call a function of LLVM that returns what its arguments are."""
    kind = arguments[0].type
    suffix = f"v{kind.count}f64" if isinstance(kind, ir.VectorType) else "f64"
    full, module = f"llvm.{name}.{suffix}", builder.module
    function = module.globals.get(full)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind] * len(arguments)), full)
    return builder.call(function, arguments)
