"""The first look at a large folder: what another process has found is not judged again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pygls", reason="pip install 'deepspeed-lint[server]'")

from dslint.engine.cache import RememberedResults
from dslint.engine.judge import Job, Judge, Judged
from dslint.engine.run import check_paths, results_of
from dslint.server import warm
from dslint.server.analyst import Analyst
from dslint.server.client_settings import Wishes
from dslint.server.documents import Documents
from dslint.server.requests import Listener, Outcome

BAD = "import torch.distributed as dist\n\nif dist.get_rank() == 0:\n    dist.barrier()\n"
FILES = 24


class Heard(Listener):
    """Keeps the first look that has ended."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.ended = threading.Event()

    def looked(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.ended.set()


def test_results_of_the_first_process_are_not_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    for number in range(FILES):
        (project / f"train{number}.py").write_text(BAD)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(project)
    judged: list[str] = []
    judge = Judge.judged

    def noted(self: Judge, job: Job) -> Judged:
        judged.extend([job.path] * bool(job.codes))
        return judge(self, job)

    def first(root: str, wishes: Mapping[str, Any]) -> SimpleNamespace:
        """The process, at its end."""
        settings = replace(Wishes.of(wishes).settings(root)[0], force_exclude=True, jobs=1)
        results = RememberedResults(results_of(settings))
        check_paths([root], settings, results=results)
        results.save()
        return SimpleNamespace(poll=lambda: 0, kill=lambda: None)

    monkeypatch.setattr(Judge, "judged", noted)
    monkeypatch.setattr(warm, "start", first)
    heard = Heard()
    analyst = Analyst([str(project)], Wishes(), {}, heard)
    analyst.start()
    analyst.want(Documents())
    try:
        assert heard.ended.wait(60)
    finally:
        analyst.close()
    assert heard.outcome is not None
    assert len({finding.location.path for finding in heard.outcome.look.result.findings}) == FILES
    assert sorted(judged) == sorted(f"train{number}.py" for number in range(FILES))
