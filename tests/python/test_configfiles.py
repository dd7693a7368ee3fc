"""A DeepSpeed configuration in a file that a script names: its stage and its micro batches."""

from __future__ import annotations

from dslint.python.entries import Analysis
from dslint.python.events import Event, events
from dslint.python.files import Texts

CONFIG = '{"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 3}}'
SCRIPT = """\
import deepspeed

OPTIONS = dict(model=net, config="conf/" + "ds.json")
engine, *_ = deepspeed.initialize(**OPTIONS)
"""


def made(**texts: str) -> Event:
    names = {"script": "tools/train.py", "config": "tools/conf/ds.json", "above": "conf/ds.json"}
    found = Analysis(Texts({names[name]: text for name, text in texts.items()}))
    found.script("tools/train.py")
    return next(event for entry in found.entries for event in events(entry.tree) if "makes-engine" in event.tags)


def known(event: Event) -> tuple[int | None, tuple[object, ...] | None]:
    return event.stage, event.accumulation.constants if event.accumulation is not None else None


def test_a_file_beside_the_script_or_above() -> None:
    assert known(made(script=SCRIPT, config=CONFIG)) == (3, (8,))
    assert known(made(script=SCRIPT, above=CONFIG)) == (3, (8,))
    assert known(made(script=SCRIPT, config='{"train_batch_size": 8}', above=CONFIG)) == (0, (1,))


def test_what_nobody_knows() -> None:
    assert known(made(script=SCRIPT)) == (None, None)
    assert known(made(script=SCRIPT, config="{")) == (None, None)
    of_trainer = '{"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": "auto"}}'
    assert known(made(script=SCRIPT, config=of_trainer)) == (None, None)
    assert known(made(script=SCRIPT.replace('"conf/"', "folder"), config=CONFIG)) == (None, None)


def test_a_file_that_the_script_writes() -> None:
    writes = 'import json\n\njson.dump({}, open("conf/ds.json", "w"))\n' + SCRIPT
    assert known(made(script=writes, config=CONFIG)) == (None, None)
