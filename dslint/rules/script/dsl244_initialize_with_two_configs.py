"""**What.** `deepspeed.initialize` gets a config twice: as `config=` (or `config_params=`) and as
`args.deepspeed_config`.

**Why it hurts.** It stops on every rank with `AssertionError: Not sure how to proceed, we were given deepspeed configs
in the deepspeed arguments and deepspeed.initialize() function call`, after the model is loaded.

**Fix.** Drop one of them: `config=` when the file named on the command line shall decide, `args=` otherwise.

**When it stays quiet.** Nobody says that `args.deepspeed_config` has a value: `deepspeed.add_config_arguments` leaves
it `None` unless the launch command passes `--deepspeed_config`; a test around the call asks for it. It fires when every
launch command of the project passes it, when its default is a path, when the script assigns it, and when the script
passes `config=args.deepspeed_config` beside `args=args`: with the flag there are two configs, without it there is none.

**Evidence.** DeepSpeed 0.19.8 `__init__.py: initialize`. Two gloo ranks: a namespace with a `deepspeed_config` beside
`config=` raises on both; with `deepspeed_config=None` they train.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt
from dslint.python.values import OPAQUE, Const, Instance, Unknown, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL244",
    name="initialize-with-two-configs",
    kind="script",
    severity=Severity.ERROR,
    summary="`deepspeed.initialize` gets a config as argument and in `args`",
    markers=(r"deepspeed",),
    references=("deepspeed.initialize in deepspeed/__init__.py",),
    depends_on_run=True,
)
_CONFIGS = ("config", "config_params")


def query(run: RunQuery) -> Iterator[Finding]:
    """Find the engines that get a config as argument and in `args`."""
    for found in run.happenings("makes-engine"):
        event = found.event
        if event.open or event.may or event.config is None or event.named is None or _is_asked(found):
            continue
        args = run.text(event.module, event.nodes["args"]) if "args" in event.nodes else "args"
        where = next((event.nodes[name] for name in _CONFIGS if name in event.nodes), event.node)
        if _is_given(event.config) and _is_given(event.named):
            yield run.finding(
                META,
                event.module,
                where,
                f"a config is passed, but `args={args}` has `deepspeed_config` too: `{event.api}` raises"
                " `AssertionError`",
                hint="Drop `config=`, or do not pass `args=`",
                facts={"arguments": "two-configs"},
            )
        elif _is_one_unknown(event.config, event.named):
            yield run.finding(
                META,
                event.module,
                where,
                f"`config=` and `args={args}` hold the same `deepspeed_config`: `{event.api}` gets two configs or none,"
                " and raises",
                hint="Drop `config=`: DeepSpeed reads `args.deepspeed_config` itself",
                facts={"arguments": "two-configs"},
            )


def _is_asked(found: Happening) -> bool:
    """Return whether a test around the call asks for `deepspeed_config`."""
    tests = (node for node in found.around if isinstance(node, Alt))
    return any("deepspeed_config" in t.module.text(getattr(t.node, "test", t.node)) for t in tests)


def _is_given(value: Value) -> bool:
    """Return whether a config is certainly not `None`."""
    is_option = isinstance(value.number, tuple) and value.number[:1] == ("option",)
    return bool(value.atoms) and all(
        (isinstance(atom, Const) and atom.value is not None)
        or (isinstance(atom, Instance) and bool(atom.cls))
        or (isinstance(atom, Unknown) and bool(atom.type) and (is_option or atom.kind == OPAQUE))
        for atom in value.atoms
    )


def _is_one_unknown(config: Value, named: Value) -> bool:
    """Return whether both are the same value, whatever it is."""
    if named.constants is not None:
        return False
    is_numbered = named.number is not None and named.number == config.number
    return is_numbered or (isinstance(named.single, Instance) and named.single is config.single)


_HEAD = """\
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
"""
_INITIALIZE = """\
args = parser.parse_args()
engine, _, _, _ = deepspeed.initialize(args=args, model=make_model(), config={"train_batch_size": 8})
"""

EXAMPLES = (
    bad(
        "the command line names a config",
        {
            "train.py": _HEAD + "deepspeed.add_config_arguments(parser)\n" + _INITIALIZE,
            "ds.json": '{"train_batch_size": 8}\n',
            "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n",
        },
        at="train.py:9 error",
    ),
    bad(
        "the default is a path",
        {"train.py": _HEAD + "parser.add_argument('--deepspeed_config', default='ds.json')\n" + _INITIALIZE},
        at="train.py:9 error",
    ),
    bad(
        "the config of the arguments, passed once more",
        {
            "train.py": _HEAD + "parser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
            "engine, *_ = deepspeed.initialize(args, make_model(), config=args.deepspeed_config)\n"
        },
        at="train.py:9 error",
    ),
    bad(
        "the script sets it",
        {
            "train.py": _HEAD + "args = parser.parse_args()\nargs.deepspeed_config = 'ds.json'\n"
            "engine, *_ = deepspeed.initialize(args=args, model=make_model(), config='other.json')\n"
        },
        at="train.py:9 error",
    ),
    bad(
        "a helper gets the arguments and a config",
        {
            "train.py": _HEAD
            + "parser.add_argument('--deepspeed_config', default='ds.json')\n\n\n"
            + "def make(options, **given):\n"
            + "    return deepspeed.initialize(args=options, model=make_model(), **given)\n\n\n"
            + "make(parser.parse_args(), config={'train_batch_size': 8})\n"
        },
        at="train.py:14 error",
    ),
    good(
        "the command line does not name one",
        {
            "train.py": _HEAD + "deepspeed.add_config_arguments(parser)\n" + _INITIALIZE,
            "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed\n",
        },
    ),
    good(
        "the script takes it out of the arguments",
        {
            "train.py": _HEAD + "deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
            "path = args.deepspeed_config or 'ds.json'\nargs.deepspeed_config = None\n"
            "engine, *_ = deepspeed.initialize(args=args, model=make_model(), config=path)\n",
            "ds.json": '{"train_batch_size": 8}\n',
            "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n",
        },
    ),
    good(
        "one of them",
        {
            "train.py": _HEAD + "parser.add_argument('--deepspeed_config', default='ds.json')\n"
            "args = parser.parse_args()\nengine, *_ = deepspeed.initialize(args=args, model=make_model())\n"
        },
    ),
)
