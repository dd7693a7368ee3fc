"""**What.** `deepspeed.initialize` gets no config: neither `config` nor `config_params`, and no `args` that could name
one.

**Why it hurts.** It stops on every rank with `AssertionError: DeepSpeed requires --deepspeed_config to specify
configuration file`, after the model is loaded.

**Fix.** `config="ds_config.json"`, or `args=args` with a parser that `deepspeed.add_config_arguments(parser)` extended,
and `--deepspeed_config` on the command line.

**When it stays quiet.** `args` is passed and may hold `deepspeed_config`: it comes from elsewhere, from a parser that
the script hands on (also to `add_config_arguments`), or `deepspeed_config` is set on it; arguments are unpacked with
`*` or `**`.

**Evidence.** DeepSpeed 0.19.8 `__init__.py: initialize`. Two gloo ranks: the assertion stops both, without `args` as
well as with a namespace that has no `deepspeed_config`; with the one or the other they train.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.dotted import is_none, keyword
from dslint.model.script.quick import call_name, flat
from dslint.model.script.quick import is_none as is_none_literal
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL243",
    name="initialize-without-config",
    kind="script",
    severity=Severity.ERROR,
    summary="`deepspeed.initialize` gets no config",
    markers=(r"deepspeed", r"initialize\s*\("),
    references=("deepspeed.initialize in deepspeed/__init__.py",),
)
_CONFIGS = (("config", 10), ("config_params", 12))


def precheck(tree: ast.Module) -> bool:
    """A call of `initialize` names no config."""
    return any(
        call_name(call) == "initialize" and not any(k.arg in (None, "config", "config_params") for k in call.keywords)
        for call in flat(tree).nodes(ast.Call)
    ) or any(
        call_name(call) == "initialize" and any(is_none_literal(k.value) for k in call.keywords)
        for call in flat(tree).nodes(ast.Call)
    )


class Check(ScriptCheck):
    """Looks at each call of `deepspeed.initialize`."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when no argument can hold a config."""
        if self.ctx.qualified_name(node.func) != "deepspeed.initialize" or self.ctx.has_unpacked_arguments(node):
            return
        if any(not self._is_missing(self.ctx.argument(node, name, at)) for name, at in _CONFIGS):
            return
        args = self.ctx.argument(node, "args", 0)
        missing = self._is_missing(args)
        if not missing and not self._lacks_config(args):
            return
        what = "no `config`, and no `args`" if missing else "no `config`, and `args` has no `deepspeed_config`"
        self.report(
            node,
            f"`{self.ctx.text(node.func)}` gets {what}: it stops with an AssertionError on every rank",
            hint="Pass `config=` a dict or the path of a JSON file"
            + ("" if missing else ", or call `deepspeed.add_config_arguments(parser)`"),
            facts={"arguments": "no-config" if missing else "args-without-it"},
        )

    def _is_missing(self, value: cst.BaseExpression | None) -> bool:
        return value is None or is_none(value)

    def _lacks_config(self, args: cst.BaseExpression | None) -> bool:
        """The namespace of a parser that the file makes and fills by itself, without that argument."""
        call = self.ctx.names.single_value(args) if isinstance(args, cst.Name) else None
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return False
        parser = call.func.value
        made = self.ctx.names.single_value(parser)
        if call.func.attr.value != "parse_args" or not isinstance(made, cst.Call) or not isinstance(parser, cst.Name):
            return False
        if self.ctx.qualified_name(made.func) != "argparse.ArgumentParser" or any(a.keyword is None for a in made.args):
            return False
        if keyword(made, "parents") is not None:
            return False
        return not self._may_be_added(parser.value, args.value if isinstance(args, cst.Name) else "")

    def _may_be_added(self, parser: str, args: str) -> bool:
        """The parser or its namespace is handed on, or the file speaks of such an argument."""
        for node in self.ctx.tree.order:
            if isinstance(node, cst.Arg) and node.star == "" and isinstance(node.value, cst.Name):
                owner = self.ctx.parent(node)
                is_initialize = isinstance(owner, cst.Call) and self._is_initialize(owner)
                if node.value.value == parser or (node.value.value == args and not is_initialize):
                    return True
            if isinstance(node, cst.SimpleString | cst.FormattedString) and "deepspeed_config" in self.ctx.text(node):
                return True
            if isinstance(node, cst.Attribute) and node.attr.value in ("deepspeed_config", "deepscale_config"):
                return True
        return False

    def _is_initialize(self, call: cst.Call) -> bool:
        return self.ctx.qualified_name(call.func) == "deepspeed.initialize"


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
