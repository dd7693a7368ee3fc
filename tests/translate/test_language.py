"""``--lang``: what people read is in their language, what programs read only where somebody asks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = (
    "from transformers import Trainer, TrainingArguments\n\n"
    "args = TrainingArguments('out', label_names=['labels', 'metadata'])\n"
)
CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "gradient_clipp1ng": 1.0}\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds_config.json").write_text(CONFIG)
    return tmp_path


def dslint(project: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    plain = {
        name: text for name, text in os.environ.items() if name not in ("LANG", "LC_ALL", "LC_MESSAGES", "LANGUAGE")
    }
    return subprocess.run(
        [sys.executable, "-m", "dslint", *arguments],
        cwd=project,
        env={**plain, "PYTHONIOENCODING": "utf-8", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def has_chinese(text: str) -> bool:
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


def test_the_flag_chooses_the_language_of_findings_and_summary(project: Path) -> None:
    ran = dslint(project, "--no-cache", "--lang", "zh", ".")
    assert ran.returncode == 1
    assert "DSL101 error: " in ran.stdout
    assert has_chinese(ran.stdout)
    assert "发现" in ran.stderr
    assert "`gradient_clipping`" in ran.stdout  # the suggestion survives


def test_the_environment_chooses_it_for_people_only(project: Path) -> None:
    people = dslint(project, "--no-cache", ".", LANG="zh_CN.UTF-8")
    assert has_chinese(people.stdout)
    programs = dslint(project, "--no-cache", "--output-format", "json", ".", LANG="zh_CN.UTF-8")
    assert not has_chinese(programs.stdout)
    asked = dslint(project, "--no-cache", "--output-format", "json", "--lang", "zh", ".")
    assert any(has_chinese(finding["message"]) for finding in json.loads(asked.stdout)["findings"])


def test_the_language_changes_neither_codes_nor_names_nor_fingerprints(project: Path) -> None:
    reports = [
        json.loads(dslint(project, "--no-cache", "--output-format", "json", "--lang", language, ".").stdout)["findings"]
        for language in ("en", "zh")
    ]
    kept = [[{k: f[k] for k in ("code", "name", "path", "line", "severity")} for f in report] for report in reports]
    assert kept[0] == kept[1]
    gitlab = [
        json.loads(dslint(project, "--no-cache", "--output-format", "gitlab", "--lang", language, ".").stdout)
        for language in ("en", "zh")
    ]
    assert [f["fingerprint"] for f in gitlab[0]] == [f["fingerprint"] for f in gitlab[1]]


def test_settings_and_variable_choose_it_and_the_flag_wins(project: Path) -> None:
    assert has_chinese(dslint(project, "--no-cache", ".", DSLINT_LANG="zh").stdout)
    (project / "dslint.toml").write_text('lang = "zh"\n')
    assert has_chinese(dslint(project, "--no-cache", ".").stdout)
    assert not has_chinese(dslint(project, "--no-cache", "--lang", "en", ".").stdout)
    (project / "dslint.toml").write_text('lang = "xx"\n')
    refused = dslint(project, "--no-cache", ".")
    assert refused.returncode == 2
    assert "lang" in refused.stderr


def test_a_page_is_in_the_language(project: Path) -> None:
    page = dslint(project, "rule", "DSL203", "--lang", "zh").stdout
    assert page.startswith("# DSL203 trainer-extra-label-name\n")
    assert "**是什么。**" in page
    assert "**What.**" not in page
    assert "**What.**" in dslint(project, "rule", "DSL203").stdout


def test_the_labels_of_a_page_are_in_the_language(project: Path) -> None:
    page = dslint(project, "rule", "DSL203", "--examples", "--evidence", "--lang", "zh").stdout
    labels = ("## 会报告", "## 不会报告", "## 参考", "## 实验", "报告位置：`train.py:12 error`。", "自 0.1.0 起")
    assert [label for label in labels if label not in page] == []
    assert re.findall(r"(?m)^(?:## [A-Z]|Reported|With|After|\| platform).*", page) == []


def test_what_is_left_out_of_a_frame_or_fix_is_said_in_the_language(project: Path) -> None:
    keys = ",\n".join(f'  "unknown_{number}": 1' for number in range(20))
    (project / "ds_config.json").write_text(f'{{"train_batch_size": 8,\n"amp": {{\n{keys}\n}}}}\n')
    report = dslint(project, "--no-cache", "--output-format", "full", "--lang", "zh", ".").stdout
    assert "行，见 --diff" in report
    assert "more lines" not in report


def test_a_table_of_rules_is_in_the_language(project: Path) -> None:
    assert has_chinese(dslint(project, "rules", "DSL203", "--lang", "zh").stdout)
