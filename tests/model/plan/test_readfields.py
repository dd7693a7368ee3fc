"""Arguments of a Trainer that its script reads in a file."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from dslint.core.source import SourceFile
from dslint.model.plan.readfields import ReadField, read_fields
from dslint.python.events import Event
from dslint.python.source import Module, read

HEAD = "import json, yaml\nfrom transformers import TrainingArguments\n"
CALL = "TrainingArguments(output_dir='out', fp16=conf['fp16'], learning_rate=conf['train']['lr'])\n"
BY_OPTION = {"fp16": ReadField("/fp16", "config"), "learning_rate": ReadField("/train/lr", "config")}
BY_PATH = {"fp16": ReadField("/fp16", path="a.json"), "learning_rate": ReadField("/train/lr", path="a.json")}


def fields(code: str) -> dict[str, ReadField]:
    """What is read of the one call in a module."""
    module = read(SourceFile("train.py", HEAD + dedent(code)))
    assert isinstance(module, Module)
    call = next(
        n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "TrainingArguments"
    )
    event = object.__new__(Event)
    object.__setattr__(event, "module", module)
    object.__setattr__(event, "node", call)
    return dict(read_fields(event))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("with open(args.config) as f:\n    conf = json.load(f)\n", BY_OPTION),
        ("conf = json.load(open(args.config))\nprint(conf)\n", BY_OPTION),
        ("conf = yaml.safe_load(open('a.json'))\n", BY_PATH),
        ("conf = json.load(open(args.config))\nconf['fp16'] = True\n", {}),
        ("conf = json.load(open(args.config))\nchange(conf)\n", {}),
        ("conf = json.load(open(args.config))\nconf.update(more)\n", {}),
        ("conf = json.load(open(args.config))\nconf = {}\n", {}),
        ("conf = json.load(open(name))\n", {}),
    ],
)
def test_fields_of_a_file(code: str, expected: dict[str, ReadField]) -> None:
    assert fields(code + CALL) == expected


def test_a_function_has_its_own_table() -> None:
    code = "def main(args):\n    with open(args.config) as f:\n        conf = json.load(f)\n    " + CALL
    assert fields("conf = {}\n" + code) == BY_OPTION
