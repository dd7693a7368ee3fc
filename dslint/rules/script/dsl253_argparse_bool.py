"""**What.** `add_argument("--flag", type=bool)`.

**Why it hurts.** argparse calls `bool` with the text of the command line, and every text but the empty one is true:
`--flag False` switches the flag on. The run trains with the opposite of what the command says, and nothing tells.

**Fix.** `action=argparse.BooleanOptionalAction` (`--flag` and `--no-flag`, Python 3.9), `action="store_true"`, or a
converter that reads the text, such as `type=lambda text: text.lower() in ("1", "true", "yes")`.

**When it stays quiet.** Dataclass fields that `HfArgumentParser` reads (it converts the text), and `type=bool` of other
calls. It is a warning where the default is true, since no word of a command switches the option off, and where the
launch command of the script passes a value that means false; else a note.

**Evidence.** Two processes with `--flag False`: both get `True`; with `BooleanOptionalAction` and `--no-flag` both get
`False`. Python `argparse`: "The `bool()` function is not recommended as a type converter".
"""

from __future__ import annotations

from dslint.core.fact import Fact, absent
from dslint.core.finding import Severity
from dslint.core.source import labelled
from dslint.parse import cst
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

_FALSE = frozenset({"false", "0", "no", "off", "f", "n"})

META = RuleMeta(
    code="DSL253",
    name="argparse-bool",
    kind="script",
    severity=Severity.INFO,
    summary="`type=bool` of argparse turns every text into `True`, also `False`",
    markers=(r"add_argument", r"type['\"]?\s*\]?\s*[=:]\s*(?:\w+\.)*bool\b"),
    references=("https://docs.python.org/3/library/argparse.html#type",),
    depends_on_run=True,
)

_HEAD = "import argparse\n\nparser = argparse.ArgumentParser()\n"
_BOOL = 'parser.add_argument("--use_flash", type=bool, default=True)\nargs = parser.parse_args()\n'

EXAMPLES = (
    bad(
        "the options of the argument come by a dictionary",
        {
            "train.py": _HEAD + "options = {'default': True}\noptions['type'] = bool\n"
            "parser.add_argument('--use_flash', **options)\nargs = parser.parse_args()\n"
        },
        at="train.py:5 warning",
    ),
    good(
        "an option that may be replaced",
        {
            "train.py": _HEAD + "options = dict(type=bool)\nif fast:\n    options['type'] = int\n"
            "parser.add_argument('--use_flash', **options)\nargs = parser.parse_args()\n"
        },
    ),
    bad("a flag that cannot be switched off", {"train.py": _HEAD + _BOOL}, at="train.py:4 warning"),
    bad(
        "a flag that is off by default",
        {"train.py": _HEAD + _BOOL.replace("True", "False")},
        at="train.py:4 info",
    ),
    bad(
        "the launch command passes False",
        {
            "train.py": _HEAD + _BOOL,
            "run.sh": "torchrun --nproc_per_node 8 train.py --use_flash False\n",
        },
        at="train.py:4 warning",
    ),
    bad(
        "a value that means what it does: a note",
        {
            "train.py": _HEAD + _BOOL.replace("True", "False"),
            "run.sh": "torchrun --nproc_per_node 8 train.py --use_flash True\n",
        },
        at="train.py:4 info",
    ),
    good(
        "`--flag` and `--no-flag`",
        {"train.py": _HEAD + 'parser.add_argument("--use_flash", action=argparse.BooleanOptionalAction)\n'},
    ),
    good(
        "a converter of its own",
        {"train.py": _HEAD + 'parser.add_argument("--use_flash", type=lambda t: t.lower() == "true")\n'},
    ),
    good(
        "a type of another library",
        {"train.py": "import click\n\n\n@click.option('--use_flash', type=bool)\ndef main(use_flash):\n    pass\n"},
    ),
    good(
        "a class of the project that checks settings",
        {
            "config.py": "class Validator:\n    def __init__(self):\n        self.rules = {}\n\n"
            "    def add_argument(self, name, type=None):\n        self.rules[name] = type\n\n\n"
            "def make():\n    validator = Validator()\n    validator.add_argument('--amp', type=bool)\n"
            "    return validator\n"
        },
    ),
    good(
        "a local function of that name",
        {
            "train.py": "import argparse\n\n\ndef bool(text):\n    return text == 'true'\n\n\n"
            "parser = argparse.ArgumentParser()\nparser.add_argument('--use_flash', type=bool)\n"
        },
    ),
)


class Check(ScriptCheck):
    """Looks at the declarations of arguments."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on `type=bool`; what a command passes decides the severity."""
        if self.ctx.called(node) != "add_argument":
            return
        converter = self.ctx.argument(node, "type")
        if converter is None or self.ctx.qualified_name(converter) not in ("bool", "builtins.bool"):
            return
        if isinstance(node.func, cst.Attribute) and self.ctx.is_own(node.func.value):
            return
        flags = [self.ctx.constant(value).get_or("") for value in self.ctx.positional_arguments(node)]
        name = next((f for f in flags if isinstance(f, str) and f.startswith("--")), "--flag")
        passed = self._passed(node, name)
        is_inverted = passed.is_known and str(passed.value).lower() in _FALSE
        # Whatever text is passed, the option stays as it is.
        is_stuck = self.ctx.constant(self.ctx.argument(node, "default")).get_or(None) is True
        given = f"the launch command passes `{passed.value}`" if is_inverted else f"`{name} False`"
        ends = f", yet `{name}` is switched on" if is_inverted else " switches the flag on"
        if is_stuck and not is_inverted:
            given, ends = f"`{name}` is on by default", ", and no value switches it off"
        self.report(
            converter,
            f"`type=bool` turns every text into `True`: {given}{ends}",
            hint="Use `action=argparse.BooleanOptionalAction`, or a converter that reads the text",
            severity=Severity.WARNING if is_inverted or is_stuck else None,
            related=labelled(passed.origins, "passed here") if is_inverted else (),
        )

    def _passed(self, node: cst.Call, name: str) -> Fact[str]:
        dest = self.ctx.constant(self.ctx.argument(node, "dest")).get_or(None)
        key = dest if isinstance(dest, str) else name.lstrip("-").replace("-", "_")
        return self.ctx.run.arguments.get(key, absent())
