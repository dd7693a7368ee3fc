"""``dslint doctor``: flags, exit codes, reports, the question before a removal, and a run on the real machine."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import dslint
from fake_machine import FakeMachine, lock_in, needs_provable_locks

from dslint.doctor import command, registry
from dslint.doctor.environment import NoPython, Python
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, ok
from dslint.doctor.registry import Check, all_checks, select


def make_stale(folder: Path) -> Path:
    """A lock of a build in the private extensions root ``folder``, an hour old on the real clock."""
    build = folder / "fused_adam"
    build.mkdir(parents=True)
    (build / "build.ninja").touch()
    lock = build / "lock"
    lock.touch()
    old = time.time() - 3600
    os.utime(lock, (old, old))
    return lock


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real machine with caches and home of its own."""
    needs_provable_locks(tmp_path)
    for name, value in (("TORCH_EXTENSIONS_DIR", "ext"), ("XDG_CACHE_HOME", "cache"), ("HOME", "home")):
        monkeypatch.setenv(name, str(tmp_path / value))
    return tmp_path / "ext"


def test_checks_are_numbered_named_and_explained() -> None:
    checks = all_checks()
    assert [check.meta.id for check in checks] == [f"D{number}" for number in range(1, 15)]
    assert len({check.meta.name for check in checks}) == len(checks)
    for check in checks:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.meta.name)
        for part in ("**What.**", "**Why it hurts.**", "**How it is known.**", "**Repair.**", "**Evidence.**"):
            assert part in check.prose, f"{check.meta.id} has no {part}"


def test_every_file_of_the_folder_is_a_listed_check() -> None:
    folder = Path(registry.__file__).parent / "checks"
    assert sorted(path.stem for path in folder.glob("d*.py")) == sorted(registry.MODULES)


@pytest.mark.parametrize("name", ["D1", "d01", "stale-extension-lock", "STALE_EXTENSION_LOCK"])
def test_a_check_is_named_by_number_or_name(name: str) -> None:
    assert [check.meta.id for check in select([name])] == ["D1"]


def test_a_misspelt_check_is_a_usage_error() -> None:
    done = dslint("doctor", "--check", "stale-extension-locks")
    assert (done.code, done.out) == (2, "")
    assert done.err == "dslint: unknown check `stale-extension-locks`, did you mean `stale-extension-lock`?\n"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--yes",), "--fix --yes"),
        (("--fix",), "there is no terminal"),
        (("--python", "/no/such/python"), "No such file"),
        (("--python", "/bin/true"), "not a Python interpreter"),
        (("--format", "xml"), "invalid choice"),
        (("--host", "-oProxyCommand=touch x"), "no host name"),
        (("--bogus",), "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_one_line_and_2(flags: tuple[str, ...], says: str) -> None:
    done = dslint("doctor", *flags)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert done.err.count("\n") == 1


def test_list_names_all_checks() -> None:
    done = dslint("doctor", "--list")
    assert done.code == 0
    assert len(done.out.splitlines()) == 14


def test_a_stale_lock_on_the_real_machine_is_named_and_removed(private: Path) -> None:
    lock = make_stale(private)
    done = dslint("doctor", "--check", "D1")
    assert done.code == 1
    assert f"error    D1 stale-extension-lock: {lock} (1 h old) is stale\n" in done.out
    assert "         repair: dslint doctor --fix\n" in done.out
    assert lock.exists()
    done = dslint("doctor", "--check", "D1", "--fix", "--yes")
    assert done.code == 0
    assert f"ok       D1 stale-extension-lock: {lock} (1 h old) is stale: removed\n" in done.out
    assert not lock.exists()
    assert lock.parent.exists()


def test_a_lock_that_a_real_process_holds_is_in_use(private: Path) -> None:
    lock = make_stale(private)
    hold = f"import os; os.open({str(lock)!r}, os.O_RDONLY); print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        done = dslint("doctor", "--check", "D1", "--fix", "--yes")
        assert done.code == 0
        assert f"process {child.pid}" in done.out
        assert lock.exists()
    finally:
        child.kill()
        child.communicate()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "removed"), [("y\n", True), ("YES\n", True), ("\n", False), ("no\n", False), ("", False)]
)
def test_fix_asks_on_a_terminal(
    private: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, removed: bool
) -> None:
    lock = make_stale(private)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert command.main(["--check", "D1", "--fix"]) == (0 if removed else 1)
    assert lock.exists() is not removed
    shown = capsys.readouterr()
    assert "Remove it? [y/N]" in shown.err
    assert "Remove it?" not in shown.out


def test_nothing_is_removed_without_fix(private: Path) -> None:
    lock = make_stale(private)
    assert dslint("doctor", "--format", "json").code == 1
    assert lock.exists()


def test_json_is_versioned_and_says_what_text_says(private: Path) -> None:
    lock = make_stale(private)
    done = dslint("doctor", "--check", "D1", "--check", "D13", "--format", "json")
    report = json.loads(done.out)
    assert report["version"] == 1
    assert report["python"] == sys.executable
    assert set(report["packages"]) == {"torch", "deepspeed", "transformers", "accelerate"}
    first, second = report["checks"]
    assert (first["id"], first["name"], first["status"]) == ("D1", "stale-extension-lock", "error")
    assert first["outcomes"][0]["found"].startswith(str(lock))
    assert first["outcomes"][0]["fixable"] is True
    assert set(first["outcomes"][0]) == {"status", "found", "reason", "repair", "fixable"}
    assert second["id"] == "D13"


