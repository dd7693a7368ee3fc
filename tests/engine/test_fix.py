"""--fix and --diff on real files: what survives, what is refused, and what a patch tool makes of the diff."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command import SCRIPT, SCRIPT_FIXED, dslint

from dslint.core.finding import Finding
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.engine import fixer
from dslint.rules.registry import load_rule

BOM = b"\xef\xbb\xbf"
SHELL = "#!/bin/bash\ntorchrun --nproc_per_node 8 \\ \n  train.py\n"
SHELL_FIXED = "#!/bin/bash\ntorchrun --nproc_per_node 8 \\\n  train.py\n"
PORT = "torchrun --nproc_per_node 8 --master_port 70000 train.py\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    return folder


SHAPES = {
    "plain": (SCRIPT.encode(), SCRIPT_FIXED.encode()),
    "windows": (SCRIPT.replace("\n", "\r\n").encode(), SCRIPT_FIXED.replace("\n", "\r\n").encode()),
    "mark": (BOM + SCRIPT.encode(), BOM + SCRIPT_FIXED.encode()),
    "mark-windows": (
        BOM + SCRIPT.replace("\n", "\r\n").encode(),
        BOM + SCRIPT_FIXED.replace("\n", "\r\n").encode(),
    ),
    "open-end": (SCRIPT.rstrip("\n").encode(), SCRIPT_FIXED.rstrip("\n").encode()),
    "tabs": (SCRIPT.replace("    ", "\t").encode(), SCRIPT_FIXED.encode()),
    "form-feed": (
        SCRIPT.replace("\n\n", "\n\x0c\n").encode(),
        SCRIPT_FIXED.replace("\n\n", "\n\x0c\n").encode(),
    ),
    "odd-breaks": (
        f"x = 'a\u2028b\x85c\x1cd'\n{SCRIPT}".encode(),
        f"x = 'a\u2028b\x85c\x1cd'\n{SCRIPT_FIXED}".encode(),
    ),
    "wide": (
        SCRIPT.replace("dist.init", "s = '变😀é'; dist.init").encode(),
        SCRIPT_FIXED.replace("dist.init", "s = '变😀é'; dist.init").encode(),
    ),
}


def write_shapes(folder: Path, fixed: bool) -> dict[str, bytes]:
    texts = {f"{name}.py": pair[fixed] for name, pair in SHAPES.items()}
    texts |= {
        "my dir/a b.sh": (SHELL_FIXED if fixed else SHELL).encode(),
        "变/é.sh": (SHELL_FIXED if fixed else SHELL).encode(),
        'q"uote\\.sh': (SHELL_FIXED if fixed else SHELL).encode(),
        "new\nline.sh": (SHELL_FIXED if fixed else SHELL).encode(),
        "tab\t.sh": (SHELL_FIXED if fixed else SHELL).encode(),
    }
    for name, raw in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    return texts


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and ".git" not in p.parts
    }


def test_fixes_keep_the_shape_of_the_text(project: Path) -> None:
    write_shapes(project, fixed=False)
    done = dslint("--fix")
    assert done.err.startswith("dslint: fixed 23 findings in 14 files\n")
    assert (done.code, done.out) == (0, "")
    expected = write_shapes(project.parent / "expected", fixed=True)
    assert contents(project) == expected


def test_a_second_run_changes_nothing(project: Path) -> None:
    write_shapes(project, fixed=False)
    dslint("--fix")
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in project.rglob("*")}
    done = dslint("--fix")
    assert (done.code, done.out, done.err) == (0, "", "No problems in 14 files.\n")
    assert dslint("--diff") == (0, b"", "")
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in project.rglob("*")}


@pytest.mark.parametrize("tool", [["git", "apply", "-p0", "--whitespace=nowarn"], ["patch", "-p0", "--binary", "-s"]])
def test_the_diff_is_a_patch(project: Path, tool: list[str]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    write_shapes(project, fixed=False)
    (project / "link.py").symlink_to("plain.py")
    (project / "nothing.py").write_text("print(1)\n")
    before = contents(project)
    done = dslint("--diff")
    assert done.code == 1
    assert contents(project) == before, "--diff writes nothing"
    if tool[0] == "git":
        subprocess.run(["git", "init", "-q", "."], check=True)
    patched = subprocess.run(tool, input=done.raw, capture_output=True)
    assert patched.returncode == 0, patched.stderr.decode()
    expected = write_shapes(project.parent / "expected", fixed=True)
    assert {**contents(project)} == {**expected, "link.py": expected["plain.py"], "nothing.py": b"print(1)\n"}
    assert (project / "link.py").is_symlink()


def test_two_names_of_one_file_are_fixed_once(project: Path) -> None:
    (project / "real.py").write_text(SCRIPT)
    (project / "link.py").symlink_to("real.py")
    assert dslint("--diff").out.count("+++ ") == 1
    done = dslint("--fix")
    assert done.code == 0, done
    assert "in 1 file\n" in done.err
    assert (project / "real.py").read_text() == SCRIPT_FIXED
    assert (project / "link.py").is_symlink()


def test_mode_and_link_targets_outside_the_folder_survive(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.sh").write_text(SHELL)
    (tmp_path / "outside.sh").chmod(0o754)
    (project / "run.sh").symlink_to(tmp_path / "outside.sh")
    assert dslint("--fix").code == 0
    assert (project / "run.sh").is_symlink()
    assert (tmp_path / "outside.sh").read_text() == SHELL_FIXED
    assert stat.S_IMODE((tmp_path / "outside.sh").stat().st_mode) == 0o754
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outside.sh", "project"], "nothing is left behind"


def fails(project: Path, reason: str) -> None:
    """One file cannot be written: it stays, its findings are reported, the other file is fixed."""
    done = dslint("--fix")
    assert done.code == 2
    assert done.err.splitlines()[0] == f"dslint: kept.py: not fixed: {reason}"
    assert "fixed 2 findings" not in done.err
    assert sorted(done.codes) == ["DSL201", "DSL221"]
    assert all(place.startswith("kept.py:") for place, _ in done.places)
    assert (project / "kept.py").read_text() == SCRIPT
    assert (project / "other.py").read_text() == SCRIPT_FIXED
    assert sorted(p.name for p in project.iterdir()) == ["kept.py", "other.py"], "nothing is left behind"


@pytest.fixture
def pair(project: Path) -> Path:
    (project / "kept.py").write_text(SCRIPT)
    (project / "other.py").write_text(SCRIPT)
    return project


def test_a_folder_that_cannot_be_written(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fixer.tempfile.mkstemp
    calls: list[object] = []

    def mkstemp(*arguments: object, **keywords: object) -> object:
        calls.append(keywords)
        if len(calls) == 1:
            raise PermissionError(13, "Permission denied")
        return real(*arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(fixer.tempfile, "mkstemp", mkstemp)
    fails(pair, "Permission denied")


def test_a_file_that_is_read_only(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("kept.py") and real(path, mode))
    fails(pair, "the file is read-only")


def test_a_full_disk_leaves_the_file_and_no_rubbish(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    calls: list[int] = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    fails(pair, "No space left on device")


@pytest.mark.parametrize("now", [SCRIPT + "x = 1\n", "", "caf\udce9"])
def test_a_file_that_changes_meanwhile_is_left_alone(pair: Path, monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    real = fixer.write

    def write(fixed: fixer.Fixed) -> list[str]:
        (pair / "kept.py").write_text(now, errors="surrogateescape")
        return real(fixed)

    monkeypatch.setattr(fixer, "write", write)
    done = dslint("--fix")
    assert done.code == 2
    assert done.err.splitlines()[0] == "dslint: kept.py: not fixed: it changed while dslint was reading it"
    assert (pair / "kept.py").read_text(errors="surrogateescape") == now
    assert (pair / "other.py").read_text() == SCRIPT_FIXED


def test_a_file_that_vanishes_meanwhile_is_named(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fixer.write

    def write(fixed: fixer.Fixed) -> list[str]:
        (pair / "kept.py").unlink()
        return real(fixed)

    monkeypatch.setattr(fixer, "write", write)
    done = dslint("--fix")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[0] == "dslint: kept.py: not fixed: No such file or directory"


def test_the_exit_code_counts_what_is_left(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT)
    (project / "run.sh").write_text(PORT)
    done = dslint("--fix", "--exit-zero")
    assert (done.code, done.codes) == (0, ["DSL309"])
    assert dslint("--fix").code == 1
    assert dslint("--fix", "--ignore", "DSL309").code == 0
    assert dslint("--fix-only").code == 0
    assert dslint("--fix", "missing.py").code == 2
    assert dslint("--diff", "missing.py").code == 2


def test_only_selected_rules_are_fixed(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT)
    assert dslint("--fix", "--select", "DSL201").code == 0
    text = (project / "train.py").read_text()
    assert "timeout=7200" in text
    assert "if dist" not in text


def test_suppressed_findings_are_not_fixed_unless_asked(project: Path) -> None:
    text = SCRIPT.replace("7200)", "7200)  # dslint: ignore[DSL221] on purpose")
    (project / "train.py").write_text(text)
    dslint("--fix")
    assert "timeout=7200)" in (project / "train.py").read_text()
    dslint("--fix", "--ignore-noqa")
    assert "timeout=timedelta(seconds=7200))" in (project / "train.py").read_text()


def test_unsafe_fixes_need_their_flag(project: Path) -> None:
    config = '{\n  "train_batch_size": 8,\n  "zero_optimization": {\n    "stage": 2, "overlap_comm": true\n  }\n}\n'
    (project / "ds.json").write_text(config)
    version = ("--deepspeed-version", "0.14.0")
    assert dslint("--fix", *version).code == 1
    silent = "dslint: 1 finding fixable with `--unsafe-fixes` only\n"
    assert dslint("--diff", *version) == (0, b"", silent)
    assert dslint("--fix-only", *version) == (0, b"", silent)
    assert dslint("--diff", "-q", *version) == (0, b"", "")
    assert (project / "ds.json").read_text() == config
    assert dslint("--fix", "--unsafe-fixes", *version).code == 0
    assert (project / "ds.json").read_text() == config.replace("true", "false")


def test_markdown_is_fixed_inside_its_fences_only(project: Path) -> None:
    text = (
        f"# Run\r\n\r\ntext \\ \r\n\r\n```bash\r\n{SHELL.replace(chr(10), chr(13) + chr(10))}```\r\n\r\n- item\r\n\r\n"
    )
    text += "  ```sh\r\n  torchrun --nproc_per_node 8 \\ \r\n    train.py\r\n  ```\r\n"
    (project / "README.md").write_bytes(text.encode())
    done = dslint("--fix")
    assert (done.code, done.out) == (0, "")
    assert (project / "README.md").read_bytes().decode() == text.replace("8 \\ \r\n", "8 \\\r\n")


def test_a_notebook_gets_no_fix_and_no_promise(project: Path) -> None:
    cells = ["import torch.distributed as dist\n", SCRIPT, "dist.barrier()  # noqa: DSL252\n"]
    notebook = {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell}
            for cell in cells
        ],
        "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    text = json.dumps(notebook)
    (project / "n.ipynb").write_text(text)
    done = dslint()
    assert done.codes == ["DSL221", "DSL201", "DSL903"]
    assert "[*]" not in done.out
    assert "fixable" not in done.err
    fixed = dslint("--fix", "--unsafe-fixes")
    assert fixed.raw == done.raw
    assert fixed.err == done.err
    assert (project / "n.ipynb").read_text() == text
    assert dslint("--diff") == (0, b"", "")
    report = json.loads(dslint("--output-format", "json").out)
    assert [f["fix"] for f in report["findings"]] == [None] * 3


# fixes that are wrong


def inject(monkeypatch: pytest.MonkeyPatch, code: str, fixes: dict[str, Fix | None]) -> None:
    """Replace the fixes of a rule: the first finding on a line that holds the text of the key gets the fix."""
    module = load_rule(code).module
    real = module.check

    def check(doc: object, context: object) -> Iterator[Finding]:
        for finding in real(doc, context):
            line = doc.source.line_text(finding.location.region.line)  # type: ignore[attr-defined]
            for part, fix in fixes.items():
                if part in line:
                    yield replace(finding, fix=fix)
                    break
            else:
                yield finding

    monkeypatch.setattr(module, "check", check)


def insertion(path: str, at: int, text: str) -> Fix:
    return Fix("Insert", (Edit(path, Span(at, at), text),), Safety.SAFE)


def test_a_fix_that_does_not_help_is_refused_and_the_others_are_applied(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "run.sh").write_text(PORT + SHELL)
    inject(monkeypatch, "DSL309", {"70000": insertion("run.sh", 0, "# of no use\n")})
    done = dslint("--fix")
    assert done.code == 1
    said = done.err.splitlines()
    assert said[0] == "dslint: run.sh:1: the fix of DSL309 was not applied: the finding would stay"
    assert said[1] == "dslint: fixed 1 finding in 1 file"
    assert done.codes == ["DSL309"]
    assert (project / "run.sh").read_text() == PORT + SHELL_FIXED


def test_a_fix_that_leaves_a_new_finding_of_any_rule_is_refused(project: Path) -> None:
    text = '{\n  "train_batch_size": 8,\n  "bf16": {"enable": true},\n  "fp16": {"enabled": true}\n}\n'
    (project / "ds.json").write_text(text)
    done = dslint("--fix", "--unsafe-fixes")
    assert "was not applied: DSL140 would come: " in done.err
    assert done.codes == ["DSL102"], "with `enabled`, DeepSpeed refuses fp16 beside bf16 (DSL140)"
    assert (project / "ds.json").read_text() == text


def test_one_wrong_fix_among_many_costs_few_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixes: dict[str, Fix | None] = {}
    for number in range(40):
        text, port = f"torchrun --nproc_per_node 8 --master_port 7{number:04} a.py\n", f"7{number:04}"
        (project / f"run{number}.sh").write_text(text)
        span = Span(text.index(port), text.index(port) + 5)
        fixes[port] = Fix("Port", (Edit(f"run{number}.sh", span, "29500"),), Safety.SAFE)
    fixes["70007"] = insertion("run7.sh", 0, "# of no use\n")
    inject(monkeypatch, "DSL309", fixes)
    runs: list[object] = []
    real = fixer.check_paths
    monkeypatch.setattr(fixer, "check_paths", lambda *a, **k: runs.append(a) or real(*a, **k))
    done = dslint("--fix")
    assert done.codes == ["DSL309"]
    assert len(runs) <= 4, "once, with all fixes, with those of other files, with the one that is left"


def test_a_fix_that_breaks_the_file_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "nonsense": 1}\n}\n'
    (project / "ds.json").write_text(text)
    at = text.index(', "nonsense": 1')
    broken = Fix("Cut", (Edit("ds.json", Span(at, len(text)), ""),), Safety.SAFE)
    inject(monkeypatch, "DSL102", {"nonsense": broken})
    done = dslint("--fix")
    assert done.code == 1
    assert "was not applied: the file would not parse" in done.err
    assert (project / "ds.json").read_text() == text


def test_fixes_that_overlap_are_applied_one_after_the_other(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both change the same words; the second is judged again after the first."""
    text = (
        "torchrun --nproc_per_node 8 --master_port 70000 a.py\ntorchrun --nproc_per_node 8 --master_port 70001 b.py\n"
    )
    (project / "run.sh").write_text(text)
    start, end = text.index("70000"), text.index("70001") + 5
    both = Fix("Both", (Edit("run.sh", Span(start, end), text[start:end].replace("7000", "2950")),), Safety.SAFE)
    inject(monkeypatch, "DSL309", {"a.py": both, "b.py": both})
    done = dslint("--fix")
    assert done.code == 0, done
    assert (project / "run.sh").read_text() == text.replace("7000", "2950")


def test_a_fix_never_reaches_a_file_that_was_not_given(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "run.sh").write_text(PORT)
    (project / "other.sh").write_text("echo\n")
    inject(monkeypatch, "DSL309", {"70000": insertion("other.sh", 0, "x")})
    assert dslint("--fix", "run.sh").code == 1
    assert (project / "other.sh").read_text() == "echo\n"
