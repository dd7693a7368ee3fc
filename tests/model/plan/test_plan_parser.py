"""The parser of a script and what it makes of a command, with argparse itself as the judge."""

from __future__ import annotations

import contextlib
import io
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.parser.options import Passed, ScriptParser
from dslint.model.plan.parser.reader import script_parser
from dslint.model.plan.runplan import build_plans
from dslint.model.workspace import Workspace

HEAD = "import argparse\nparser = argparse.ArgumentParser()\n"
ADD = "parser.add_argument"
END = "args = parser.parse_args()\n"
PLAIN = f"""\
{HEAD}{ADD}("--lr", type=float, default=1e-4)
{ADD}("-n", "--num-steps", type=int, default=10)
{ADD}("--mode", choices=["train", "eval"], default="train")
{ADD}("--bf16", action="store_true")
{ADD}("--no-cache", dest="cache", action="store_false")
{ADD}("--names", nargs="+")
{ADD}("--shape", nargs=2, type=int)
{ADD}("--compile", action=argparse.BooleanOptionalAction)
{ADD}("--tag", nargs="?", const="x")
{ADD}("--more", action="append")
{ADD}("-v", action="count")
{END}"""
OPERANDS = f"""{HEAD}{ADD}("config")
{ADD}("extra", nargs="*")
{ADD}("--seed", type=int, required=True)
{END}"""
BUILT = {
    "train.py": "from util.opts import get_args\n\n\ndef main():\n    args = get_args()\n    return args\n\n\n"
    "if __name__ == '__main__':\n    args = main()\n",
    "util/__init__.py": "",
    "util/opts.py": "import argparse\nfrom .more import add_model\n\n\ndef build():\n"
    "    p = argparse.ArgumentParser(allow_abbrev=False)\n    group = p.add_argument_group('a')\n"
    "    group.add_argument('--lr', type=float)\n    p = add_model(p)\n    return p\n\n\n"
    "def get_args(argv=None):\n    return build().parse_args(argv)\n",
    "util/more.py": "def add_model(parser):\n    for name in ('a', 'b'):\n        pass\n"
    "    parser.add_argument('--hidden', type=int, default=8)\n    return parser\n",
}
PARENTS = {
    "train.py": "import argparse\nfrom common import parent\nparser = argparse.ArgumentParser(parents=[parent()])\n"
    f"{ADD}('--lr')\n{END}",
    "common.py": "import argparse\ndef parent():\n    p = argparse.ArgumentParser(add_help=False)\n"
    "    p.add_argument('--seed', type=int)\n    return p\n",
}


def read(files: dict[str, str], arguments: str) -> tuple[ScriptParser | None, Passed | None]:
    files = {**files, "run.sh": f"python train.py {arguments}\n"}
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile("run.sh", files["run.sh"]), "shell", workspace)
    (plan,) = build_plans([c for d in docs for c in d.commands], workspace)
    return plan.parser, plan.given


def really(files: dict[str, str], arguments: str, folder: Path) -> dict[str, Any] | None:
    """What the script holds when Python runs it; ``None`` when argparse ends it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before, path, modules = sys.argv, list(sys.path), set(sys.modules)
    sys.argv, sys.path[:0] = ["train.py", *shlex.split(arguments)], [str(folder)]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return dict(vars(runpy.run_path(str(folder / "train.py"), run_name="__main__")["args"]))
    except SystemExit:
        return None
    finally:
        sys.argv, sys.path[:] = before, path
        for name in set(sys.modules) - modules:
            del sys.modules[name]


# One command a line; the first is empty.
COMMANDS = """

--lr 0.1
--lr=0.1
--lr -1
--lr -1e-3
--lr x
--lr
--lrr 1
--l 1
--n 3
--num 3
--no-c
-n 3
-n3
-n=3
--num_steps 3
--num-steps 3.5
--mode eval
--mode test
--bf16
--bf16 True
--bf16=True
--names a b c --lr 1
--names
--names a --names b
--shape 1 2
--shape 1
--shape 1 x
--compile
--no-compile
--tag
--tag y
--more a --more b
-vv
stray
-- stray
--lr 1 --unknown 3 4
--names a -- b
--mode=
--lr 1 --lr 2
--no-cache --bf16
--unknown
-x
-1
--names -1 -2
""".splitlines()[1:]
WITH_OPERANDS = """

