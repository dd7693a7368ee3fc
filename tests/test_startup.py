"""What a run loads before it can answer: a hook or an editor pays for every import each time."""

from __future__ import annotations

import pytest

from dslint import scripts
from dslint.model.context import Context


def test_a_rule_that_needs_a_world_size_does_not_make_a_script_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("dslint.parse.python.parse_ast", refuse)
    raw = b"import torch.distributed as dist\nper_rank = 6 // dist.get_world_size()\n"
    assert scripts.check_script(scripts.Job("a.py", raw, "script", ("DSL270",), Context())) == []
