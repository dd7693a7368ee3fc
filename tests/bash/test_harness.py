"""The harness itself: it sees a difference, and nothing of the machine can be reached from a script."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bashrun import comparing
from bashrun.comparing import compare_script
from bashrun.sandbox import Sandbox

from dslint.core.source import SourceFile
from dslint.model.launch.document import LaunchDoc, read_launch_docs
from dslint.model.workspace import Workspace

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def run(sandbox: Sandbox, folder: Path, text: str) -> list[tuple[str, ...]]:
    (folder / "run.sh").write_text(text)
    return [record.argv for record in sandbox.run(folder, "run.sh").records]


def misread(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dslint that reads another text than bash runs."""

    def reader(source: SourceFile, kind: str, workspace: Workspace | None) -> list[LaunchDoc]:
        return read_launch_docs(SourceFile(source.path, source.text.replace(old, new)), kind, workspace)

    monkeypatch.setattr(comparing, "read_launch_docs", reader)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [("lr=1", "lr=2", "words"), ("INFO", "WARN", "variable"), ('"a b"', "a b", "words"), ("# ", "X=1;", "")],
)
def test_what_dslint_reads_wrongly_is_a_difference(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, kind: str
) -> None:
    (tmp_path / "run.sh").write_text('# a\nlr=1\nexport NCCL_DEBUG=INFO\ndeepspeed train.py --lr $lr --name "a b"\n')
    misread(old, new, monkeypatch)
    figures = compare_script(sandbox, tmp_path, "run.sh")
    assert [d.kind for d in figures.differences] == ([kind] if kind else [])
    assert figures.commands == 1


def test_a_command_that_dslint_does_not_see_is_told(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.sh").write_text("torchrun a.py\ndeepspeed b.py\n")
    misread("deepspeed", "echo", monkeypatch)
    figures = compare_script(sandbox, tmp_path, "run.sh")
    assert figures.not_seen == ["run.sh:2: deepspeed b.py"]


def test_words_arrive_byte_by_byte(sandbox: Sandbox, tmp_path: Path) -> None:
    text = "python x.py 'a  b' $'t\\tn\\n' \"\" \\* é\nfoo --unknown 'program'\n"
    assert run(sandbox, tmp_path, text) == [
        ("python", "x.py", "a  b", "t\tn\n", "", "*", "é"),
        ("foo", "--unknown", "program"),
    ]


def test_programs_run_what_they_wrap(sandbox: Sandbox, tmp_path: Path) -> None:
    text = (
        "nohup env A=1 python a.py &\nwait\nsrun -N 2 bash -c 'torchrun b.py'\nssh -p 22 host 'python c.py'\n"
        "docker run -e B=2 image bash -c 'python d.py'\nsbatch <<E\npython e.py\nE\n(sleep 100; python f.py) &\n"
    )
    found = run(sandbox, tmp_path, text)
    inner = {words for words in found if words[0] in ("python", "torchrun")}
    assert {words[-1] for words in inner} >= {"a.py", "b.py", "c.py", "d.py", "e.py"}
    if sandbox.isolated:
        assert ("python", "f.py") in inner


def test_a_script_that_does_not_end_is_stopped(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python a.py\nwhile true; do :; done\n")
    done = sandbox.run(tmp_path, "run.sh", seconds=1)
    assert done.timed_out
    assert [record.argv for record in done.records] == [("python", "a.py")]


def test_nothing_of_the_machine_is_in_reach(sandbox: Sandbox, tmp_path: Path) -> None:
    if not sandbox.isolated:
        pytest.skip("namespaces need root or user namespaces")
    secret = tmp_path / "secret"
    secret.write_text("here")
    project = tmp_path / "project"
    project.mkdir()
    (project / "data.txt").write_text("kept")
    text = (
        f"[ -e {secret} ] && python sees\n[ -w /tools ] && python writes\n: > /etc/x && python etc\n"
        "rm -rf / 2>/dev/null\nrm -rf ./*\nkill -9 -1\npython after\n"
        "exec 3<>/dev/tcp/127.0.0.1/22 && python connects\n"
    )
    found = run(sandbox, project, text)
    assert [words for words in found if words[0] == "python"] in ([("python", "after")], [])
    assert (project / "data.txt").read_text() == "kept"
    assert secret.exists()