c --seed 1
c a b --seed 1
--seed 1 c
--seed 1
c
c --seed x
a --seed 1 b
""".splitlines()[1:]
CASES = [
    *((PLAIN, words) for words in COMMANDS),
    *((OPERANDS, words) for words in WITH_OPERANDS),
    (HEAD + f"{ADD}('--a-b', '--ab')\n{ADD}('rest', nargs=argparse.REMAINDER)\n" + END, "--a-b 1 x --y 2"),
    (HEAD + f"{ADD}('--size', choices=range(1, 4), type=int)\n" + END, "--size 4"),
    (HEAD + f"{ADD}('--size', choices=range(1, 4), type=int)\n" + END, "--size 3"),
    (HEAD + f"if True:\n    {ADD}('--a', required=True)\n" + END, "--a 1"),
    (HEAD + "group = parser.add_mutually_exclusive_group()\ngroup.add_argument('--a')\n" + END, "--a 1"),
]


@pytest.mark.parametrize(("script", "arguments"), CASES)
def test_against_argparse(script: str, arguments: str, tmp_path: Path) -> None:
    parser, given = read({"train.py": script}, arguments)
    truth = really({"train.py": script}, arguments, tmp_path)
    assert parser is not None
    assert given is not None
    assert parser.is_closed
    assert bool(given.problems) == (truth is None), given.problems
    for dest, fact in given.values.items() if truth is not None else ():
        if fact.is_known:
            assert fact.get() == truth[dest], dest


@pytest.mark.parametrize(
    ("files", "arguments", "unknown"),
    [
        (BUILT, "--lr 1 --hidden 3", []),
        (BUILT, "--lr 1 --hid 3", ["--hid"]),
        (BUILT, "--size 1", ["--size"]),
        (PARENTS, "--lr 1 --seed 3", []),
        (PARENTS, "--sed 3 --se 4", ["--sed"]),
    ],
)
def test_parsers_of_several_files(files: dict[str, str], arguments: str, unknown: list[str], tmp_path: Path) -> None:
    parser, given = read(files, arguments)
    assert parser is not None
    assert given is not None
    assert parser.is_closed
    assert [p.word.text for p in given.problems if p.word is not None and p.kind == "unknown"] == unknown
    assert (really(files, arguments, tmp_path) is None) == bool(unknown)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (HEAD + "args, _ = parser.parse_known_args()\n", "unknown arguments"),
        (HEAD + "from megatron import add\nadd(parser)\n" + END, "`megatron.add` may add"),
        (HEAD + "import x\nsub = parser.add_subparsers()\nx.more(sub)\n" + END, "a function gets its subparsers"),
        (HEAD + "import x\nsub = parser.add_subparsers()\nsub.add_parser(x.NAME)\n" + END, "a computed name"),
        (HEAD + "sub = parser.add_subparsers(parser_class=Mine)\nsub.add_parser('a')\n" + END, "no plain ones"),
        (HEAD + "for n in open('x'):\n    parser.add_argument('--' + n)\n" + END, "computed name"),
        (HEAD + "parser.parse_args(['--lr', '1'])\n", "words that the script chooses"),
        # A name of the caller that reads like a parameter of the function that it calls.
        (
            HEAD + "def get(words=None):\n    return parser.parse_args(words)\nwords = ['--lr', '1']\nget(words)\n",
            "words that the script chooses",
        ),
        (HEAD + "def get(a=b, b=a):\n    return parser.parse_args(a)\nget()\n", "words that the script chooses"),
        (HEAD + "import sys\nsys.argv = sys.argv[:1]\n" + END, "sys.argv"),
        (HEAD + "import sys\nsys.argv.append('--x')\n" + END, "sys.argv"),
        (
            HEAD + "import x\nclass Holder: pass\nholder = Holder()\nholder.p = parser\nx.run(holder)\n" + END,
            "stored",
        ),
        (
            HEAD + "parser.add_subparsers()\n" + END + "other = argparse.ArgumentParser()\nother.parse_args()\n",
            "several parsers",
        ),
        (
            HEAD + "_, rest = parser.parse_known_args()\nrest.remove('x')\nparser.parse_args(rest)\n",
            "unknown arguments",
        ),
        (
            "import argparse\nparser = argparse.ArgumentParser(fromfile_prefix_chars='@')\n" + END,
            "fromfile_prefix_chars",
        ),
        ("import argparse\nimport x\nparser = argparse.ArgumentParser(parents=[x.y])\n" + END, "parent"),
        (HEAD + "import fire\n" + END + "fire.Fire(main)\n", "fire reads"),
        ("from jsonargparse import ArgumentParser\nparser = ArgumentParser()\n" + END, "no plain parser"),
    ],
)
def test_open_parsers(script: str, why: str) -> None:
    parser, given = read({"train.py": script}, "--lr 1")
    assert parser is not None
    assert given is not None
    assert not parser.is_closed
    assert why in parser.open_because


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("import fire\n\n\ndef main(lr): ...\n\n\nfire.Fire(main)\n", "fire"),
        ("import click\n\n\n@click.command()\ndef main(): ...\n\n\nmain()\n", "click"),
        ("import hydra\n\n\n@hydra.main(config_path='c')\ndef main(cfg): ...\n\n\nmain()\n", "hydra"),
        ("from lightning.pytorch.cli import LightningCLI\n\nLightningCLI()\n", "lightning"),
        ("import typer\n\napp = typer.Typer()\napp()\n", "typer"),
        ("import tyro\n\nargs = tyro.cli(Args)\n", "tyro"),
        ("from absl import app\n\napp.run(main)\n", "absl"),
    ],
)
def test_other_libraries(script: str, kind: str) -> None:
    parser, _ = read({"train.py": script}, "--lr 1")
    assert parser is not None
    assert parser.kind == kind
    assert not parser.is_closed


COMMANDED = f"""{HEAD}{ADD}("--seed", type=int)
sub = parser.add_subparsers(dest="command", required=True)
train = sub.add_parser("train", aliases=["t"])
train.add_argument("--lr", type=float, required=True)
sub.add_parser("eval").add_argument("files", nargs="+")
{END}"""


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ("--seed 1 train --lr 1", []),
        ("t --lr 1", []),
        ("train --lr 1 --seed 1", [("unknown", "--seed"), ("leftover", "1")][:1]),
        ("eval a b --lr 1", [("unknown", "--lr")]),
        ("build --lr 1", [("choice", "build")]),
        ("--model m train --lr 1", [("unknown", "--model")]),
        ("train --lr x", [("type", "x")]),
        ("train", [("missing", "--lr")]),
        ("--seed 1", [("missing", "command")]),
        ("train --help", []),
        ("train --lr $LR", []),
    ],
)
def test_commands(arguments: str, problems: list[tuple[str, str]], tmp_path: Path) -> None:
    parser, given = read({"train.py": COMMANDED}, arguments)
    assert parser is not None
    assert given is not None
    assert parser.is_closed
    found = [(p.kind, p.word.text if p.word else p.option.name if p.option else "") for p in given.problems]
    assert found == problems
    if "$" not in arguments and "help" not in arguments:
        assert (really({"train.py": COMMANDED}, arguments, tmp_path) is None) == bool(problems)


def test_a_command_that_is_not_known_opens_the_parser() -> None:
    parser, given = read({"train.py": COMMANDED}, "$COMMAND --lr 1")
    assert parser is not None
    assert given is not None
    assert parser.open_because == "the command that it runs is not known"
    assert given.problems == ()


SEVERAL = f"""{HEAD}{ADD}("--config", required=True)
known, rest = parser.parse_known_args()
other = argparse.ArgumentParser()
other.add_argument("--lr", type=float)
args = other.parse_args(rest)
"""


@pytest.mark.parametrize(
    ("script", "arguments", "problems"),
    [
        (SEVERAL, "--config c --lr 1", []),
        (SEVERAL, "--config c --lrr 1", [("unknown", "--lrr")]),
        (SEVERAL, "--lr 1", [("missing", "--config")]),
        (SEVERAL.replace("(rest)", "()"), "--config c --rl 1", [("unknown", "--rl")]),
        # A parser that may not run refuses nothing.
        (SEVERAL.replace("args =", "if known.config:\n    args ="), "--config c --lrr 1", []),
        (SEVERAL.replace("args = other.parse_args(rest)", "other.parse_known_args(rest)"), "--config c --lrr 1", []),
    ],
)
def test_several_parsers(script: str, arguments: str, problems: list[tuple[str, str]]) -> None:
    parser, given = read({"train.py": script}, arguments)
    assert parser is not None
    assert given is not None
    assert parser.is_closed or parser.lets_pass
    found = [(p.kind, p.word.text if p.word else p.option.name if p.option else "") for p in given.problems]
    assert (found if parser.is_closed else []) == problems


def test_no_parser() -> None:
    assert read({"train.py": "import torch\n"}, "--lr 1") == (None, None)


HF = """\
from dataclasses import dataclass, field
from typing import List, Literal, Optional

