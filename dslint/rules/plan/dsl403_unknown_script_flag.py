"""**What.** The command passes the script an option that its parser does not have, or a word that no option takes:
`--quant-bits 4` for a script that declares `--quant_bits`, `tensor-parallel 1` without the dashes.

**Why it hurts.** The job waits in the queue, starts on every node, and every process stops: `error: unrecognized
arguments: --quant-bits 4`, or under HfArgumentParser `ValueError: Some specified arguments are not used by the
HfArgumentParser`, often after the libraries have been imported for a minute.

**Fix.** Write the option as the script declares it; the hint names the one that looks like it. The fix is safe where
only hyphens and underscores differ.

**When it stays quiet.** When the parser may take more than its file shows: `parse_known_args`, subparsers, options
with computed names, a function of another library that adds options (`extra_args_provider`), parsers that are stored
or changed, and click, typer, fire, hydra, jsonargparse, LightningCLI, tyro and the like. Parsers that other modules of
the project build or extend are followed; so are dataclasses, and the fields of `TrainingArguments`, of which every
release counts, and of a copy of transformers that the project carries. An unambiguous beginning of an option is fine,
as argparse takes it. Placeholders of documentation (`<model>`, `...`, `--OTHER_OPTIONS`, `path of your model`) are no
words, nor are those of a variable to fill in (`MODEL="model name or path"`). An option of
the launcher that comes after the script has a rule of its own, DSL447.

**Evidence.** argparse of Python itself, and transformers' `HfArgumentParser.parse_args_into_dataclasses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.misplaced import own_option
from dslint.model.plan.parser.options import Problem, ScriptParser
from dslint.model.plan.parser.places import (
    is_bracketed,
    is_cut_off,
    is_placeholder,
    place_of,
    previous,
    renamed,
    similar,
)
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL403",
    name="unknown-script-flag",
    kind="plan",
    severity=Severity.ERROR,
    summary="The command passes an option that the parser of the script does not have",
    fix="safe",
    references=("https://docs.python.org/3/library/argparse.html",),
    depends_on_run=True,
    needs=("refused",),
)

_HEAD = "import argparse\n\nparser = argparse.ArgumentParser()\n"
_BITS = 'parser.add_argument("--quant_bits", type=int, default=16)\nparser.add_argument("--model", default="")\n'
_RENAMED = "add = parser.add_argument\n" + _BITS.replace("parser.add_argument", "add")
_END = "args = parser.parse_args()\n"
_FIT = (
    'sub = parser.add_subparsers(dest="command")\nfit = sub.add_parser("fit")\n'
    + _BITS.replace("parser.add", "fit.add")
    + 'sub.add_parser("export").add_argument("--model")\n'
)
_RUN = "torchrun --nproc_per_node 2 train.py --model opt --quant_bits 4\n"
_WRONG = _RUN.replace("quant_bits", "quant-bits")
_ELSEWHERE = {
    "train.py": "from options import get_args\n\nargs = get_args()\n",
    "options.py": "import argparse\n\nfrom more import add_model\n\n\ndef get_args():\n"
    "    parser = argparse.ArgumentParser()\n    add_model(parser)\n    return parser.parse_args()\n",
    "more.py": "def add_model(parser):\n" + "".join(f"    {line}\n" for line in _BITS.splitlines()),
}
_OWN = """from dataclasses import dataclass


@dataclass
class TrainingArguments(TrainingArguments):
    use_lora: bool = False


