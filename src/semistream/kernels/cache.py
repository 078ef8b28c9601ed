"""The machine code of the kernels on disk: compiled once per machine, loaded by every process.

Three things differ from Numba's own cache, which this one extends:

- **Loading is cheap.** Numba first imports and registers the implementations of everything that it
  can compile, even if it only loads, and reads a kernel's bitcode beside its machine code. Machine
  code needs no more than Numba's runtime: bitcode is parsed when another kernel is compiled that
  calls this one, and modules whose functions were inlined are not imported.
- **One process compiles.** A process that does not find a kernel takes the kernel's file lock, and
  looks again: the others wait for the one that compiles it. The operating system drops the lock of
  a process that dies. This also keeps two processes from numbering their files alike, after which
  Numba would run one kernel's code for another's types.
- **It never fails a join.** A folder that cannot be written, a full disk or a damaged file costs
  time: the kernel is compiled in this process. A folder that was filled when an image was built is
  read even if the user of the image cannot write to it.
"""

import contextlib
import fcntl
import io
import os
import pickle
import sys
import time
from functools import cache as cached

import xxhash
from llvmlite import binding
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys

from semistream.kernels.cache_folder import FOLDER, SOURCES

_PATIENCE = 120.0  # seconds to wait for a process that compiles; the slowest kernel takes ten
_POLL = 0.01
_CHECKSUM = 8  # bytes


class _Locator(_CacheLocator):
    @classmethod
    def from_function(cls, py_func, py_file):
        return cls()

    def get_cache_path(self):
        return str(FOLDER)

    def get_source_stamp(self):
        return SOURCES

    def get_disambiguator(self):
        return "kernel"  # names are unique within a module

    def ensure_cache_path(self):
        pass  # it was there when it was chosen


class _Results(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012

    def rebuild(self, target_context, payload):
        (name, kind, code), fndesc, *rest = payload
        if kind != "object":
            return super().rebuild(target_context, payload)
        machine_code, bitcode = code
        engine = target_context.codegen()._engine
        engine._defined_symbols.add(fndesc.llvm_cpython_wrapper_name)  # known from the bitcode
        light = (name, kind, (machine_code, _no_bitcode()))
        result = super().rebuild(target_context, (light, fndesc, *rest))
        library = result.library

        @cached
        def module_for_linking():
            library._shared_module = binding.parse_bitcode(bitcode)
            engine._load_defined_symbols(library._shared_module)
            return library._shared_module

        library._get_module_for_linking = module_for_linking
        return result


@cached
def _no_bitcode():
    return binding.parse_assembly("").as_bitcode()


class _File(IndexDataCacheFile):
    """Every file of machine code begins with a checksum of it and of the sources.

    A process that dies between writing the index and the code leaves an index that refers to code
    of older sources; and damaged code would crash the process that runs it.
    """

    def _load_data(self, name):
        with open(self._data_path(name), "rb") as file:
            checksum, data = file.read(_CHECKSUM), file.read()
        if checksum != self._checksum(data):
            raise ValueError(f"{name} is damaged, or of other sources")
        return _Unpickler(io.BytesIO(data)).load()

    def _save_data(self, name, data):
        data = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(self._checksum(data))
            file.write(data)

    def _checksum(self, data):
        content = xxhash.xxh3_64(self._source_stamp.encode())
        content.update(data)
        return content.digest()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _rebuild_environment
        return super().find_class(module, name)


def _rebuild_environment(module, constants, name):
    """As Numba's, which imports the module; only object mode, which kernels do not use, reads a
    module's globals from the environment."""
    found = lookup_environment(name)
    if found is None:
        found = Environment(vars(sys.modules[module]) if module in sys.modules else {})
        found.consts[:] = constants
        found.env_name = name
        Environment._memo[name] = found
    return found


class KernelCache(FunctionCache):
    """The compiled signatures of one kernel."""

    _impl_class = _Results

    def __init__(self, py_func):
        super().__init__(py_func)
        self._cache_file = _File(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )
        self._lock_path = os.path.join(self._cache_path, f"{self._impl.filename_base}.lock")
        self._lock = None

    def load_overload(self, sig, target_context):
        """The kernel for this signature; None, with the lock held, if it must be compiled."""
        rtsys.initialize(target_context)
        found = self._load(sig, target_context)
        if found is None and self._lock is None and self._acquire():
            found = self._load(sig, target_context)  # another process may have compiled it
        return found

    def save_overload(self, sig, data):
        with contextlib.suppress(OSError):  # the folder is not writable, or the disk is full
            try:
                super().save_overload(sig, data)
            except OSError:
                raise
            except Exception:  # the index is damaged, which is read to add to it
                self.flush()
                super().save_overload(sig, data)

    def _load(self, sig, target_context):
        # Unpickling a damaged index can raise anything; then it is compiled again.
        with contextlib.suppress(Exception):
            return self._load_overload(sig, target_context)
        return None

    def _acquire(self) -> bool:
        """Wait for the lock; False if there is none to be had."""
        try:
            lock = os.open(self._lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError:
            return False
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_POLL)
                    continue
                os.close(lock)
                return False
            except OSError:  # a file system without locks
                os.close(lock)
                return False
            self._lock = lock
            return True

    def release(self):
        if self._lock is not None:
            # Unlock, not only close: a child that was forked meanwhile has the descriptor, too.
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None


def cache(kernel):
    """Have a kernel's compilations loaded from, and saved to, the cache."""
    if FOLDER is None:
        return
    kept = kernel._cache = KernelCache(kernel.py_func)  # Numba has no public API for this
    compile_signature = kernel.compile

    def compile_once(sig):
        with global_compiler_lock:  # one thread at a time has the file lock
            try:
                return compile_signature(sig)
            finally:
                kept.release()

    kernel.compile = compile_once