from transformers import HfArgumentParser, TrainingArguments
from model.arguments import ModelArguments


@dataclass
class DataArguments:
    data_path: str = field(metadata={"help": "x"})
    lazy: bool = False
    packed: bool = field(default=True)
    names: List[str] = field(default_factory=list)
    mode: Literal["a", "b"] = "a"
    length: Optional[int] = None


@dataclass
class Mine(TrainingArguments):
    cache_dir: str = "x"


def train():
    parser = HfArgumentParser((ModelArguments, DataArguments, Mine))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()


if __name__ == "__main__":
    train()
"""
HF_FILES = {
    "train.py": HF,
    "model/arguments.py": "from dataclasses import dataclass\n\n\n"
    "@dataclass\nclass ModelArguments:\n    model_path: str = 'm'\n",
}


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ("--data_path d --output_dir o --bf16 True --lazy --no_packed --names a b --mode b --model-path m", []),
        ("--data_path d --report_to wandb tensorboard --cache_dir c --length 8 --warmup_ratio 0.1", []),
        ("--data_path d --data_pth e", [("unknown", "--data_pth")]),
        ("--data_path d --mode c", [("choice", "c")]),
        ("--data_path d --length long", [("type", "long")]),
        ("--data_path d --lazy maybe", [("type", "maybe")]),
        ("--lazy", [("missing", "--data_path")]),
        ("--data_path d --names a $MORE", []),
        ("$MORE", []),
        ("--data_path $1 --lr_scheduler_typo x $MORE", [("unknown", "--lr_scheduler_typo")]),
    ],
)
def test_dataclasses(arguments: str, problems: list[tuple[str, str]]) -> None:
    parser, given = read(HF_FILES, arguments)
    assert parser is not None
    assert given is not None
    assert (parser.kind, parser.is_closed, parser.libraries) == ("hf", True, (("transformers", "TrainingArguments"),))
    found = [(p.kind, p.word.text if p.word else p.option.name if p.option else "") for p in given.problems]
    assert found == problems


def test_a_value_that_is_not_known() -> None:
    _, given = read({"train.py": PLAIN}, "--lr=$LR --mode=$MODE --unknown=$X --num-steps 3")
    assert given is not None
    assert [(p.kind, p.word.raw if p.word else "") for p in given.problems] == [("unknown", "--unknown=$X")]
    assert given.values["lr"].is_unknown
    assert given.values["num_steps"].get() == 3


def test_values_have_places() -> None:
    parser, given = read({"train.py": PLAIN}, "--lr 0.1 --bf16")
    assert parser is not None
    assert given is not None
    assert str(given.values["lr"].at()) == "0.1 (run.sh:1)"
    assert given.values["bf16"].origins[0].path == "run.sh"
    assert str(given.values["num_steps"].at()) == "10 (train.py:4)"


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        pytest.param(
            "add = parser.add_argument\nadd('--lr')\ndef more():\n    add('--bits')\nmore()\n",
            ["--lr", "--bits"],
            id="a function",
        ),
        pytest.param("for add in (parser.add_argument,):\n    add('--bits')\n", ["--bits"], id="a loop over it"),
        pytest.param("list(map(parser.add_argument, ['--bits']))\n", ["--bits"], id="handed on"),
        pytest.param("if x:\n    add = parser.add_argument\nadd('--bits')\n", ["--bits"], id="under a condition"),
        pytest.param("holder = {}\nholder['p'] = parser\nholder['p'].add_argument('--bits')\n", ["--bits"], id="held"),
        pytest.param("for n in 'abc':\n    parser.add_argument('--' + n)\n", ["--a", "--b", "--c"], id="a loop"),
    ],
)
def test_options_that_are_added_by_other_ways(script: str, flags: list[str]) -> None:
    parser, _ = read({"train.py": HEAD + script + END}, "--lr 1")
    assert parser is not None
    assert parser.is_closed
    assert [flag for option in parser.options for flag in option.flags][2:] == flags


def test_a_method_that_code_without_a_model_gets_opens_the_parser() -> None:
    parser, _ = read({"train.py": HEAD + "import x\nx.more(parser.add_argument)\n" + END}, "--lr 1")
    assert parser is not None
    assert not parser.is_closed


def test_the_line_ends_of_windows_end_no_word() -> None:
    _, given = read({"train.py": HEAD + ADD + "('--bits')\n" + ADD + "('--lr')\n" + END}, "--bits=4\\\r\n  --lr 1")
    assert given is not None
    assert given.problems == ()


LAZY = """\
from typing import TYPE_CHECKING
from .lazy import LazyModule
if TYPE_CHECKING:
    from .configs import Config
    from .parsers import TrlParser
