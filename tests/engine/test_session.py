"""A folder that is looked at again and again: each look says what a first look at the same texts would say."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from dslint.core.finding import Finding
from dslint.core.stopping import Interrupted
from dslint.engine.inputs import LaunchFile
from dslint.engine.launchstage import LaunchRead, LaunchReader
from dslint.engine.run import check_paths
from dslint.engine.session import Look, Session
from dslint.settings import load_settings

CONFIG = (
    '{\n  "train_batch_size": 32,\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {"stage": 2}\n}\n'
)
FILES = {
    "ds.json": CONFIG,
    "settings.sh": "export GPUS=8\n",
    "run.sh": "source settings.sh\ndeepspeed --num_gpus $GPUS train.py --deepspeed_config ds.json\n",
    "docs.md": "# x\n\n```bash\ntorchrun --nproc_per_node 2 plain.py --lr 1\n```\n",
    "train.py": (
        "import argparse\nimport deepspeed\nfrom helpers import options, save\n\n"
        "args = options()\nengine, *_ = deepspeed.initialize(args=args, model=1, optimizer=2)\nsave(engine)\n"
    ),
    "helpers.py": (
        "import argparse\nimport deepspeed\nimport torch.distributed as dist\n\n"
        "def options():\n    p = argparse.ArgumentParser()\n    p.add_argument('--local_rank', type=int)\n"
        "    return deepspeed.add_config_arguments(p).parse_args()\n\n"
        "def save(engine):\n    if dist.get_rank() == 0:\n        engine.save_checkpoint('x')\n"
    ),
    "plain.py": (
        "import argparse\nimport torch.distributed as dist\n\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr')\nargs = p.parse_args()\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n    dist.barrier()\n"
    ),
    "names.py": "from torch._six import string_classes\n",
    "requirements.txt": "deepspeed==0.14.4\ntorch==2.1.2\n",
    "accelerate.yaml": (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\n"
        "deepspeed_config:\n  zero_stage: 2\n"
    ),
}
# Changes one after the other; a text of None is the disk's again.
EDITS: dict[str, dict[str, str | None]] = {
    "a comment": {"ds.json": "\n" + CONFIG},
    "numbers that do not fit": {"ds.json": CONFIG.replace("32", "30")},
    "another launch": {"run.sh": FILES["run.sh"].replace("$GPUS", "5")},
    "what the launch sources": {"run.sh": None, "settings.sh": "export GPUS=3\n"},
    "a key": {"ds.json": CONFIG.replace("train_batch_size", "train_batchsize")},
    "nothing more": {"ds.json": None, "settings.sh": None},
    "a script": {"plain.py": FILES["plain.py"].replace("== 0", "!= 0") + "\ndist.barrier()\n"},
    "a script that others import": {"helpers.py": FILES["helpers.py"].replace("if dist.get_rank() == 0", "if True")},
    "an option that others pass": {"plain.py": FILES["plain.py"].replace("'--lr'", "'--rate'")},
    "no Python": {"helpers.py": "def (:\n"},
    "all again": {"helpers.py": None, "plain.py": None},
    "another release": {"requirements.txt": "deepspeed==0.19.8\ntorch==1.12.1\n"},
    "another place of a release": {"requirements.txt": "\n\ndeepspeed==0.19.8\ntorch==1.12.1\n"},
    "an own release": {"requirements.txt": None},
    "a file that is new": {"new.sh": "deepspeed --num_gpus 7 train.py --deepspeed_config ds.json\n"},
    "which changes": {"new.sh": "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n"},
    "and goes": {"new.sh": None},
    "a file of no kind of ours": {"notes.txt": "deepspeed train.py\n"},
    "YAML": {"accelerate.yaml": FILES["accelerate.yaml"].replace("zero_stage: 2", "zero_stage: 9")},
    "documentation": {"docs.md": FILES["docs.md"].replace("--lr 1", "--nosuch 1")},
    "suppressed": {"plain.py": FILES["plain.py"].replace("barrier()", "barrier()  # dslint: ignore[DSL201]")},
}


def shown(findings: list[Finding]) -> list[tuple[object, ...]]:
    return [
        (f.code, str(f.location), f.location.region, f.message, tuple(map(repr, f.related)), f.fix) for f in findings
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "project"
    (place / ".git").mkdir(parents=True)
    for name, text in FILES.items():
        (place / name).write_text(text)
    monkeypatch.chdir(place)
    return place


def fresh(texts: Mapping[str, str]) -> list[tuple[object, ...]]:
    settings = load_settings(Path(), {"cache": False, "jobs": 1, "force-exclude": True})
    return shown(check_paths([".", *texts], settings, texts).findings)


def test_every_look_is_as_good_as_the_first(folder: Path) -> None:
    session = Session(".", load_settings(Path(), {}))
    texts: dict[str, str] = {}
    assert shown(session.look(texts, lambda: False).result.findings) == fresh({})
    session.save()
    different = set()
    for what, changes in EDITS.items():
        for path, text in changes.items():
            texts.pop(path, None)
            if text is not None:
                texts[path] = text
        look = session.look(texts, lambda: False, is_quick=True)
        if not look.is_settled:
            look = session.look(texts, lambda: False)
        assert look.is_settled
        found = shown(look.result.findings)
        assert found == fresh(texts), what
        different.add(str(found))
    # The changes do change what is found.
    assert len(different) >= 12


def test_another_release_is_told_before_the_scripts_are_judged_again(folder: Path) -> None:
    session = Session(".", load_settings(Path(), {}))
    before = places(session.look({}, lambda: False), "names.py")
    texts = {"requirements.txt": "# none of them is new\ndeepspeed==0.14.4\ntorch==1.12.1\n"}
    look = session.look(texts, lambda: False, is_quick=True, is_first=True)
    assert not look.is_settled
    assert places(look, "names.py") == before
    assert shown(session.look(texts, lambda: False).result.findings) == fresh(texts)


def test_another_release_leaves_what_was_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pin that moves to another line does not have all launch files and the arguments of scripts read again."""
    session = Session(".", load_settings(Path(), {}))
    session.look({}, lambda: False)
    read: list[str] = []
    reader = LaunchReader.read

    def noted(self: LaunchReader, file: LaunchFile) -> LaunchRead:
        read.append(file.path)
        return reader(self, file)

    monkeypatch.setattr(LaunchReader, "read", noted)
    texts = {"requirements.txt": "\n" + FILES["requirements.txt"]}
    assert not session.look(texts, lambda: False, is_quick=True, is_first=True).is_settled
    assert read == []
    # Rules ask these files for releases: they are judged once more in the end.
    assert session.look(texts, lambda: False).is_settled
    assert set(read) >= {"run.sh", "docs.md"}


