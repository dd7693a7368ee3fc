"""What the parser of a script does with the local rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.plan.localrank import LocalRank, local_rank_of
from dslint.model.plan.parser.reader import script_parser
from dslint.model.workspace import Workspace

_HEAD = "import argparse\nparser = argparse.ArgumentParser()\n"
_LR = "parser.add_argument('--lr')\n"


def _read(text: str) -> LocalRank | None:
    workspace = Workspace(Path("/nonexistent"), {"train.py": text})
    parser = script_parser("train.py", workspace)
    return local_rank_of(parser, SourceFile("train.py", text), workspace) if parser is not None else None


@pytest.mark.parametrize(
    ("declared", "accepts"),
    [
        ("'--lr'", ()),
        ("'--local_rank'", ("--local_rank",)),
        ("'--local-rank'", ("--local-rank",)),
        ("'--local-rank', '--local_rank'", ("--local_rank", "--local-rank")),
        ("'--local_rank_of_process'", ("--local_rank",)),  # argparse completes the beginning of a flag
    ],
)
def test_spellings(declared: str, accepts: tuple[str, ...]) -> None:
    found = _read(f"{_HEAD}parser.add_argument({declared})\nparser.parse_args()\n")
    assert found.accepts == accepts


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\n",
        _HEAD + _LR,  # nobody parses
        _HEAD + _LR + "parser.parse_known_args()\n",
        _HEAD + _LR + "parser.parse_args([])\n",
        _HEAD + _LR + "add_more(parser)\nparser.parse_args()\n",
        _HEAD + "parser.add_argument(*NAMES)\nparser.parse_args()\n",
        "import argparse\nparser = argparse.ArgumentParser(parents=[p])\n" + _LR + "parser.parse_args()\n",
        _HEAD + _LR + "parser.parse_args(\n",
    ],
)
def test_parsers_that_are_not_in_full_view(text: str) -> None:
    assert _read(text) is None


def test_the_argument_is_added_in_front_of_the_others() -> None:
    text = "import argparse\n\ndef read():\n    p = argparse.ArgumentParser()\n    p.add_argument('--lr')\n"
    text += "    return p.parse_args()\n\nread()\n"
    found = _read(text)
    fixed = apply_edits(text, [found.insertion])
    assert (
        '    p.add_argument("--local_rank", "--local-rank", type=int, default=-1)\n    p.add_argument(\'--lr\')'
        in fixed
    )
    assert _read(fixed).accepts == ("--local_rank", "--local-rank")


@pytest.mark.parametrize(
    ("body", "relies"),
    [
        ("print(args.local_rank == -1)", True),
        ("torch.cuda.set_device(args.local_rank)", True),
        ("print(args.local_rank)", False),
        ("print(args.local_rank == other)", False),
        ("args.local_rank = 3\nprint(args.local_rank == -1)", False),
        ("import os\nos.environ['LOCAL_RANK']\nprint(args.local_rank == -1)", False),
        ("import deepspeed\nprint(args.local_rank == -1)", False),
    ],
)
def test_what_relies_on_the_argument(body: str, relies: bool) -> None:
    declared = "parser.add_argument('--local_rank', type=int, default=-1)\nargs = parser.parse_args()\n"
    assert (_read(_HEAD + declared + body + "\n").use is not None) is relies