def test_all_checks_run_on_the_real_machine(private: Path) -> None:
    done = dslint("doctor")
    assert done.code in (0, 1)
    assert "the check itself failed" not in done.out
    lines = [line for line in done.out.splitlines()[1:-1] if not line.startswith(" ")]
    assert {line.split()[1] for line in lines} == {f"D{number}" for number in range(1, 15)}
    assert done.out.splitlines()[-1].startswith("14 checks: ")


def test_colour_only_where_it_is_asked_for(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stale(private)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[" not in dslint("doctor", "--check", "D1").out
    coloured = dslint("doctor", "--check", "D1", "--color", "always").out
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == dslint("doctor", "--check", "D1").out


def test_names_with_control_characters_stay_on_their_line(private: Path) -> None:
    build = private / "a\n\x1b[31mb"
    build.mkdir(parents=True)
    (build / "build.ninja").touch()
    (build / "lock").touch()
    done = dslint("doctor", "--check", "D1")
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) == len(done.out.split("\n")) - 1


def broken(machine: Machine) -> list[Outcome]:
    raise ZeroDivisionError("the answer")


def test_a_check_that_fails_is_unknown_and_stops_no_other(tmp_path: Path) -> None:
    meta = CheckMeta("D99", "broken", "")
    checks = (Check(meta, "", broken), Check(meta, "", lambda machine: [ok("fine")]))
    first, second = command.run(FakeMachine(tmp_path).machine(), checks)
    assert first.status.value == "unknown"
    assert "ZeroDivisionError: the answer" in first.outcomes[0].reason
    assert second.status.value == "ok"


def test_a_check_that_never_ends_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "CHECK_SECONDS", 0.05)
    slow = Check(CheckMeta("D99", "slow", ""), "", lambda machine: [ok("late")] * bool(time.sleep(1) or 1))
    (result,) = command.run(FakeMachine(tmp_path).machine(), (slow,))
    assert result.status.value == "unknown"


def test_without_a_home_and_a_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    machine = Machine(Python.current(), environ={})
    assert (machine.home, machine.cwd) == (Path("/"), Path("/"))


def test_unknown_does_not_fail(tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # An interpreter whose environment holds nothing: versions and tool chain cannot be compared.
    import venv

    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    done = dslint("doctor", "--python", str(tmp_path / "empty/bin/python"), "--check", "D5", "--check", "D4")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines() if line.startswith("unknown")] == ["unknown", "unknown"]
    assert "no torch" in done.out


def test_another_environment_is_asked_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import venv

    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    python = Python.ask(tmp_path / "other/bin/python")
    assert python.version == sys.version_info[:2]
    assert python.prefix == tmp_path / "other"
    assert python.executable == tmp_path / "other/bin/python"
    assert python.torch is None
    assert python.build_tag is None
    with pytest.raises(NoPython):
        Python.ask(tmp_path)


def test_a_module_of_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('run')\n")
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in Python.ask(Path(sys.executable)).paths


def test_torch_is_read_as_text(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.torch("2.3.0+cu121", cuda="12.1")
    python = fake.machine().python
    assert python.build_tag == "py311_cu121"
    assert (python.release("torch"), python.release("deepspeed")) == ("2.3.0+cu121", None)
    (fake.site / "torch/version.py").write_text("__version__ = '2.1.0+rocm5.6'\ncuda = None\nhip = '5.6.31061'\n")
    assert fake.machine().python.build_tag == "py311_rocm5631061"
    (fake.site / "torch/version.py").write_text("def broken(:\n")
    assert fake.machine().python.torch is None


def test_the_doctor_imports_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys\nfrom dslint.cli import run\nrun(['doctor', '--format', 'json'])\n"
        "heavy = {'torch', 'deepspeed', 'transformers', 'accelerate', 'libcst', 'tree_sitter', 'dslint.engine.run'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_a_program_that_hangs_is_bounded_and_ended(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.program("slow", 'echo $$ > "$TMPDIR/pid"; PATH=/bin:/usr/bin sleep 60')
    fake.program("good", 'echo "$1"')
    machine = fake.machine()
    begin = time.monotonic()
    ran = machine.run("slow", seconds=0.5)
    assert time.monotonic() - begin < 10
    assert ran.trouble == "`slow` gave no answer in 0.5 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert machine.run("good", "day").out == "day\n"
    assert machine.run("missing").trouble == "`missing` is not on PATH"


def test_a_resolver_that_hangs_is_bounded(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path).machine(lookup=lambda name: time.sleep(3) or ())
    assert machine.look_up("x", seconds=0.05).trouble == "no answer in 0.05 s"


def test_the_mount_of_a_path_is_the_innermost_and_latest(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    inner = tmp_path / "my data"
    inner.mkdir()
    fake.mount("nfs4", str(inner).replace(" ", "\\040"))
    machine = fake.machine()
    assert [m.kind for m in (machine.mount_of(inner / "not yet"), machine.mount_of(tmp_path)) if m] == ["nfs4", "ext4"]
    fake.mount("tmpfs", str(inner).replace(" ", "\\040"))
    mount = fake.machine().mount_of(inner)
    assert mount is not None
    assert mount.kind == "tmpfs"


def test_an_empty_extensions_variable_means_the_current_folder_as_for_torch(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.environ["TORCH_EXTENSIONS_DIR"] = ""
    build = fake.folder / "toy"
    build.mkdir()
    (build / "build.ninja").touch()
    lock = lock_in(build)
    from dslint.doctor.checks.d01_stale_extension_lock import check

    assert str(lock) in check(fake.machine())[0].found
