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

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL244",
    name="initialize-with-two-configs",
    kind="script",
    severity=Severity.ERROR,
    summary="`deepspeed.initialize` gets a config as argument and in `args`",
    markers=(r"deepspeed", r"\binitialize\b", r"config(?:_params)?\s*=", r"\bargs?\b|opt"),
    references=("deepspeed.initialize in deepspeed/__init__.py",),
    depends_on_run=True,
)
_CONFIGS = (("config", 10), ("config_params", 12))
_LOADS = frozenset({"json.load", "json.loads", "yaml.safe_load", "yaml.load", "dict", "hjson.load"})


def precheck(tree: ast.Module) -> bool:
    """A call of `initialize` gets `args` and a config."""
    return any(
        call_name(call) == "initialize"
        and any(k.arg in ("config", "config_params") for k in call.keywords)
        and (call.args or any(k.arg == "args" for k in call.keywords))
        for call in flat(tree).nodes(ast.Call)
    )


class Check(ScriptCheck):
    """Looks at each call of `deepspeed.initialize` with `args` and a config."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when both certainly hold a config."""
        if self.ctx.qualified_name(node.func) != "deepspeed.initialize" or self.ctx.has_unpacked_arguments(node):
            return
        args = self.ctx.argument(node, "args", 0)
        config = next((v for name, at in _CONFIGS if (v := self.ctx.argument(node, name, at)) is not None), None)
        if not isinstance(args, cst.Name) or config is None or self._is_asked(node):
            return
        if self._is_same(args, config):
            self.report(
                config,
                f"`config={self.ctx.text(config)}` beside `args={args.value}`: with `--deepspeed_config` there are two"
                " configs, without it none, and `deepspeed.initialize` stops with an AssertionError",
                hint="Drop `config=`: DeepSpeed reads `args.deepspeed_config` itself",
                facts={"arguments": "two-configs"},
            )
            return
        where = self._named_in(args)
        if where is not None and self._is_given(config):
            self.report(
                config,
                f"a config beside `args={args.value}`, whose `deepspeed_config` is set as well: `deepspeed.initialize`"
                " stops with an AssertionError on every rank",
                hint="Drop `config=`, or do not pass `args=`",
                related=where,
                facts={"arguments": "two-configs"},
            )

    def _is_asked(self, node: cst.Call) -> bool:
        """A test around the call asks for `deepspeed_config`."""
        tests = (p.test for p in self.ctx.parents(node) if isinstance(p, cst.If | cst.IfExp))
        return any("deepspeed_config" in self.ctx.text(test) for test in tests)

    def _is_same(self, args: cst.Name, config: cst.BaseExpression) -> bool:
        return (
            isinstance(config, cst.Attribute)
            and config.attr.value == "deepspeed_config"
            and isinstance(config.value, cst.Name)
            and config.value.value == args.value
            and not self._assignments()
        )

    def _is_given(self, config: cst.BaseExpression, depth: int = 0) -> bool:
        """The expression is certainly not `None`."""
        if depth > 3:
            return False
        known = self.ctx.constant(config)
        if known.is_known:
            return known.value is not None
        if isinstance(config, cst.Dict | cst.FormattedString):
            return True
        if isinstance(config, cst.Call):
            return self.ctx.qualified_name(config.func) in _LOADS or self._returns_config(config, depth)
        value = self.ctx.names.single_value(config)
        return value is not None and self._is_given(value, depth + 1)

    def _returns_config(self, call: cst.Call, depth: int) -> bool:
        function = self.ctx.names.local_function(call)
        if function is None:
            return False
        returned = [n.value for n in self.ctx.tree.own_nodes(function) if isinstance(n, cst.Return)]
        return bool(returned) and all(v is not None and self._is_given(v, depth + 1) for v in returned)

    def _named_in(self, args: cst.Name) -> tuple[Location, ...] | None:
        """Where the namespace certainly gets a config; ``None`` when nobody says so."""
        assigned = self._assignments()
        if assigned:
            if not all(self._is_given(n.value) and self._is_of(n, args) for n in assigned):
                return None
            return (self.ctx.location(assigned[-1], "set here"),)
        arguments = self.ctx.constants.arguments
        if not arguments.is_parsed(args):
            return None
        passed = self.ctx.run.arguments.get("deepspeed_config")
        if passed is not None:
            return passed.origins if passed.is_known and passed.value else None
        declared = arguments.named(args, "deepspeed_config")
        if declared is None or not isinstance(self.ctx.constant(declared.default).get_or(None), str):
            return None
        return (self.ctx.location(declared.node, "its default is a config"),)

    def _assignments(self) -> list[cst.Assign]:
        found = self.ctx.tree.every(cst.Assign)
        return [n for n in found for t in n.targets if _is_config(t.target)]

    def _is_of(self, assignment: cst.Assign, args: cst.Name) -> bool:
        target = assignment.targets[0].target
        return (
            isinstance(target, cst.Attribute)
            and isinstance(target.value, cst.Name)
            and target.value.value == args.value
            and self.ctx.enclosing_function(assignment) is self.ctx.enclosing_function(args)
            and not self.ctx.guards.is_conditional(assignment)
        )


def _is_config(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value == "deepspeed_config"


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
