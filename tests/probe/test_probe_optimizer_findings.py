"""Findings about optimizer, schedule and clipping run the user's own file under the judge that can show the mistake."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from dslint.cli import _subjects
from dslint.probe.registry import of_finding
from dslint.rules.registry import load_rule

ENGINE, EFFECT, PARSER = "config-refused-by-engine", "config-other-effect", "config-refused"


@pytest.mark.parametrize(
    ("code", "judges"),
    [
        ("DSL117", [ENGINE] * 4),
        ("DSL118", [ENGINE] * 4),
        ("DSL120", [EFFECT]),
        ("DSL121", [EFFECT] * 2),
        ("DSL122", [ENGINE] * 5),
        ("DSL123", [ENGINE] * 2),
        ("DSL125", [ENGINE] * 3),
        ("DSL126", [ENGINE]),
        ("DSL127", [ENGINE] * 3),
        ("DSL128", [ENGINE] * 4),
        ("DSL129", [ENGINE] * 3 + [EFFECT]),
        ("DSL168", [EFFECT] * 4),
        ("DSL169", [EFFECT, None]),
        ("DSL171", [EFFECT]),
        ("DSL172", [ENGINE] * 3 + [PARSER]),
        ("DSL468", [ENGINE]),
        ("DSL469", [EFFECT]),
        ("DSL470", [ENGINE]),
        ("DSL471", [ENGINE]),
        ("DSL472", [EFFECT]),
    ],
)
def test_the_bad_examples_get_their_judge(code: str, judges: list[str | None], tmp_path: Path) -> None:
    found = []
    for number, example in enumerate(e for e in load_rule(code).module.EXAMPLES if e.at):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in example.files.items():
            (folder / name).write_text(text)
        stated: dict[str, Any] = {name.replace("-", "_"): value for name, value in example.settings.items()}
        given = Namespace(**{"world_size": None, "deepspeed_version": None, **stated})
        for subject in _subjects([str(folder)], given):
            if subject.finding.code == code:
                chosen = of_finding(subject)
                found.append(chosen[0].experiment.name if chosen else None)
                if chosen is not None:
                    assert chosen[1].params["text"] == example.files["ds.json"]
                    assert chosen[1].name == subject.finding.name
    assert found == judges


def test_a_finding_that_the_script_must_mend_keeps_the_file_in_both_arms(tmp_path: Path) -> None:
    (example,) = (e for e in load_rule("DSL469").module.EXAMPLES if e.at)
    for name, text in example.files.items():
        (tmp_path / name).write_text(text)
    subjects = _subjects([str(tmp_path)], Namespace(world_size=None, deepspeed_version=None))
    (subject,) = (s for s in subjects if s.finding.code == "DSL469")
    chosen = of_finding(subject)
    assert chosen is not None
    params = chosen[1].params
    assert params["fixed"] == params["text"]
    assert (params["client"], params["repaired"]) == ("AdamW", {"client": ""})
