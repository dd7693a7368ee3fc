"""The script parses an option, and nobody uses its value.

**What.** The script of a job of several processes declares an option (`add_argument`, or a field of a dataclass that a
parser fills), and no code of the run reads `args.weight_decay`, or what reads it makes no use of it: a variable that
nobody reads (`timeout_min = args.timeout`), a parameter of a function that does not use it, a rate that is scaled and
then passed to nobody. The usual cases are a number that is written out where the option was meant,
`AdamW(..., weight_decay=0.1)`, and a feature that was copied from another project by its options alone:
`--gradient-accumulation-steps`, `--ema`, `--resume`. Options that no command passes are one finding for a file.

**Why it hurts.** The command line states a setting that the run does not have. Nothing is refused and nothing is
logged: the job of many GPUs trains with another number, and a sweep over the option repeats one run.

**Fix.** Read the option where it belongs, or take it out of the parser, so that a command which passes it is refused.

**When it stays quiet.** The arguments go on as a whole: `**vars(args)`, `getattr(args, name)`, code that nobody can
read (with the optimizers and schedules of timm); some file of the run uses a field of that name of what may be the
arguments; options that launchers and DeepSpeed read; more than two dozen such options, more than half of all, or more
than three that commands pass, which says that they are read in another way.

**Evidence.** Python's `argparse`: what nobody reads changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.commandlines import CommandLine
from dslint.python.plainoptions import Option
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.optionscripts import FIELDS, METHODS, TRAIN
from dslint.rules.names.argumentholders import ArgumentHolders
from dslint.rules.names.consumers import Consumers, Fate
from dslint.rules.names.optionreads import (
    OF_TIMM,
    asks_timm,
    imported_texts,
    is_elsewhere,
    names_of_arguments,
    reads_of_option,
    stays_here,
    taken_by_name,
)
from dslint.rules.ranks.intent import says_several
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL701",
    name="option-without-effect",
    kind="script",
    severity=Severity.WARNING,
    summary="the script parses an option and nobody uses it: whoever passes it changes nothing",
    markers=(r"add_argument|ArgumentParser|TrlParser", r"torch|accelerat|deepspeed|transformers|lightning"),
    references=("https://docs.python.org/3/library/argparse.html#the-namespace-object",),
    depends_on_run=True,
    no_experiment="nothing reads the option: there is nothing to run",
)
# More of them than this are read in another way, or more than half of all: of those that commands pass, and of all.
_MOST_PASSED, _MOST = 3, 24
# So many are named in one headline.
_NAMED = 3
# What launchers pass to every process, or DeepSpeed reads from the arguments that it is given.
_READ_ELSEWHERE = re.compile(r"(?i)(?:local|node|global)?_?rank|world_size|deepspeed\w*|deepscale\w*|help|version")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each option of a command that the code does not read."""
    modules = run.machine.program.modules()
    if not says_several(run, modules) and not run.has("training-arguments"):
        return
    uses = Consumers(run)
    for found in run.happenings("parses-arguments"):
        line = found.event.command_line
        if line is None or not line.parses or line.own_words:
            continue
        holders = ArgumentHolders(run.machine.program, names_of_arguments(found), [found.event.node])
        if not stays_here(found, modules, holders):
            continue
        known, options = _of_libraries(run, line) | taken_by_name(modules), list(_options(line))
        options = [o for o in options if not (OF_TIMM.fullmatch(o.dest) and any(map(asks_timm, modules)))]
        fates = {o.dest: uses.fate(reads_of_option(uses, holders, o)) for o in options if o.dest not in known}
        unread = [(o, _passed(run, o)) for o in options if o.dest in fates and _is_useless(fates[o.dest])]
        passed = [places for _, places in unread if places]
        if unread and len(passed) <= _MOST_PASSED and len(unread) <= min(_MOST, len(options) // 2):
            others = imported_texts(run, modules)
            told = [_Unused(o, places, fates[o.dest]) for o, places in unread if not is_elsewhere(run, o, others)]
            yield from _told(run, told, modules)


@dataclass(frozen=True, slots=True)
class _Unused:
    """An option without effect, the commands that pass it, and where its value ends."""

    option: Option
    places: tuple[Location, ...]
    fate: Fate


def _told(run: RunQuery, unused: list[_Unused], modules: list[Module]) -> Iterator[Finding]:
    """Yield a finding for each option that a command passes, and one for the others of a file."""
    others: dict[tuple[str, bool], list[_Unused]] = {}
    for one in unused:
        if one.places:
            yield _passed_one(run, one, modules)
        else:
            others.setdefault((one.option.location.path, one.fate.is_read), []).append(one)
    for each in others.values():
        yield _unpassed(run, each, modules)


def _is_useless(fate: Fate) -> bool:
    """Return whether nobody uses the value of an option; what is printed may be for people to read."""
    return not fate.is_used and not fate.is_shown


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


def _passed_one(run: RunQuery, one: _Unused, modules: list[Module]) -> Finding:
    option = one.option
    return META.finding(
        option.location,
        f"`{option.name}` is parsed and never {_verb([one])}: the command that passes it changes nothing",
        hint=f"Read `{option.dest}` where it belongs, or remove the option",
        related=(*_around(run, one, modules), *(place.labelled("passed here") for place in one.places[:2])),
        facts={"option": option.dest},
    )


def _unpassed(run: RunQuery, unused: list[_Unused], modules: list[Module]) -> Finding:
    options = [one.option for one in unused]
    names = [f"`{option.name}`" for option in options]
    if len(names) > _NAMED + 1:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    shown = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    be, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return META.finding(
        options[0].location,
        f"{shown} {be} parsed and never {_verb(unused)}: whoever passes {them} changes nothing",
        hint=f"Read {them} where {'it belongs' if them == 'it' else 'they belong'}, or remove {them} from the parser",
        related=(
            *(place for one in unused for place in _around(run, one, modules)),
            *(option.location.labelled("never read, too") for option in options[1:]),
        ),
        facts={"option": options[0].dest},
    )


def _verb(unused: list[_Unused]) -> str:
    return "used" if any(one.fate.is_read for one in unused) else "read"


def _around(run: RunQuery, one: _Unused, modules: list[Module]) -> list[Location]:
    """Return where the value of an option ends, and where a constant stands in its place."""
    ends = [module.location(node, f"`{one.option.dest}` ends here: {how}") for module, node, how in one.fate.ends[:2]]
    return [*ends, *_instead(run, one.option, modules)]


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


_WRITTEN = "model.parameters(), lr=args.lr, weight_decay=0.1"
_READ = "model.parameters(), lr=args.lr, weight_decay=args.weight_decay"
_RUN = "torchrun --nproc_per_node 8 train.py --lr 3e-4 --weight_decay 0.01\n"
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
_SPLIT = (TRAIN % ("", "X")).replace("torch.optim.AdamW(X)", "make_optimizer(model, args)").replace(
    "import torch\n", "import torch\nfrom optim import make_optimizer\n", 1)  # fmt: skip

_SCALED = "    args.weight_decay = args.weight_decay * dist.get_world_size()\n    print('decay', args.weight_decay)\n"
_KEPT_ASIDE = "    decay = float(args.weight_decay)\n"
_UNUSED = """\

def build(model, lr, decay=0.0):
    return torch.optim.AdamW(model.parameters(), lr=lr)

"""
_USES = _UNUSED.replace("lr=lr)", "lr=lr, weight_decay=decay)")


def _given(head: str, line: str, call: str = _WRITTEN) -> dict[str, str]:
    return {"train.py": (TRAIN % (head, call)).replace("    model = D", f"{line}    model = D"), "run.sh": _RUN}


def _built(head: str, call: str = "build(model, args.lr, decay=args.weight_decay)") -> dict[str, str]:
    return {"train.py": (TRAIN % (head, "X")).replace("torch.optim.AdamW(X)", call), "run.sh": _RUN}


_CONFIG = """\
class Config:
    def __init__(self, lr, weight_decay):
        self.lr = lr
        self.decay = weight_decay
"""
_CONFIGURED = TRAIN % (_CONFIG, "model.parameters(), config.lr, weight_decay=config.decay")
_CONFIGURED = _CONFIGURED.replace("parser.parse_args()", "Config(**vars(parser.parse_args()))")
_CONFIGURED = _CONFIGURED.replace("args = get_args()", "config = get_args()")

EXAMPLES = (
    bad("it is scaled, printed, and passed to nobody", _given("", _SCALED), "train.py:11 warning"),
    bad("a variable that nobody reads", _given("", _KEPT_ASIDE), "train.py:11"),
    bad("a parameter that the function does not use", _built(_UNUSED), "train.py:15"),
    bad("a field that nobody reads", _built(METHODS, "Maker(args.lr, args.weight_decay).make(model)"), "train.py:20"),
    bad("another object has a field of that name", _given(
        "", "    settings = torch.load('settings.pt')\n", _WRITTEN.replace("0.1", "settings.weight_decay")),
        "train.py:11"),
    good("the function uses it", _built(_USES)),
    good("a field that somebody reads", _built(
        METHODS.replace("lr=self.lr)", "lr=self.lr, weight_decay=self.decay)"),
        "Maker(args.lr, args.weight_decay).make(model)")),
    good("a stub that others define", _built(
        "\nclass Base:\n    def build(self, model, lr, decay):\n        raise NotImplementedError\n\n",
        "Base().build(model, args.lr, decay=args.weight_decay)")),
    good("the function hands on all that it gets", _built(
        "\ndef build(model, lr, decay):\n    return torch.optim.AdamW(model.parameters(), **locals())\n\n")),
    good("`**options` that somebody looks into", _built(
        "\ndef build(model, lr, **options):\n    return torch.optim.AdamW(model.parameters(), lr=lr, **options)\n\n")),
    good("it decides over a branch", _given(
        "", "    if args.weight_decay > 1:\n        raise ValueError('too much')\n")),
    good("a function takes it by the name that it gets", _built(
        "\ndef update(group, key, source, name):\n    group[key] = getattr(source, name)\n    return group\n\n",
        "SGD([update({'params': model.parameters()}, 'weight_decay', args, 'weight_decay')], lr=args.lr)".replace(
            "SGD", "torch.optim.SGD"))),
    bad("a function takes others by the names that it gets", _built(
        "\ndef update(group, key, source, name):\n    group[key] = getattr(source, name)\n    return group\n\n",
        "torch.optim.SGD([update({'params': model.parameters()}, 'lr', args, 'lr')], lr=0.1)"), "train.py:16"),
    good("a class takes all of them", {"train.py": _CONFIGURED, "run.sh": _RUN}),
    good("a function asks for it by its name", _built(
        "\ndef has(args, name):\n    return hasattr(args, name) and eval(f'args.{name}')\n\n",
        "torch.optim.AdamW(model.parameters(), args.lr, weight_decay=0.1 if has(args, 'weight_decay') else 0.0)")),
    good("a method of the fields reads it", {
        "train.py": (FIELDS % ", beta=script_args.half()").replace("    beta: float = field(default=0.1)\n",
            "    beta: float = field(default=0.1)\n\n    def half(self):\n        return self.beta / 2\n"),
        "run.sh": _FIELDS_RUN}),
    good("a function takes it by one name of a list", _built(
        "\ndef chosen(args, names):\n    return {name: getattr(args, name) for name in names}\n\n",
        'torch.optim.AdamW(model.parameters(), **chosen(args, ["lr", "weight_decay"]))')),
    good("a function that is handed in gets it", _built(
        "\ndef build(model, lr, decay, make):\n    return make(model.parameters(), lr=lr, weight_decay=decay)\n\n",
        "build(model, args.lr, args.weight_decay, torch.optim.AdamW)")),
    good("timm reads the arguments", {"train.py": (TRAIN % ("", "X")).replace(
        "torch.optim.AdamW(X)", "create_optimizer(args, model)").replace(
        "import torch\n", "import torch\nfrom timm.optim import create_optimizer\n", 1), "run.sh": _RUN}),
    good("one field of the dictionary of all", _given(
        "", "    decay = vars(args)['weight_decay']\n", _WRITTEN.replace("0.1", "decay"))),
    bad("a number is written out", {"train.py": TRAIN % ("", _WRITTEN), "run.sh": _RUN}, "train.py:11 warning"),
    bad("a field of a dataclass", {"train.py": FIELDS % "", "run.sh": _FIELDS_RUN}, "train.py:10"),
    bad("the optimizer is made in another file", {
        "optim.py": _OPTIM % "0.1", "train.py": _SPLIT, "run.sh": _RUN}, "train.py:12"),
    bad("all arguments are printed", {"train.py": TRAIN % (_LOGGED, _WRITTEN), "run.sh": _RUN}, "train.py:16"),
    good("the option is read", {"train.py": TRAIN % ("", _READ), "run.sh": _RUN}),
    good("a field that is read", {"train.py": FIELDS % ", beta=script_args.beta", "run.sh": _FIELDS_RUN}),
    good("it is read in another file", {
        "optim.py": _OPTIM % "opt.weight_decay", "train.py": _SPLIT, "run.sh": _RUN}),
    good("a module of options that a script imports", {
        "options.py": (TRAIN % ("", "")).partition("\n\ndef main")[0] + "\n\n\ndef rate(args):\n    return args.lr\n",
        "train.py": "import torch\nfrom options import get_args, rate\n\nargs = get_args()\n"
        "print(args.weight_decay, rate(args))\n"}),
    good("the arguments go on as a whole", {"train.py": TRAIN % (_USED, _WRITTEN), "run.sh": _RUN}),
    good("by names that are computed", {"train.py": TRAIN % ("", "model.parameters(), **{\n"
         "        name: getattr(args, name) for name in ('lr', 'weight' + '_decay')}"), "run.sh": _RUN}),
    good("a field that the library reads", {
        "train.py": FIELDS.replace("ScriptArguments:", "ScriptArguments(TrainingArguments):").replace(
            "    beta: float = field(default=0.1)", '    optim: str = field(default="adamw_torch")') % "",
        "run.sh": _FIELDS_RUN.replace("--beta 0.5", "--optim adafactor")}),
    bad("no command passes it", {
        "train.py": TRAIN % ("", _WRITTEN), "run.sh": _RUN.replace(" --weight_decay 0.01", "")}, "train.py:11"),
    bad("other options of another call are unpacked", {
        "train.py": (TRAIN % ("", _WRITTEN + ", **more_args")).replace(
            "    model = D", "    more_args = dict(eps=1e-6)\n    model = D"), "run.sh": _RUN}, "train.py:11"),
    bad("several that no command passes are one finding", {
        "train.py": (TRAIN % ("", _WRITTEN)).replace(
            "    return parser", '    parser.add_argument("--ema", action="store_true")\n'
            '    parser.add_argument("--seed", default=0)\n    return parser').replace(
            "    dist.init", "    torch.manual_seed(args.seed)\n    dist.init"),
        "run.sh": _RUN.replace(" --weight_decay 0.01", "")}, "train.py:11"),
    bad("all arguments are kept in a file by a name of their own", {
        "train.py": TRAIN % (_KEPT.replace("    json.dump(args.__dict__", "    kept = vars(args)\n    json.dump(kept"),
                              _WRITTEN), "run.sh": _RUN}, "train.py:18"),
    good("a name of its own goes on", {
        "train.py": TRAIN % (_USED.replace("dict(vars(args))", "kept").replace(
            "    return", "    kept = vars(args)\n    return"), _WRITTEN), "run.sh": _RUN}),
    bad("all arguments are kept in a file", {
        "train.py": TRAIN % (_KEPT, _WRITTEN), "run.sh": _RUN}, "train.py:17"),
    good("nothing speaks of several processes", {
        "train.py": (TRAIN % ("", _WRITTEN)).replace("import torch.distributed as dist\n", "").replace(
            "from torch.nn.parallel import DistributedDataParallel\n", "").replace(
            '    dist.init_process_group("gloo")\n', "").replace("DistributedDataParallel", ""),
        "run.sh": _RUN.replace("torchrun --nproc_per_node 8", "python")}),
)  # fmt: skip
