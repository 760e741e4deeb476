"""Compiled kernels are kept where only the user can write, and a bad cache is never fatal."""

import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import pytest
import torch

import alti
from alti.mix.kernels import stored
from alti.mix.kernels.stored import CacheWarning, KernelCache

from speed import slow

SOURCE = __file__


def compiled():
    """A new function each time, as in a new process."""
    function = numba.njit(lambda x: 2 * x + 1)
    function._cache = KernelCache(SOURCE)
    return function


def hits(function) -> int:
    assert function(20) == 41
    return sum(function.stats.cache_hits.values())


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored.warn_once.cache_clear()
    yield tmp_path / "alti" / "numba"
    stored.warn_once.cache_clear()


def raising(error: Exception):
    def raises(*_, **__):
        raise error

    return raises


def kernels(home: Path) -> list[Path]:
    return sorted(home.glob("*"))


def test_a_compiled_kernel_is_read_again(home):
    assert hits(compiled()) == 0
    assert hits(compiled()) == 1
    (file,) = kernels(home)
    for place, mode in ((home.parent, 0o700), (home, 0o700), (file, 0o600)):
        assert stat.S_IMODE(place.stat().st_mode) == mode


def test_the_kernel_of_alti_is_kept_there():
    from alti.mix.kernels import numba as kernel

    assert isinstance(kernel._fused._cache, KernelCache)
    assert kernel._fused._cache.source == kernel.__file__


def truncated(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def garbled(raw: bytes) -> bytes:
    middle = len(raw) // 2
    return raw[:middle] + bytes(255 - byte for byte in raw[middle:])


def longer(raw: bytes) -> bytes:
    return raw + b"x"


@pytest.mark.parametrize("damage", [truncated, garbled, longer])
def test_a_damaged_kernel_is_compiled_again(home, damage):
    hits(compiled())
    (file,) = kernels(home)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.warns(CacheWarning, match=r"is damaged .its content has changed.: compiled again"):
        assert hits(compiled()) == 0
    assert hits(compiled()) == 1  # whole again


@pytest.mark.parametrize("content", [b"", b"short", b"another version" * 100])
def test_a_kernel_of_another_version_is_replaced(home, content):
    hits(compiled())
    (file,) = kernels(home)
    file.write_bytes(content)
    assert hits(compiled()) == 0
    assert hits(compiled()) == 1
    assert kernels(home) == [file]


def test_another_source_is_compiled_again(home, tmp_path, monkeypatch):
    hits(compiled())
    other = tmp_path / Path(SOURCE).name
    other.write_text("# changed")
    monkeypatch.setitem(globals(), "SOURCE", str(other))
    assert hits(compiled()) == 0


def test_a_pickle_of_the_right_form_that_is_no_kernel(home, monkeypatch):
    hits(compiled())
    monkeypatch.setattr(stored.pickle, "loads", lambda packed: (1, 2, 3))
    with pytest.warns(CacheWarning, match="is damaged"):
        assert hits(compiled()) == 0


def open_to_all(home: Path) -> None:
    home.chmod(0o777)


def open_above(home: Path) -> None:
    home.parent.chmod(0o770)


def of_nobody(home: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root gives folders away")
    os.chown(home, 65534, 65534)


@pytest.mark.parametrize("expose", [open_to_all, open_above, of_nobody])
def test_a_folder_that_others_can_write_is_not_read(home, monkeypatch, expose):
    hits(compiled())
    expose(home)
    monkeypatch.setattr(stored.pickle, "loads", lambda packed: pytest.fail("a pickle was read"))
    before = {file: file.read_bytes() for file in kernels(home)}
    with pytest.warns(CacheWarning, match="belongs to somebody else or can be written by others"):
        assert hits(compiled()) == 0
    assert {file: file.read_bytes() for file in kernels(home)} == before


def test_a_link_of_somebody_else_is_not_followed(home, tmp_path):
    if os.getuid() != 0:
        pytest.skip("only root gives links away")
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    home.parent.mkdir(mode=0o700)
    home.symlink_to(own)
    os.lchown(home, 65534, 65534)
    with pytest.warns(CacheWarning, match="belongs to somebody else"):
        hits(compiled())


@pytest.mark.parametrize("base", ["/proc", "/dev/null"])
def test_a_folder_that_cannot_be_made(monkeypatch, base):
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    with pytest.warns(CacheWarning, match="compiled kernels are not kept"):
        assert hits(compiled()) == 0
    assert hits(compiled()) == 0  # warnings are errors: none the second time


def test_no_home(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", raising(RuntimeError("no home")))
    with pytest.warns(CacheWarning, match=r"not kept \(no home\)"):
        assert hits(compiled()) == 0


@pytest.mark.parametrize("error", [OSError(28, "No space left"), PermissionError(13, "read-only")])
def test_a_folder_that_takes_nothing_more(home, monkeypatch, error):
    monkeypatch.setattr(stored.os, "replace", raising(error))
    with pytest.warns(CacheWarning, match=f"could not be written .*{error.strerror}"):
        assert hits(compiled()) == 0
    assert kernels(home) == []


def test_a_folder_that_the_user_names_is_taken_as_it_is(home, tmp_path, monkeypatch):
    shared = tmp_path / "shared"  # as numba reads it from NUMBA_CACHE_DIR
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(shared))
    hits(compiled())
    (shared / "alti").chmod(0o777)
    assert hits(compiled()) == 1
    assert not home.exists()


@slow
def test_compiling_leaves_torchs_threads_alone():
    """In a process of its own: numba starts its threads once."""
    code = (
        "import torch\n"
        "from alti.mix.kernels import pick\n"
        "torch.ones(64, 64).softmax(-1)\n"  # torch has threads from here on
        "torch.set_num_threads(1)\n"
        "pick('auto', 'l1', torch.device('cpu'), torch.float32)\n"
        "print(torch.get_num_threads())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_kernel_that_does_not_compile_gives_way_to_another(monkeypatch):
    from test_mixing import random_block

    block = random_block()
    alti.mix.kernels.works.cache_clear()
    monkeypatch.setattr("alti.mix.kernels.numba._fused.compile", raising(RuntimeError("no such")))
    try:
        with pytest.warns(UserWarning, match="numba kernel does not work here .no such."):
            found = alti.contributions(block)
        torch.testing.assert_close(found, alti.contributions(block, kernel="reference"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            alti.contributions(block)
    finally:
        alti.mix.kernels.works.cache_clear()