def test_a_quick_look_judges_what_has_changed(folder: Path) -> None:
    session = Session(".", load_settings(Path(), {}))
    session.look({}, lambda: False)
    text = FILES["plain.py"].replace("== 0", "== 1") + "\n\n# more\n"
    quick = session.look({"plain.py": text}, lambda: False, is_quick=True)
    own = [row for row in shown(quick.result.findings) if str(row[1]).startswith("plain.py")]
    assert own == [row for row in fresh({"plain.py": text}) if str(row[1]).startswith("plain.py")]


def test_a_look_that_is_given_up_is_made_up_for(folder: Path) -> None:
    session = Session(".", load_settings(Path(), {}))
    session.look({}, lambda: False)
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 3

    texts = {"ds.json": CONFIG.replace("32", "30"), "helpers.py": FILES["helpers.py"] + "\n"}
    with pytest.raises(Interrupted):
        session.look(texts, stop)
    assert shown(session.look(texts, lambda: False).result.findings) == fresh(texts)


def places(look: Look, path: str) -> list[tuple[str, int]]:
    return [(f.code, f.location.region.line) for f in look.result.findings if f.location.path == path]


def slow(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the judgement of each script counts as one that takes long."""
    monkeypatch.setattr("dslint.engine.judge.Judge.is_quick", lambda judge, path: False)


def test_what_takes_long_moves_with_its_text_until_it_is_judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(".", load_settings(Path(), {}))
    before = places(session.look({}, lambda: False), "plain.py")
    assert before
    slow(session, monkeypatch)
    old = FILES["plain.py"]
    text = "\n\n" + old
    look = session.look({"plain.py": text}, lambda: False, is_quick=True, is_first=True)
    assert (look.is_judged, look.is_settled) == (False, False)
    assert places(look, "plain.py") == [(code, line + 2) for code, line in before]
    # A change of the line takes the finding away until somebody has judged it.
    text = text.replace("    dist.barrier()", "    dist.barrier( )")
    look = session.look({"plain.py": text}, lambda: False, is_quick=True, is_first=True)
    assert len(places(look, "plain.py")) < len(before)
    look = session.look({"plain.py": text}, lambda: False, is_quick=True)
    assert look.is_judged
    assert places(look, "plain.py") == [(code, line + 2) for code, line in before]
    assert shown(session.look({"plain.py": text}, lambda: False).result.findings) == fresh({"plain.py": text})


def test_text_that_is_no_python_does_not_wait_and_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(".", load_settings(Path(), {}))
    before = places(session.look({}, lambda: False), "plain.py")
    slow(session, monkeypatch)
    old = FILES["plain.py"]
    session.look({"plain.py": old + "\n"}, lambda: False)
    look = session.look({"plain.py": old + "\nx = (\n"}, lambda: False, is_quick=True, is_first=True)
    assert look.is_judged
    assert [code for code, _ in places(look, "plain.py")] == ["DSL900"]
    look = session.look({"plain.py": old + "\nx = (1)\n"}, lambda: False, is_quick=True, is_first=True)
    assert not look.is_judged
    assert places(look, "plain.py") == before


def test_names_are_judged_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(".", load_settings(Path(), {}))
    session.look({}, lambda: False)
    slow(session, monkeypatch)
    look = session.look({"names.py": "x = 1\n" + FILES["names.py"]}, lambda: False, is_quick=True, is_first=True)
    assert places(look, "names.py") == [("DSL501", 2)]
    look = session.look({"names.py": "import torch\n"}, lambda: False, is_quick=True, is_first=True)
    assert places(look, "names.py") == []


def test_a_suppression_is_not_unused_while_its_finding_is_not_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(".", load_settings(Path(), {}))
    text = FILES["plain.py"].replace("barrier()", "barrier()  # dslint: ignore[DSL201]")
    before = places(session.look({"plain.py": text}, lambda: False), "plain.py")
    assert "DSL201" not in dict(before)
    slow(session, monkeypatch)
    text = text.replace("dist.barrier()", "dist.barrier( )")
    look = session.look({"plain.py": text}, lambda: False, is_quick=True, is_first=True)
    assert not look.is_judged
    assert places(look, "plain.py") == before


@pytest.mark.parametrize("after", [1, 5, 20, 60, 150, 400])
def test_an_interpretation_that_is_given_up_leaves_nothing_behind(folder: Path, after: int) -> None:
    session = Session(".", load_settings(Path(), {}))
    session.look({}, lambda: False)
    for number, path in enumerate(("helpers.py", "train.py", "plain.py")):
        texts = {path: FILES[path] + "\n" * number + "\nprint(1)\n"}
        left = [after]

        def stop(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        with suppress(Interrupted):
            session.look(texts, stop)
        assert shown(session.look(texts, lambda: False).result.findings) == fresh(texts), path


def test_files_on_disk_come_and_go(folder: Path) -> None:
    session = Session(".", load_settings(Path(), {}))
    session.look({}, lambda: False)
    (folder / "more.sh").write_text("deepspeed --num_gpus 7 train.py --deepspeed_config ds.json\n")
    (folder / "docs.md").unlink()
    session.forget()
    assert shown(session.look({}, lambda: False).result.findings) == fresh({})
