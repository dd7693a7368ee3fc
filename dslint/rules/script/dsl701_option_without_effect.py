"""The script parses an option and never reads it.

**What.** The script of a job of several processes declares an option (`add_argument`, or a field of a dataclass that a
parser fills), and no code of the run reads `args.weight_decay`. The usual cases are a number that is written out where
the option was meant, `AdamW(..., weight_decay=0.1)`, and a feature that was copied from another project by its options
alone: `--gradient-accumulation-steps`, `--ema`, `--resume`. Options that no command passes are one finding for a file.

**Why it hurts.** The command line states a setting that the run does not have. Nothing is refused and nothing is
logged: the job of many GPUs trains with another number, and a sweep over the option repeats one run.

**Fix.** Read the option where it belongs, or take it out of the parser, so that a command which passes it is refused.

**When it stays quiet.** The arguments go on as a whole: `**vars(args)`, `getattr(args, name)`, code that nobody can
read; some file of the run reads a field of that name of anything; options that launchers and DeepSpeed read; more
than a dozen such options, more than half of all, or more than three that commands pass, which says that they are read
in another way.

**Evidence.** Python's `argparse`: what nobody reads changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.commandlines import CommandLine
from dslint.python.plainoptions import Option
from dslint.python.source import Module
from dslint.python.values import Tuple
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.wholearguments import hands_on
from dslint.rules.ranks.intent import says_several
from dslint.rules.ranks.otherscripts import texts_of_others
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL701",
    name="option-without-effect",
    kind="script",
    severity=Severity.WARNING,
    summary="the script parses an option and never reads it: whoever passes it changes nothing",
    markers=(r"add_argument|ArgumentParser|TrlParser", r"torch|accelerat|deepspeed|transformers|lightning"),
    references=("https://docs.python.org/3/library/argparse.html#the-namespace-object",),
    depends_on_run=True,
    no_experiment="nothing reads the option: there is nothing to run",
)
# More of them than this are read in another way, or more than half of all: of those that commands pass, and of all.
_MOST_PASSED, _MOST = 3, 12
# So many are named in one headline.
_NAMED = 3
# What launchers pass to every process, or DeepSpeed reads from the arguments that it is given.
_READ_ELSEWHERE = re.compile(r"(?i)(?:local|node|global)?_?rank|world_size|deepspeed\w*|deepscale\w*|help|version")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each option of a command that the code does not read."""
    modules = run.machine.program.modules()
    if not says_several(run, modules) and not run.has("training-arguments"):
        return
    for found in run.happenings("parses-arguments"):
        line = found.event.command_line
        if line is None or not line.parses or line.own_words or not _stays_here(found, modules):
            continue
        known, options = _of_libraries(run, line), list(_options(line))
        unread = [(o, _passed(run, o)) for o in options if o.dest not in known and not _is_read(o, modules)]
        passed = [places for _, places in unread if places]
        if unread and len(passed) <= _MOST_PASSED and len(unread) <= min(_MOST, len(options) // 2):
            others = _imported_texts(run, modules)
            yield from _told(run, [(o, places) for o, places in unread if not _is_elsewhere(run, o, others)], modules)


def _told(run: RunQuery, unread: list[tuple[Option, tuple[Location, ...]]], modules: list[Module]) -> Iterator[Finding]:
    """Yield a finding for each option that a command passes, and one for the others of a file."""
    others: dict[str, list[Option]] = {}
    for option, places in unread:
        if places:
            yield _passed_one(run, option, places, modules)
        else:
            others.setdefault(option.location.path, []).append(option)
    for options in others.values():
        yield _unpassed(run, options, modules)


def _is_elsewhere(run: RunQuery, option: Option, others: list[str]) -> bool:
    """Return whether a file that the run has not read may read an option."""
    word = re.compile(rf"\b{re.escape(option.dest)}\b")
    return any(map(word.search, others)) or _is_shared(run, option)


def _options(line: CommandLine) -> Iterator[Option]:
    """Yield the options of a parser that the project declares, those of its commands, too."""
    yield from (o for o in line.options if o.flags and not _READ_ELSEWHERE.fullmatch(o.dest))
    for inner in line.commands.values():
        yield from _options(inner)


def _of_libraries(run: RunQuery, line: CommandLine) -> set[str]:
    """Return the fields of library classes that the parser fills: the library reads what a project declares anew."""
    rows = [row for path in line.classes for row in run.machine.libraries.lineage(path)]
    found = [row.constructor.parameters for row in rows]
    return {p.arg for each in found if each is not None for p in (*each.args, *each.kwonlyargs)}


def _passed(run: RunQuery, option: Option) -> tuple[Location, ...]:
    """Return the commands that pass an option."""
    passed = run.context.arguments.get(option.dest)
    return passed.origins if passed is not None else ()


def _stays_here(found: Happening, modules: list[Module]) -> bool:
    """Return whether the arguments certainly go nowhere as a whole."""
    event = found.event
    atoms = list(event.result.atoms) if event.result is not None else []
    atoms += [inner for atom in atoms if isinstance(atom, Tuple) for value in atom.items for inner in value.atoms]
    taken = event.module.parents.get(event.node)
    # Who imports a module and calls its function gets the arguments, in code that is not read here.
    if not atoms or (found.entry.kind != "script" and isinstance(taken, ast.Return)):
        return False
    targets = taken.targets if isinstance(taken, ast.Assign) else []
    names = {last_name(name) for target in targets for name in ast.walk(target)} - {""}
    return not any(hands_on(module, names) for module in modules)


def _is_read(option: Option, modules: list[Module]) -> bool:
    """Return whether some code reads a field of that name, of whatever object."""
    for module in modules:
        if option.dest in module.attributes:
            return True
        for call in module.nodes_of(ast.Call):
            names = {ast.unparse(call.func).rpartition(".")[2]}
            if names & {"getattr", "hasattr", "get", "pop", "attrgetter"} and any(
                isinstance(a, ast.Constant) and a.value == option.dest for a in call.args
            ):
                return True
        for pattern in module.nodes_of(ast.MatchClass):
            if option.dest in pattern.kwd_attrs:
                return True
    return False


def _is_shared(run: RunQuery, option: Option) -> bool:
    """Return whether another file declares the option, for other scripts that read it, too."""
    read = re.compile(rf"\.{re.escape(option.dest)}\b")
    return option.location.path != run.path and any(read.search(text) for text in texts_of_others(run).values())


def _imported_texts(run: RunQuery, modules: list[Module]) -> list[str]:
    """Return the texts of files that the run has not read, and that some import may still mean."""
    found = []
    for path, text in texts_of_others(run).items():
        stem = re.escape(path.rpartition("/")[2].removesuffix(".py"))
        if any(
            module.search(re.compile(rf"import[^\n]*\b{stem}\b|from[^\n]*\b{stem}\b|[\"'][\w./]*\b{stem}\b"))
            for module in modules
        ):
            found.append(text)
    return found


def _passed_one(run: RunQuery, option: Option, places: tuple[Location, ...], modules: list[Module]) -> Finding:
    return META.finding(
        option.location,
        f"`{option.name}` is parsed and never read: the command that passes it changes nothing",
        hint=f"Read `{option.dest}` where it belongs, or remove the option",
        related=(*_instead(run, option, modules), *(place.labelled("passed here") for place in places[:2])),
        facts={"option": option.dest},
    )


def _unpassed(run: RunQuery, options: list[Option], modules: list[Module]) -> Finding:
    names = [f"`{option.name}`" for option in options]
    if len(names) > _NAMED + 1:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    shown = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    be, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return META.finding(
        options[0].location,
        f"{shown} {be} parsed and never read: whoever passes {them} changes nothing",
        hint=f"Read {them} where {'it belongs' if them == 'it' else 'they belong'}, or remove {them} from the parser",
        related=(
            *(place for option in options for place in _instead(run, option, modules)),
            *(option.location.labelled("never read, too") for option in options[1:]),
        ),
        facts={"option": options[0].dest},
    )


def _instead(run: RunQuery, option: Option, modules: list[Module]) -> list[Location]:
    """Return the place where a constant is given to something of the name of an option, if there is one."""
    place = next(_written(option, modules), None)
    return [run.location(*place, "a value is written out here")] if place is not None else []


def _written(option: Option, modules: list[Module]) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the places where a constant is given to something of the same name."""
    for module in modules:
        for keyword in module.nodes_of(ast.keyword):
            if keyword.arg == option.dest and isinstance(keyword.value, ast.Constant):
                yield module, keyword.value
        for node in module.nodes_of(ast.Assign):
            for target in node.targets:
                key = target.slice if isinstance(target, ast.Subscript) else None
                if isinstance(key, ast.Constant) and key.value == option.dest and isinstance(node.value, ast.Constant):
                    yield module, node.value


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

%s
def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    return parser.parse_args()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(%s)
    for x in torch.load("data.pt"):
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
"""
_WRITTEN = "model.parameters(), lr=args.lr, weight_decay=0.1"
_READ = "model.parameters(), lr=args.lr, weight_decay=args.weight_decay"
_RUN = "torchrun --nproc_per_node 8 train.py --lr 3e-4 --weight_decay 0.01\n"
_FIELDS = """\
from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments
from trl import DPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="gpt2")
    beta: float = field(default=0.1)


def main():
    script_args, training_args = HfArgumentParser((ScriptArguments, TrainingArguments)).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(script_args.model_name)
    trainer = DPOTrainer(model, args=training_args, train_dataset=[]%s)
    trainer.train()


main()
"""
_FIELDS_RUN = "accelerate launch --num_processes 4 train.py --output_dir out --beta 0.5\n"
_OPTIM = """\
import torch


def make_optimizer(model, opt):
    groups = [{"params": model.parameters(), "weight_decay": %s}]
    return torch.optim.AdamW(groups, lr=opt.lr)
"""
_LOGGED = """\

def show(args):
    for name, value in vars(args).items():
        print(name, value)

"""
_KEPT = """\
import json


def keep(args):
    json.dump(args.__dict__, open("args.json", "w"))

"""
_USED = """\

def settings(args):
    return torch.optim.AdamW, dict(vars(args))

"""
_SPLIT = (_TRAIN % ("", "X")).replace("torch.optim.AdamW(X)", "make_optimizer(model, args)").replace(
    "import torch\n", "import torch\nfrom optim import make_optimizer\n", 1)  # fmt: skip

EXAMPLES = (
    bad("a number is written out", {"train.py": _TRAIN % ("", _WRITTEN), "run.sh": _RUN}, "train.py:11 warning"),
    bad("a field of a dataclass", {"train.py": _FIELDS % "", "run.sh": _FIELDS_RUN}, "train.py:10"),
    bad("the optimizer is made in another file", {
        "optim.py": _OPTIM % "0.1", "train.py": _SPLIT, "run.sh": _RUN}, "train.py:12"),
    bad("all arguments are printed", {"train.py": _TRAIN % (_LOGGED, _WRITTEN), "run.sh": _RUN}, "train.py:16"),
    good("the option is read", {"train.py": _TRAIN % ("", _READ), "run.sh": _RUN}),
    good("a field that is read", {"train.py": _FIELDS % ", beta=script_args.beta", "run.sh": _FIELDS_RUN}),
    good("it is read in another file", {
        "optim.py": _OPTIM % "opt.weight_decay", "train.py": _SPLIT, "run.sh": _RUN}),
    good("a module of options that a script imports", {
        "options.py": (_TRAIN % ("", "")).partition("\n\ndef main")[0] + "\n\n\ndef rate(args):\n    return args.lr\n",
        "train.py": "import torch\nfrom options import get_args, rate\n\nargs = get_args()\n"
        "print(args.weight_decay, rate(args))\n"}),
    good("the arguments go on as a whole", {"train.py": _TRAIN % (_USED, _WRITTEN), "run.sh": _RUN}),
    good("by names that are computed", {"train.py": _TRAIN % ("", "model.parameters(), **{\n"
         "        name: getattr(args, name) for name in ('lr', 'weight' + '_decay')}"), "run.sh": _RUN}),
    good("a field that the library reads", {
        "train.py": _FIELDS.replace("ScriptArguments:", "ScriptArguments(TrainingArguments):").replace(
            "    beta: float = field(default=0.1)", '    optim: str = field(default="adamw_torch")') % "",
        "run.sh": _FIELDS_RUN.replace("--beta 0.5", "--optim adafactor")}),
    bad("no command passes it", {
        "train.py": _TRAIN % ("", _WRITTEN), "run.sh": _RUN.replace(" --weight_decay 0.01", "")}, "train.py:11"),
    bad("other options of another call are unpacked", {
        "train.py": (_TRAIN % ("", _WRITTEN + ", **more_args")).replace(
            "    model = D", "    more_args = dict(eps=1e-6)\n    model = D"), "run.sh": _RUN}, "train.py:11"),
    bad("several that no command passes are one finding", {
        "train.py": (_TRAIN % ("", _WRITTEN)).replace(
            "    return parser", '    parser.add_argument("--ema", action="store_true")\n'
            '    parser.add_argument("--seed", default=0)\n    return parser').replace(
            "    dist.init", "    torch.manual_seed(args.seed)\n    dist.init"),
        "run.sh": _RUN.replace(" --weight_decay 0.01", "")}, "train.py:11"),
    bad("all arguments are kept in a file by a name of their own", {
        "train.py": _TRAIN % (_KEPT.replace("    json.dump(args.__dict__", "    kept = vars(args)\n    json.dump(kept"),
                              _WRITTEN), "run.sh": _RUN}, "train.py:18"),
    good("a name of its own goes on", {
        "train.py": _TRAIN % (_USED.replace("dict(vars(args))", "kept").replace(
            "    return", "    kept = vars(args)\n    return"), _WRITTEN), "run.sh": _RUN}),
    bad("all arguments are kept in a file", {
        "train.py": _TRAIN % (_KEPT, _WRITTEN), "run.sh": _RUN}, "train.py:17"),
    good("nothing speaks of several processes", {
        "train.py": (_TRAIN % ("", _WRITTEN)).replace("import torch.distributed as dist\n", "").replace(
            "from torch.nn.parallel import DistributedDataParallel\n", "").replace(
            '    dist.init_process_group("gloo")\n', "").replace("DistributedDataParallel", ""),
        "run.sh": _RUN.replace("torchrun --nproc_per_node 8", "python")}),
)  # fmt: skip