parser ="""
_READ = "print(training_args.use_lora)\n"

_MERGES = (
    "import dataclasses\nimport sys\n\nfrom transformers import HfArgumentParser, TrainingArguments\n\n\n"
    "class Parser(HfArgumentParser):\n"
    "    def merged(self, path, words):\n"
    "        (given,) = self.parse_yaml_file(path)\n"
    "        own = dict(word.lstrip('-').split('=') for word in words)\n"
    "        return [dataclasses.replace(given, **own)]\n\n"
    "    def parse(self):\n"
    "        if len(sys.argv) == 2 and sys.argv[1].endswith('.yaml'):\n"
    "            return self.parse_yaml_file(sys.argv[1])\n"
    "        elif len(sys.argv) > 2 and sys.argv[1].endswith('.yaml'):\n"
    "            return self.merged(sys.argv[1], sys.argv[2:])\n"
    "        return self.parse_args_into_dataclasses()\n\n\n"
    "(args,) = Parser(TrainingArguments).parse()\n"
)
EXAMPLES = (
    bad("a hyphen for an underscore", {"run.sh": _WRONG, "train.py": _HEAD + _BITS + _END}, "run.sh:1 error",
        fixed={"run.sh": _RUN}),
    bad("with a value that is not known", {
        "run.sh": _WRONG.replace("bits 4", "bits=$BITS"), "train.py": _HEAD + _BITS + _END,
    }, "run.sh:1 error", fixed={"run.sh": _RUN.replace("bits 4", "bits=$BITS")}),
    bad("a parser that two other modules build", {"run.sh": _WRONG, **_ELSEWHERE}, "run.sh:1 error"),
    bad("a misspelt argument of the Trainer", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --learing_rate 1e-4\n", "train.py": TRAINER,
        "requirements.txt": "transformers==4.57.1\n",
    }, "run.sh:1 error"),
    bad("a word that no option takes", {
        "run.sh": "python train.py model opt\n", "train.py": _HEAD + _BITS + _END,
    }, "run.sh:1 error"),
    bad("in documentation", {
        "README.md": f"```bash\n{_WRONG}```\n", "train.py": _HEAD + _BITS + _END,
    }, "README.md:2 warning"),
    bad("several values of a misspelt option, one mistake", {
        "run.sh": _WRONG.replace(" 4", " 4 8 16"),
        "train.py": _HEAD + _BITS.replace('default=16', 'nargs="+"') + _END,
    }, "run.sh:1 error", fixed={"run.sh": _RUN.replace(" 4", " 4 8 16")}),
    good("as the script declares it", {"run.sh": _RUN, "train.py": _HEAD + _BITS + _END}),
    good("the beginning of an option", {"run.sh": _RUN.replace("bits", "b"), "train.py": _HEAD + _BITS + _END}),
    good("unknown arguments pass", {
        "run.sh": _WRONG, "train.py": _HEAD + _BITS + "args, _ = parser.parse_known_args()\n",
    }),
    good("another library extends the parser", {
        "run.sh": _WRONG,
        "train.py": "from megatron import add_arguments\n" + _HEAD + _BITS + "add_arguments(parser)\n" + _END,
    }),
    good("the parser is extended by a function that is handed over", {
        "run.sh": _WRONG, "train.py": "from megatron import initialize\n\n\ndef add(parser):\n"
        '    parser.add_argument("--bits")\n    return parser\n\n\ninitialize(extra_args_provider=add)\n',
    }),
    good("an option of the command", {
        "run.sh": _RUN.replace("--model", "fit --model"), "train.py": _HEAD + _FIT + _END,
    }),
    bad("an option of another command", {
        "run.sh": _RUN.replace("--model", "export --model"), "train.py": _HEAD + _FIT + _END,
    }, "run.sh:1 error"),
    good("commands that another library adds", {
        "run.sh": _RUN.replace("--model", "export --model"),
        "train.py": "from megatron import add_commands\n" + _HEAD + _FIT + "add_commands(sub)\n" + _END,
    }),
    good("jsonargparse", {
        "run.sh": _WRONG,
        "train.py": _HEAD.replace("import argparse", "import jsonargparse as argparse") + _BITS + _END,
    }),
    good("hydra", {
        "run.sh": _WRONG,
        "train.py": 'import hydra\n\n\n@hydra.main(config_path="c")\ndef main(cfg): ...\n\n\nmain()\n',
    }),
    good("DeepSpeed adds four options of its own", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --deepspeed --model opt\n",
        "train.py": "import deepspeed\n" + _HEAD + _BITS + "parser = deepspeed.add_config_arguments(parser)\n" + _END,
    }),
    good("an argument that an older release of transformers has", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --overwrite_output_dir\n", "train.py": TRAINER,
    }),
    good("a class with the name of the one that it extends", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --use_lora\n",
        "train.py": TRAINER.replace("\nparser =", _OWN) + _READ,
    }),
    good("the project carries its own copy of transformers, with a field more", {
        "run.sh": "torchrun --nproc_per_node 2 examples/train.py --output_dir out --cls_dropout 0.1\n",
        "examples/train.py": TRAINER,
        "src/transformers/__init__.py": "from .training_args import TrainingArguments\n",
        "src/transformers/training_args.py": "from dataclasses import dataclass\n\n\n@dataclass\n"
        "class TrainingArguments:\n    output_dir: str\n    cls_dropout: float = 0.0\n",
    }),
    good("options added under another name", {
        "run.sh": _RUN, "train.py": _HEAD + _RENAMED + _END,
    }),
    bad("options added under another name, of which none is this one", {
        "run.sh": _WRONG, "train.py": _HEAD + _RENAMED + _END,
    }, "run.sh:1 error", fixed={"run.sh": _RUN}),
    good("a function may call it by another name", {
        "run.sh": _WRONG,
        "train.py": "def more():\n    add('--quant-bits')\n\n\n" + _HEAD + "add = parser.add_argument\n" + _BITS
        + "more()\n" + _END,
    }),
    good("a file of arguments", {
        "run.sh": "deepspeed train.py args.yaml\n",
        "train.py": "import sys\n\n" + TRAINER.replace(
            "(training_args,) =", 'if sys.argv[-1].endswith(".yaml"):\n    (training_args,) ='
            " parser.parse_yaml_file(sys.argv[-1])\nelse:\n    (training_args,) ="),
        "args.yaml": "output_dir: out\n",
    }),
    good("a file of arguments with words that win over it", {
        "run.sh": "accelerate launch --num_processes 8 train.py args.yaml --learning_rate=1e-4\n",
        "train.py": _MERGES, "args.yaml": "output_dir: out\n",
    }),
    bad("a parser that takes words beside a file, without a file", {
        "run.sh": "accelerate launch --num_processes 8 train.py --output_dir out --learing_rate=1e-4\n",
        "train.py": _MERGES, "requirements.txt": "transformers==4.57.1\n",
    }, "run.sh:1 error"),
    bad("words beside a file that is read alone only", {
        "run.sh": "torchrun --nproc_per_node 2 train.py args.yaml --learning_rate 1e-4\n",
        "train.py": _MERGES.replace("        elif len(sys.argv) > 2 and sys.argv[1].endswith('.yaml'):\n"
                                    "            return self.merged(sys.argv[1], sys.argv[2:])\n", ""),
        "args.yaml": "output_dir: out\n", "requirements.txt": "transformers==4.57.1\n",
    }, "run.sh:1 error"),
    good("arguments of a data set from transformers", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --task_name mnli\n",
        "train.py": TRAINER.replace("HfArgumentParser,", "GlueDataTrainingArguments, HfArgumentParser,").replace(
            "(TrainingArguments)", "((GlueDataTrainingArguments, TrainingArguments))").replace(
            "(training_", "(_, training_"),
        "requirements.txt": "transformers==4.56.0\n",
    }),
    good("an imported name that refers to a class of the file further down", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --use_lora\n",
        "train.py": TRAINER.replace("\nparser =", _OWN.replace("class Training", "class My").replace(
            "\n\nparser", "\n\nTrainingArguments = MyArguments\nparser")) + _READ,
    }),
    good("a placeholder of several words", {
        "README.md": '```bash\nOUT="path to save"\ntorchrun --nproc_per_node 2 train.py --model $OUT\n```\n',
        "train.py": _HEAD + _BITS + _END,
    }),
    good("a variable to fill in", {
        "run.sh": 'MODEL="model name or path"\ntorchrun --nproc_per_node 2 train.py --model $MODEL\n',
        "train.py": _HEAD + _BITS + _END,
    }),
    bad("a variable of two words without quotation marks", {
        "run.sh": 'MODEL="opt large"\ntorchrun --nproc_per_node 2 train.py --model $MODEL\n',
        "train.py": _HEAD + _BITS + _END,
    }, "run.sh:1 error"),
    good("words of documentation that the reader writes", {
        "README.md": "```bash\ntorchrun --nproc_per_node 2 train.py --OTHER_OPTIONS\n"
        "torchrun --nproc_per_node 2 train.py --model path of your model\n"
        "torchrun --nproc_per_node 2 train.py --model file / folder\n"
        "torchrun --nproc_per_node 2 train.py --model {the name of f(x)}\n```\n",
        "train.py": _HEAD + _BITS + _END,
    }),
    bad("a prompt without quotation marks", {
        "README.md": "```bash\npython train.py --model a large one\n```\n", "train.py": _HEAD + _BITS + _END,
    }, "README.md:2 warning"),
    good("a placeholder", {
        "README.md": "```bash\ntorchrun --nproc_per_node 2 train.py [--more-options]\n```\n",
        "train.py": _HEAD + _BITS + _END,
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report every option that the parser does not have, and the first word that nobody takes."""
    parser, given = plan.parser, plan.given
    if parser is None or given is None or not parser.is_closed:
        return
    leftovers = 0
    unknown = [problem.word for problem in given.problems if problem.kind == "unknown"]
    for problem in given.problems:
        word = problem.word
        if word is None or is_placeholder(word) or _is_told_elsewhere(problem, word, plan):
            continue
        if problem.kind == "unknown":
            yield _unknown(plan, parser, problem, word)
        elif word.origins and (plan.command.in_docs or _is_form(plan, word)):
            continue  # `export OUTPUT_DIR="path to save"`
        elif problem.kind != "leftover" or leftovers or _is_value_of(word, unknown, plan):
            continue
        elif not _follows_switch(plan, parser, word):
            leftovers += 1
            yield _leftover(plan, parser, word)


