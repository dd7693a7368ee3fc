"""A DeepSpeed config that is no proper JSON, or no object: a finding at its place, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import dslint

STAGE_4 = '{"train_batch_size": 8,\n "zero_optimization": {"stage": 4}}'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / ".cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("raw", "place", "code"),
    [
        pytest.param(b"", "ds_config.json:1:1", "DSL900", id="empty"),
        pytest.param(b" \n\t\n", "ds_config.json:1:1", "DSL900", id="blanks"),
        pytest.param(b'\n [{"train_batch_size": 8}]\n', "ds_config.json:2:2", "DSL110", id="list at top level"),
        pytest.param(b"null", "ds_config.json:1:1", "DSL110", id="null at top level"),
        pytest.param(b"17\n", "ds_config.json:1:1", "DSL110", id="number at top level"),
        pytest.param(STAGE_4[:-1].encode(), "ds_config.json:1:1", "DSL900", id="unclosed"),
        pytest.param(f"{STAGE_4}}}".encode(), "ds_config.json:2:36", "DSL900", id="closed twice"),
        pytest.param(b'{"train_batch_size": ' + b"9" * 5000 + b"}", "ds_config.json:1:22", "DSL900", id="5000 digits"),
        pytest.param(STAGE_4.encode("utf-8-sig"), "ds_config.json:2:33", "DSL110", id="byte order mark"),
        pytest.param(STAGE_4.encode("utf-16"), "ds_config.json:1:1", "DSL902", id="UTF-16"),
        pytest.param(
            b"{\n  train_batch_size: 8 # Hjson\n  zero_optimization: {stage: 4}\n}",
            "ds_config.json:3:30", "DSL110", id="Hjson",
        ),
        pytest.param(
            b'{"train_batch_size": 8, "zero_optimization": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
            "ds_config.json:1:1041", "DSL900", id="5000 levels",
        ),
        pytest.param(
            b'{"train_batch_size": 8, "zero_optimization": {"stage": 1, "reduce_bucket_size": 1e400}}',
            "ds_config.json:1:81", "DSL110", id="beyond a double",
        ),
        pytest.param(
            b'{"train_batch_size": 8, "zero_optimization": {"stage": NaN}}', "ds_config.json:1:56", "DSL110", id="NaN"
        ),
        pytest.param(
            b'{"train_batch_size": 8, "zero_optimization": {"stage": -Infinity}}', "ds_config.json:1:56", "DSL110",
            id="Infinity",
        ),
    ],
)  # fmt: skip
def test_each_bad_config_has_a_finding_at_its_place(project: Path, raw: bytes, place: str, code: str) -> None:
    (project / "ds_config.json").write_bytes(raw)
    done = dslint("--no-cache", "--output-format", "concise", ".")
    assert done.code in (1, 2)
    assert (place, code) in done.places, done.out
    assert "Traceback" not in done.out + done.err
    assert "DSL901" not in done.codes, "a rule crashed"


@pytest.mark.parametrize("version", ["0.10.3", "0.14.5", "0.17.6", "0.19.8", ">=0.10", ">=0.1"])
@pytest.mark.parametrize(
    "value", [None, True, -1, 1e308, 10**400, "x", "auto", "", [], {}, [[]], {"": {"~/": None}}, float("nan")]
)
def test_no_value_of_any_section_crashes_a_rule(project: Path, value: object, version: str) -> None:
    sections = ("zero_optimization", "fp16", "bf16", "optimizer", "scheduler", "aio", "compile", "amp", "checkpoint")
    config = {"train_batch_size": value, "~/": value, **dict.fromkeys(sections, value)}
    (project / "ds_config.json").write_text(json.dumps(config).replace(str(10**400), "9" * 400))
    done = dslint("--no-cache", "--deepspeed-version", version, "--output-format", "concise", ".")
    assert "DSL901" not in done.codes, done.out
    assert done.code in (0, 1)