else:
    import sys
    sys.modules[__name__] = LazyModule(__name__, {"configs": ["Config"], "parsers": ["TrlParser"]})
"""


def test_a_script_of_the_library_itself_whose_package_is_loaded_by_name() -> None:
    script = "def make():\n    from trl import Config, TrlParser\n    return TrlParser((Config,))\n"
    end = "args = make().parse_args_and_config()\n"
    config = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    steps: int = 10\n"
    own = "import argparse\nclass TrlParser(argparse.ArgumentParser):\n    pass\n"
    files = {"trl/__init__.py": LAZY, "trl/lazy.py": "", "trl/configs.py": config, "trl/parsers.py": own}
    files |= {"trl/train.py": script + end, "pyproject.toml": "[project]\nname = 'trl'\n"}
    parser = script_parser("trl/train.py", Workspace(Path("/nonexistent"), files))
    assert parser is not None
    assert parser.kind == "trl"
    assert [flag for option in parser.options for flag in option.flags] == ["-h", "--help", "--steps", "--config"]


TRL = """\
from dataclasses import dataclass
from trl import GRPOConfig, ModelConfig, ScriptArguments, TrlParser


@dataclass
class Mine(GRPOConfig):
    reward: str = "plain"


parser = TrlParser((ScriptArguments, Mine, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
"""


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ("--output_dir o --dataset_name d --model_name_or_path m --beta 0.1 --reward x --config c.yaml", []),
        ("--output_dir o --num_generations 8 --max_prompt_length 512 --learning-rate 1e-4", []),
        ("--output_dir o --num_generation_steps 8", [("unknown", "--num_generation_steps")]),
    ],
)
def test_dataclasses_of_trl(arguments: str, problems: list[tuple[str, str]]) -> None:
    parser, given = read({"train.py": TRL}, arguments)
    assert parser is not None
    assert given is not None
    assert (parser.kind, parser.is_closed, parser.open_because) == ("trl", True, "")
    assert [(p.kind, p.word.text if p.word else "") for p in given.problems] == problems


@pytest.mark.parametrize("script", [TRL, HF])
def test_words_that_no_option_takes_are_given_back(script: str) -> None:
    """As far as all options are in view nothing is open but that others pass."""
    for call in ("parse_args_and_config()", "parse_args_into_dataclasses()"):
        script = script.replace(call, call.replace("()", "(return_remaining_strings=True)"))
    parser, _ = read({**HF_FILES, "train.py": script}, "--output_dir o --dataset_name d --more 3")
    assert parser is not None
    assert parser.lets_pass


def test_a_class_of_trl_that_takes_any_name_opens_the_parser() -> None:
    script = TRL.replace("GRPOConfig", "PPOv2Config")
    parser, _ = read({"train.py": script}, "--output_dir o")
    assert parser is not None
    assert parser.open_because == "not all fields of `trl.PPOv2Config` are known"