def _is_told_elsewhere(problem: Problem, word: Word, plan: RunPlan) -> bool:
    """Return whether another rule tells of a word, or it is none for this script."""
    if _is_another_command(word, plan) or is_cut_off(word, plan.command):  # DSL303
        return True
    if problem.kind == "unknown" and own_option(plan.command.launcher, word.text or ""):
        return True  # DSL447
    return plan.command.in_docs and _stands_for_more(word, plan.command)


def _is_another_command(word: Word, plan: RunPlan) -> bool:
    """``mpirun a : b``: behind the colon stands another program."""
    words = plan.command.script_args
    return any(w.text == ":" for w in words[: words.index(word) + 1]) if word in words else True


def _is_value_of(word: Word, unknown: list[Word | None], plan: RunPlan) -> bool:
    """``--eval_sets a b``: what follows an option that there is not stands or falls with it."""
    words = list(plan.command.script_args)
    at = next((i for i, w in enumerate(words) if w is word), 0)
    option = next((w for w in reversed(words[:at]) if (w.text or w.raw).startswith("-")), None)
    return option is not None and any(w is option for w in unknown)


def _follows_switch(plan: RunPlan, parser: ScriptParser, word: Word) -> bool:
    """``--bf16 True``: another rule."""
    before = previous(word, plan.command)
    option = parser.option(before.text) if before is not None and before.text is not None else None
    return option is not None and option.action in ("store_true", "store_false")


