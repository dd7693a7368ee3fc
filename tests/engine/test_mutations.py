"""The examples of the rules with a byte missing, doubled, swapped in or cut off: whatever comes, dslint judges it.

``DSLINT_MUTATIONS`` sets the number of mutated projects (default 150; a soak of 20,000 takes about an hour).
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.rules.base import Example
from dslint.rules.own import RULE_CRASHED
from dslint.rules.registry import all_rules, load_rule
from dslint.settings import make_settings

MUTATIONS = int(os.environ.get("DSLINT_MUTATIONS", "150"))
EXAMPLES = [example for info in all_rules() for example in load_rule(info.code).examples]
PARTS = 5
BITS = [b"\0", b"\r\n", b"\xef\xbb\xbf", b"\xe9", b"\t", b"\\", b'"', b"'", b"[", b"{", b"(", b"$(", b"${", b"<<E\n",
        b"#", b"\xf0\x9f\x98\x80", b":", b",", b"\\\n", b"`", b"=", b"lambda:", b"1e999", b"-0", b"*", b"&", b";", b"|",
        ]  # fmt: skip


def mutated(raw: bytes, generator: random.Random) -> bytes:
    """A few changes of a text."""
    for _ in range(generator.choice([1, 1, 2, 5])):
        at = generator.randrange(len(raw) + 1)
        width = generator.choice([1, 1, 3, 20])
        kind = generator.randrange(6)
        if kind == 0:
            raw = raw[:at] + raw[at + width :]
        elif kind == 1:
            raw = raw[:at] + raw[at : at + width] * 2 + raw[at + width :]
        elif kind == 2:
            raw = raw[:at] + generator.choice(BITS) + raw[at:]
        elif kind == 3:
            raw = raw[:at]
        elif kind == 4:
            raw = raw.replace(b"\n", generator.choice([b"\r\n", b"\r", b"\n\n", b"\\\n"]), generator.choice([1, -1]))
        else:
            lines = raw.split(b"\n")
            generator.shuffle(lines)
            raw = b"\n".join(lines)
    return raw


def write(project: Path, example: Example, generator: random.Random) -> None:
    victim = generator.choice(list(example.files))
    for path, text in example.files.items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(mutated(text.encode(), generator) if path == victim else text.encode())


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_examples_never_crash_a_rule(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(part)
    for number in range(MUTATIONS // PARTS):
        example = generator.choice(EXAMPLES)
        project = tmp_path / str(number)
        (project / ".git").mkdir(parents=True)
        write(project, example, generator)
        monkeypatch.chdir(project)
        start = time.process_time()
        result = check_paths(["."], make_settings({**example.settings, "cache": False, "jobs": 1}, project))
        spent = time.process_time() - start
        crashed = [f.message for f in result.findings if f.code == RULE_CRASHED.code]
        texts = {path.name: path.read_bytes() for path in project.rglob("*") if path.is_file()}
        assert not crashed, (crashed, texts)
        assert spent < 5, (spent, texts)


def test_python_ends_a_line_at_a_lone_carriage_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from datetime import timedelta\nimport torch.distributed as dist\n"
        "options = {'backend': 'nccl', 'timeout': timedelta(1800)}\rdist.init_process_group(**options)\r"
        "limit = timedelta(3600)\rgroup = dist.new_group(timeout=limit)\n"
    )
    (tmp_path / "train.py").write_bytes(text.encode())
    monkeypatch.chdir(tmp_path)
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1}, tmp_path))
    assert [f.message for f in result.findings if f.code == RULE_CRASHED.code] == []
