"""Files: written as a whole or not at all, by any number of writers, never into what is no file."""

import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import alti
from alti import _files as files
from test_attribution import attribution

resource = pytest.importorskip("resource")  # neither these limits nor named pipes are on Windows

FULL = {"No space left on device": 28, "Read-only file system": 30, "Permission denied": 13}


@contextmanager
def at_most(size: int):
    """No file grows beyond so many bytes: what a full disk is to a writer, for real."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_file_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "file"
    files.write_whole(file, b"first")
    with file.open("rb") as reader:
        files.write_whole(str(file), b"second, and longer")
        assert reader.read() == b"first"  # who reads the old one reads all of it
    assert file.read_bytes() == b"second, and longer"
    assert list(tmp_path.iterdir()) == [file]


def test_a_disk_that_is_full_changes_nothing(tmp_path):
    file = tmp_path / "result.alti"
    attribution().save(file)
    before = file.read_bytes()
    refused = pytest.raises(alti.LoadError, match=r"alti could not be written: File too large")
    with at_most(100), refused:
        attribution(text="So unlucky! Again.").save(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("call", ["os.replace", "os.fsync", "builtins.open"])
@pytest.mark.parametrize("reason", FULL)
def test_trouble_with_the_disk_is_one_sentence(tmp_path, monkeypatch, call, reason):
    def fail(*_, **__):
        raise OSError(FULL[reason], reason)

    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        with pytest.raises(alti.LoadError, match=f"could not be written: {reason}") as caught:
            attribution().save(tmp_path / "result.alti")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_where_nobody_may_write(tmp_path):
    if not Path("/sys").is_dir():
        pytest.skip("there is no /sys here")  # on Linux, not even root may write into it
    with pytest.raises(alti.LoadError, match="could not be written: "):
        attribution().save("/sys/result.alti")


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name, reason in (
        ("folder", "is a folder: give a file"),
        ("pipe", "is a device or a pipe"),
        ("device", "is a device or a pipe"),
        ("/dev/null", "is a device or a pipe"),
        ("/dev/stdout", "is a device or a pipe"),
        ("no/file", "cannot be written: there is no folder"),
        ("file/inside", "cannot be written: there is no folder"),
        ("nul\0", "no name of a file"),
        ("", "is a folder: give a file"),
    ):
        with pytest.raises(alti.UsageError, match=reason):
            attribution().save(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["device", "file", "folder", "pipe"]
    assert Path("/dev/null").is_char_device()


def test_links_stay_links(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "new")
    files.write_whole(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "new").read_bytes() == b"content"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(alti.AltiError, match="loop"):
        files.write_whole(tmp_path / "loop", b"content")
    assert (tmp_path / "loop").is_symlink()


def test_rights_are_the_umasks_and_those_of_a_file_that_is_there_stay(tmp_path):
    before = os.umask(0o027)
    try:
        attribution().save(tmp_path / "new")
        (tmp_path / "private").touch(mode=0o600)
        attribution().save(tmp_path / "private")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


def test_a_long_name_leaves_room_for_the_writers_own(tmp_path):
    attribution().save(tmp_path / ("x" * 255))
    assert len(alti.Attribution.load(tmp_path / ("x" * 255))) == 6


def test_threads_that_write_one_file_do_not_meet(tmp_path):
    file, wrong = tmp_path / "result.alti", []

    def write(number: int) -> None:
        try:
            for _ in range(20):
                attribution(model=f"model {number}").save(file)
                alti.Attribution.load(file)
        except Exception as error:
            wrong.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert wrong == []
    assert list(tmp_path.iterdir()) == [file]


def test_text_goes_into_pipes_and_behind_what_stdout_has(tmp_path):
    """`--html /dev/stdout >> file` keeps what the file holds."""
    code = "import pathlib, alti.cli.console as c; c.write(pathlib.Path('/dev/stdout'), 'page')"
    (tmp_path / "out").write_text("before, ")
    with (tmp_path / "out").open("a") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before, page"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "page"
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_only_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("pipe", "a device or a pipe"), (".", "a folder")):
        with pytest.raises(alti.LoadError, match=f"is {what}: give a file"):
            files.require_file(tmp_path / name, "a file")
    with pytest.raises(alti.LoadError, match="nothing does not exist: give a file"):
        files.require_file(tmp_path / "nothing", "a file")
    (tmp_path / "file").touch()
    files.require_file(tmp_path / "file", "a file")


@pytest.mark.parametrize("name", ["x" * 300, "half \ud800", "null \0"])
def test_names_that_no_file_can_have_are_one_sentence(name, tmp_path):
    with pytest.raises(alti.UsageError, match="is no name of a file: give another"):
        files.write_whole(f"{tmp_path}/{name}", b"")
