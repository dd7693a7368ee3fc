"""**What.** `deepspeed.initialize` gets no config: neither `config` nor `config_params`, and no `args` that could name
one.

**Why it hurts.** It stops on every rank with `AssertionError: DeepSpeed requires --deepspeed_config to specify
configuration file`, after the model is loaded.

**Fix.** `config="ds_config.json"`, or `args=args` with a parser that `deepspeed.add_config_arguments(parser)` extended,
and `--deepspeed_config` on the command line.

**When it stays quiet.** `args` is passed and may hold `deepspeed_config`: it comes from elsewhere, from a parser that
the script passes on (also to `add_config_arguments`), or `deepspeed_config` is set on it; arguments are unpacked with
`*` or `**`.

**Evidence.** DeepSpeed 0.19.8 `__init__.py: initialize`. Two gloo ranks: the assertion stops both, without `args` as
well as with a namespace that has no `deepspeed_config`; with the one or the other they train.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL243",
    name="initialize-without-config",
    kind="script",
    severity=Severity.ERROR,
    summary="`deepspeed.initialize` gets no config",
    markers=(r"deepspeed",),
    references=("deepspeed.initialize in deepspeed/__init__.py",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Find the engines for which no argument can hold a config."""
    for found in run.happenings("makes-engine"):
        event = found.event
        lacks = event.config is None or event.config.constants == (None,)
        if event.open or event.may or not lacks or event.named is None or event.named.constants != (None,):
            continue
        args = event.arguments.get("args")
        missing = args is None or args.constants == (None,)
        what = "no `config` and no `args`" if missing else "no `config`, and `args` has no `deepspeed_config`"
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{event.api}` gets {what}: `AssertionError` on every rank",
            hint="Pass `config=` a dict or the path of a JSON file"
            + ("" if missing else ", or call `deepspeed.add_config_arguments(parser)`"),
            facts={"arguments": "no-config" if missing else "args-without-it"},
        )


_PARSER = """\
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
"""
_TRAIN = """\
args = parser.parse_args()
engine, _, _, _ = deepspeed.initialize(args=args, model=make_model())
"""

EXAMPLES = (
    bad(
        "nothing at all",
        {"train.py": "import deepspeed\n\nengine, *_ = deepspeed.initialize(model=make_model(), optimizer=make(1))\n"},
        at="train.py:3 error",
    ),
    bad(
        "a parser that does not know the argument",
        {"train.py": _PARSER + _TRAIN},
        at="train.py:8 error",
    ),
    bad(
        "keywords that a helper passes on, from another file",
        {
            "engines.py": (
                "from deepspeed import initialize as start\n\n\n"
                "def make(model, **options):\n    return start(model=model, **options)[0]\n"
            ),
            "train.py": (
                "import deepspeed\nfrom engines import make\n\ndeepspeed.init_distributed()\n"
                "engine = make(make_model(), lr_scheduler=None)\n"
            ),
        },
        at="engines.py:5 error",
    ),
    good(
        "a helper that adds the option to a parser",
        {
            "train.py": _PARSER
            + "\n\ndef extend(given):\n    return deepspeed.add_config_arguments(given)\n\n\nextend(parser)\n"
            + _TRAIN
        },
    ),
    good(
        "a config",
        {"train.py": "import deepspeed\n\nengine, *_ = deepspeed.initialize(model=make_model(), config='ds.json')\n"},
    ),
    good(
        "the arguments of DeepSpeed",
        {"train.py": _PARSER + "parser = deepspeed.add_config_arguments(parser)\n" + _TRAIN},
    ),
    good(
        "arguments from elsewhere",
        {
            "train.py": (
                "import deepspeed\nfrom options import get_args\n\nargs = get_args()\n"
                "engine, *_ = deepspeed.initialize(args, make_model())\n"
            )
        },
    ),
    good(
        "arguments that are unpacked",
        {"train.py": "import deepspeed\n\n\ndef make(**options):\n    return deepspeed.initialize(**options)[0]\n"},
    ),
)
