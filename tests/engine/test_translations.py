"""A page and its translation are one finding with two places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dslint.cli import main
from dslint.engine.run import check_paths
from dslint.engine.translations import joined_pages, page_of
from dslint.settings import make_settings

_PAGE = "# %s\n\n```bash\n%s\n```\n"
_RUN = "torchrun --nproc_per_node=4 train.py --learning_rate 1"
_SCRIPT = "import argparse\n\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"


def found(project: Path, pages: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    (project / ".git").mkdir()
    for name, text in {**pages, "train.py": _SCRIPT}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, "utf-8")
    monkeypatch.chdir(project)
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1}, Path(os.curdir)))
    told = [finding for finding in joined_pages(result.findings) if finding.code == "DSL403"]
    return [(f.location.path, [r.path for r in f.related if r.path.endswith(".md")]) for f in told]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("README.md", "README_zh.md"),
        ("README.md", "README.zh-CN.md"),
        ("docs/start.md", "docs/start_cn.md"),
        ("docs/en/start.md", "docs/zh_cn/start.md"),
    ],
)
def test_a_page_and_its_translation_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    pages = {first: _PAGE % ("Run", _RUN), second: _PAGE % ("\u8fd0\u884c", _RUN)}
    assert found(tmp_path, pages, monkeypatch) == [(first, [second])]


def test_what_only_one_of_them_says_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "README.md": _PAGE % ("Run", _RUN),
        "README_zh.md": _PAGE % ("x", _RUN + "\n" + _RUN.replace("learning_rate", "seed")),
        "OTHER.md": _PAGE % ("x", _RUN),
    }
    assert found(tmp_path, pages, monkeypatch) == [
        ("OTHER.md", []),
        ("README.md", ["README_zh.md"]),
        ("README_zh.md", []),
    ]


def test_the_command_line_tells_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found(tmp_path, dict.fromkeys(("README.md", "README_zh.md"), _PAGE % ("Run", _RUN)), monkeypatch)
    with pytest.raises(SystemExit):
        main(["--no-cache", "."])
    assert capsys.readouterr().out.count("DSL403") == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("README.md", ("/README.md", False)),
        ("README_zh.md", ("/README.md", True)),
        ("docs/zh-CN/a.md", ("docs/*/a.md", True)),
        ("docs/agent.md", ("docs/agent.md", False)),
    ],
)
def test_the_name_of_a_page(path: str, expected: tuple[str, bool]) -> None:
    name, has_language = page_of(path)
    assert (name.removeprefix("/"), has_language) == (expected[0].removeprefix("/"), expected[1])
