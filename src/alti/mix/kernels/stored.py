"""Keeps compiled kernels in the user's own cache folder.

numba pickles what it compiles, and reading a pickle can run code: the folder must belong to the
user and be writable by nobody else. NUMBA_CACHE_DIR names another one, which is then not checked.
"""

import hashlib
import os
import pickle
import sys
import tempfile
import warnings
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

DIGEST = hashlib.sha256().digest_size


class CacheWarning(UserWarning):
    """Compiled kernels could not be kept or read: every process compiles them again."""


@cache
def warn_once(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=3)


def folder() -> Path:
    """The folder for compiled kernels, made if missing; PermissionError if it is not safe."""
    if numba.config.CACHE_DIR:
        chosen = Path(numba.config.CACHE_DIR) / "alti"
        chosen.mkdir(parents=True, exist_ok=True)
        return chosen
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    own = Path(base).expanduser() / "alti" / "numba"
    for each in (own.parent, own):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(each)
    return own


def _require_own(place: Path) -> None:
    if not hasattr(os, "getuid"):  # Windows keeps LOCALAPPDATA private
        return
    owners = {place.lstat().st_uid, place.stat().st_uid}  # of a link, and of where it leads
    if owners != {os.getuid()} or place.stat().st_mode & 0o022:
        raise PermissionError(f"{place} belongs to somebody else or can be written by others")


class KernelCache(NullCache):
    """numba's cache of one function: a file per signature, with digests of its key and its content.

    A file of another version is compiled again and replaced; so is a damaged one, with a warning.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def place(self) -> Path | None:
        try:
            return folder()
        except (OSError, RuntimeError) as error:  # RuntimeError: no home
            warn_once(f"compiled kernels are not kept ({error}): point XDG_CACHE_HOME elsewhere")
            return None

    @property
    def cache_path(self) -> str | None:
        return None if self.place is None else str(self.place)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        if self.place is None:
            return None
        file = self._file(sig, target_context.codegen())
        try:
            raw = file.read_bytes() if file.exists() else b""
            if raw[:DIGEST] != self._key(file):  # nothing, or of another version
                return None
            digest = raw[DIGEST : 2 * DIGEST]
            packed = raw[2 * DIGEST :]
            if hashlib.sha256(packed).digest() != digest:
                raise ValueError("its content has changed")
            return CompileResult._rebuild(target_context, *pickle.loads(packed))
        except Exception as error:  # a pickle can fail in any way
            warn_once(f"the compiled kernel {file} is damaged ({error}): compiled again")
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        if self.place is None or cres.library.has_dynamic_globals:
            return
        file = self._file(sig, cres.codegen)
        try:
            packed = dumps(cres._reduce())
            _replace(file, self._key(file) + hashlib.sha256(packed).digest() + packed)
        except Exception as error:
            warn_once(f"the compiled kernel {file} could not be written ({error})")

    def _file(self, sig: Any, codegen: Any) -> Path:
        """The file of a signature on this processor."""
        name = hashlib.sha256(repr((sig, codegen.magic_tuple())).encode()).hexdigest()[:16]
        return Path(self.cache_path or "") / f"{Path(self.source).stem}-{name}.kernel"

    def _key(self, file: Path) -> bytes:
        """What a file must start with: it stands for the source and for whatever compiled it."""
        versions = repr((file.name, numba.__version__, llvmlite.__version__, sys.version))
        return hashlib.sha256(versions.encode() + Path(self.source).read_bytes()).digest()


def _replace(file: Path, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    handle, partial = tempfile.mkstemp(dir=file.parent)
    try:
        with open(handle, "wb") as opened:
            opened.write(content)
        os.replace(partial, file)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
