"""The one command for all that needs a GPU, with parts that need none."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def every_gpu(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import every_gpu

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return every_gpu


def run(script, monkeypatch, folder, **parts):
    monkeypatch.setattr(script, "TOGETHER", {n: p for n, p in parts.items() if p.limit > 10})
    monkeypatch.setattr(script, "ALONE", {n: p for n, p in parts.items() if p.limit <= 10})
    monkeypatch.setattr(script, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["every_gpu.py", str(folder)])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    summary = (folder / "summary.txt").read_text().splitlines()
    return stopped.value.code, dict(line.split(": ", 1) for line in summary)


def test_each_part_leaves_what_it_printed_however_it_ends(every_gpu, monkeypatch, tmp_path, capfd):
    slow = "print('begun', flush=True); __import__('time').sleep(9)"
    code, ends = run(
        every_gpu,
        monkeypatch,
        tmp_path,
        good=every_gpu.Part(20, ("-c", "print('one')")),
        bad=every_gpu.Part(20, ("-c", "raise SystemExit('wrong')")),
        slow=every_gpu.Part(1, ("-c", slow)),
        last=every_gpu.Part(9, ("-c", "import os; print(os.environ['ALTI_TEST_GPU'])")),
    )
    assert code == 1
    assert {name: end.partition(" ")[0] for name, end in ends.items()} == {
        "good": "done", "bad": "failed", "slow": "stopped", "last": "done"
    }  # fmt: skip
    assert list(ends)[2:] == ["slow", "last"]  # what is timed comes after the tests, in order
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found.pop("summary.txt")
    assert found.pop("slow.txt").startswith("begun\n")
    assert found == {"good.txt": "one\n", "bad.txt": "wrong\n", "last.txt": "1\n"}
    assert "one\n" in capfd.readouterr().out


def test_a_python_without_pytest_is_named(every_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(every_gpu, "find_spec", lambda name: None)
    tests = every_gpu.TOGETHER["tests_long"]
    code, ends = run(every_gpu, monkeypatch, tmp_path, tests=tests)
    assert (code, ends) == (1, {"tests": "failed: this Python has no pytest"})


def test_the_parts_are_what_there_is(every_gpu):
    """All tests for a GPU, and scripts that exist; few files are left."""
    commands = [part.command for part in every_gpu.PARTS.values()]
    named = {word for command in commands for word in command if word.endswith(".py")}
    assert all((ROOT / name).is_file() for name in named)
    assert {f"tests/{path.name}" for path in (ROOT / "tests").glob("test_gpu*.py")} <= named
    assert len(every_gpu.PARTS) + 1 <= 8
    assert sum(part.limit for part in every_gpu.ALONE.values() if part.limit < 500) < 390