def _stands_for_more(word: Word, command: LaunchCommand) -> bool:
    """``--OTHER_OPTIONS``, ``--model path of your model``, ``--source image / folder``: the reader writes the word."""
    if (word.text or "").startswith("-"):
        return re.fullmatch(r"--[A-Z][A-Z0-9]*(?:[_-][A-Z0-9]+)+", word.text or "") is not None
    words = [w.text or "" for w in command.script_args]
    at = next((i for i, w in enumerate(command.script_args) if w is word), 0)
    first = next((i for i in range(at, -1, -1) if words[i].startswith("--")), -1) + 1
    end = next((i for i in range(at, len(words)) if words[i].startswith("--")), len(words))
    beside = words[first:end]
    if is_bracketed(word, command):
        return True
    return "/" in beside or "or" in beside or _FORM.search(" ".join(beside)) is not None


_FORM = re.compile(r"\b(?:path|name) (?:of|to)\b|\byour\b")


def _is_form(plan: RunPlan, word: Word) -> bool:
    """``$MODEL`` with ``MODEL="model name or path"``: what the file says to fill in."""
    beside = [w.text or "" for w in plan.command.script_args if w.location == word.location and w.origins]
    return re.search(r"\b(?:path|name|your|here|todo)\b", " ".join(beside), re.I) is not None


def _unknown(plan: RunPlan, parser: ScriptParser, problem: Problem, word: Word) -> Finding:
    flag = (word.text or word.raw).partition("=")[0]
    meant = similar(flag, parser)
    option = parser.option(meant) if meant else None
    ends = "every process stops with `ValueError` from HfArgumentParser"
    error = ends if parser.kind != "argparse" else "every process stops with `unrecognized arguments`"
    places = [option.location.labelled(f"`{meant}` is declared here")] if option is not None else []
    if parser.location is not None:
        places.append(parser.location.labelled("the command line is parsed here"))
    fix: Fix | None = renamed(word, flag, meant) if meant else None
    return META.finding(
        place_of(word),
        f"`{flag}` is not an option of `{plan.script}`: {error}",
        hint=f"Write `{meant}`" if meant else f"Remove `{flag}`, or declare it in the parser",
        related=tuple(places),
        fix=fix,
        severity=Severity.WARNING if plan.command.in_docs else None,
        facts={"flag": flag, "meant": meant, "parser": parser.kind, "problem": problem.kind},
    )


def _leftover(plan: RunPlan, parser: ScriptParser, word: Word) -> Finding:
    meant = similar(f"--{word.text}", parser)
    places = () if parser.location is None else (parser.location.labelled("the command line is parsed here"),)
    return META.finding(
        place_of(word),
        f"`{word.text}` belongs to no option of `{plan.script}`: every process stops with `unrecognized arguments`",
        hint=f"Write `{meant}`" if meant else "Put an option before it, quote it with the word before it, or remove it",
        related=places,
        severity=Severity.WARNING if plan.command.in_docs else None,
        facts={"flag": word.text or "", "meant": meant, "parser": parser.kind, "problem": "leftover"},
    )
