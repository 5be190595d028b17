"""Machine code: functions that are compiled for the kinds of their arguments, and the files of the code.

`translation` turns a function into LLVM's instructions. Compiled code is kept in files, so that a computer
compiles once; it is loaded in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from .translation import FLOAT, INT, STORED, Array, Inner, Translation

# Length of what every object begins with. In an array, a pointer to its numbers follows, 16 bytes on one to
# its shape: all extensions that use NumPy rely on it, and asking for an address takes microseconds.
_HEADER = object.__basicsize__
# LLVM works for one thread at a time.
_COMPILING = threading.RLock()
if hasattr(os, "register_at_fork"):  # a thread that compiles is not there in a forked process
    release = _COMPILING.release
    os.register_at_fork(before=_COMPILING.acquire, after_in_parent=release, after_in_child=release)
_addresses: dict[str, int] = {}


class Compiled(Inner):
    """A function that Python calls, compiled for the kinds of arguments that it is called with.

    Other threads run meanwhile. Arguments are numbers, arrays in C order and tuples of these, with or without
    names; results are written into arrays.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._entries: dict[tuple[Any, ...], tuple[Callable[..., bytes], Callable[[bytes], None]]] = {}

    def __call__(self, *arguments: Any) -> None:
        """Run the machine code."""
        kinds: list[Any] = []
        numbers: list[Any] = []
        _flatten(arguments, kinds, numbers)
        key = tuple(kinds)
        pack, run = self._entries.get(key) or self._compiled(key, arguments, numbers)
        run(pack(*numbers))

    def _compiled(self, key: tuple[Any, ...], arguments: tuple[Any, ...], numbers: list[Any]) -> Any:
        def build(module: ir.Module, symbol: str) -> None:
            with defined(module, symbol, [INT.as_pointer()]) as (builder, (frame,)):
                given = _unpacked(arguments, builder, frame, iter(range(1 << 20)))
                Translation(builder, self, given).translate()

        address = machine_code(f"{self.name} {key}", self.function.__code__.co_filename, build)
        packed = struct.Struct("".join("d" if isinstance(each, float) else "q" for each in numbers))
        self._entries[key] = packed.pack, ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
        return self._entries[key]


jit = Compiled  # the name of the decorator


def _flatten(arguments: tuple[Any, ...], kinds: list[Any], numbers: list[Any]) -> None:
    """Append the kinds of the numbers and arrays in arguments, and the numbers or where the arrays are."""
    for each in arguments:
        if isinstance(each, np.ndarray):
            if not each.flags.c_contiguous:
                raise ValueError("Compiled code takes arrays in C order only.")
            kinds += each.dtype, each.ndim
            numbers.append(id(each))
        elif isinstance(each, tuple):
            _flatten(each, kinds, numbers)
        else:
            kinds.append(float if isinstance(each, float) else bool if isinstance(each, bool) else int)
            numbers.append(each)


def _unpacked(argument: Any, builder: ir.IRBuilder, frame: Any, places: Iterator[int]) -> Any:
    """Return the values of an argument, which are read from where the numbers of `_flatten` are."""

    def number(kind: ir.Type) -> Any:
        pointer = builder.gep(frame, [INT(next(places))])
        return builder.load(builder.bitcast(pointer, kind.as_pointer()))

    def pointer_at(address: Any, kind: ir.Type) -> Any:
        return builder.load(builder.inttoptr(address, kind.as_pointer().as_pointer()))

    if isinstance(argument, tuple):
        values = [_unpacked(each, builder, frame, places) for each in argument]
        return type(argument)(*values) if hasattr(argument, "_fields") else tuple(values)
    if isinstance(argument, np.ndarray):
        stored, fields = STORED[argument.dtype.str], builder.add(number(INT), INT(_HEADER))
        pointer, shape = pointer_at(fields, stored), pointer_at(builder.add(fields, INT(16)), INT)
        lengths = (builder.load(builder.gep(shape, [INT(axis)])) for axis in range(argument.ndim))
        return Array(pointer, stored, tuple(lengths))
    if isinstance(argument, bool):
        return builder.icmp_signed("!=", number(INT), INT(0))
    return number(FLOAT if isinstance(argument, float) else INT)


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


def machine_code(name: str, file: str, build: Callable[[ir.Module, str], None]) -> int:
    """Return the address of a function of a file: of kept code, or of the module that `build` fills.

    The name ends with all that the code depends on besides that file, the engine's and the processor.
    """
    symbol = f"{name.split()[0]}-{hashlib.sha256(f'{name} {_version(file)}'.encode()).hexdigest()[:24]}"
    with _COMPILING:
        if symbol not in _addresses:
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
            _addresses[symbol] = int(engine.get_function_address(symbol))
        return _addresses[symbol]


@cache
def _version(file: str) -> str:
    """Return a digest of what the code of a file depends on."""
    engine = Path(__file__).parents[1]
    files = {Path(file), *engine.glob("compute/*.py"), *engine.glob("estep/*.py")}
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvmlite.__version__
    interpreter = sys.implementation.cache_tag, _HEADER
    parts = [repr((processor, interpreter)).encode(), *(path.read_bytes() for path in sorted(files))]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@cache
def _machine() -> tuple[Any, Any]:
    """Return LLVM's description of this processor, and the engine that holds all code."""
    with contextlib.suppress(RuntimeError):  # newer versions do this themselves
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine, own = (
        target.create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=3,
            reloc="static" if target.name.startswith("x86") else "default",
            codemodel="jitdefault",
            jit=True,
        )
        for _ in range(2)
    )
    return machine, llvm.create_mcjit_compiler(llvm.parse_assembly(""), own)


def _optimised(module: ir.Module) -> bytes:
    machine, parsed = _machine()[0], llvm.parse_assembly(str(module))
    parsed.data_layout = str(machine.target_data)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    return bytes(machine.emit_object(parsed))


def _folders() -> list[Path]:
    """Return where compiled code may be kept, the best place first."""
    if own := os.environ.get("SKMIX_CACHE_DIR"):
        return [Path(own)]
    of_user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(__file__).parent / "__pycache__", Path(of_user, "skmix")]


def _read(symbol: str) -> bytes | None:
    """Return the code of a file that is as it was written, if there is one."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            content = (folder / f"{symbol}.skmix").read_bytes()
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                return content[32:]
    return None


def _write(symbol: str, code: bytes) -> None:
    """Write a file into the first folder that takes it. Other processes see all of it or nothing."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as made:
                whole = Path(made, "whole")
                whole.write_bytes(hashlib.sha256(code).digest() + code)
                whole.replace(folder / f"{symbol}.skmix")
            return
