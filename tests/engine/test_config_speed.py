"""A config is judged in milliseconds once the process is warm; two hundred in one process within seconds.

Processor time, not the clock, and bounds several times above what is measured (benchmarks/configs.py): these tests
find a validator that is compiled for each config, or a schema that is read again, on a machine under any load.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from configs import cold, configs, warm  # noqa: E402

WARM_SECONDS = 0.005
COLD_SECONDS = 1.5


def test_a_warm_config_takes_milliseconds() -> None:
    spent = sorted(warm(list(configs(60))))
    assert spent[len(spent) // 2] < WARM_SECONDS


def test_two_hundred_configs_in_one_cold_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for number, text in enumerate(configs(200)):
        (tmp_path / f"ds_{number}.json").write_text(text, encoding="utf-8")
    assert cold(str(tmp_path)) < COLD_SECONDS
