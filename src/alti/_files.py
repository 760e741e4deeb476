"""Atomic writes, and checks that a path is a regular file before it is opened."""

import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from alti._errors import LoadError, UsageError

STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")  # a process's open files


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new, never a part of it.

    The content is synced to disk under a unique temporary name, then renamed. A symlink stays a
    symlink; an existing file keeps its permissions, and a new one gets those of the umask.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{path!r} is no name of a file: give a path to write to")
    path = Path(path)
    require_target(path, str(path))
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".alti-{secrets.token_hex(8)}.partial")
    try:
        with open(partial, "xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if target.exists():
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except OSError as error:
        raise LoadError(f"{path} could not be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def require_target(path: Path, shown: str) -> None:
    """Reject a path that cannot be written to, before any work is done."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # a new file, or one that is refused below
    except (OSError, ValueError):  # too long, a null or a lone surrogate in it
        raise UsageError(f"{shown[:80]!a} is no name of a file: give another") from None
    if path.is_dir():
        raise UsageError(f"{shown} is a folder: give a file")
    if is_stream(path):
        raise UsageError(f"{shown} is a device or a pipe, which cannot be replaced: give a file")
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise UsageError(f"{shown} is a symlink loop: give a file")
    if not target.parent.is_dir():
        raise UsageError(f"{shown} cannot be written: there is no folder {target.parent}")


def is_stream(path: Path) -> bool:
    """Whether a path can only be written into, not replaced: a pipe, a device, /dev/stdout.

    /dev/stdout may be redirected to a regular file that also receives other output.
    """
    if str(path.absolute()).startswith(STREAMS):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def append(out: int, content: bytes) -> None:
    """Append to an open file descriptor and sync it to disk."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(out, remaining) :]
    os.fsync(out)


def require_file(path: str | Path, expected: str) -> None:
    """Reject anything but a regular file: opening a pipe would block until someone writes to it."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise LoadError(f"{path} does not exist: give {expected}") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} could not be read ({error}): give {expected}") from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise LoadError(f"{path} is {what}: give {expected}")
