"""An option takes whole numbers only, and its default is a fraction.

**What.** `add_argument("--warmup_ratio", type=int, default=0.05)`. argparse converts what the command line passes by
`int`, and takes a default that is no text as it is.

**Why it hurts.** The run without the option works, and the option cannot be used: `--warmup_ratio 0.03` ends every
process of the job with `invalid int value`, also the value that the default has. A whole number that passes,
`--warmup_ratio 1`, is another setting.

**Fix.** `type=float`.

**When it stays quiet.** Defaults that are whole numbers (`1.0`, `1e6`), texts or not written out; converters of the
project; `add_argument` of a class of the project; scripts that train nothing.

**Evidence.** Python's `argparse`: "If the default value is a string, the parser parses the value as if it were a
command-line argument"; any other default is used as it is. `int("0.05")` raises `ValueError`.
"""

from __future__ import annotations

from dslint.core.finding import Severity
from dslint.parse import cst
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL710",
    name="whole-number-option-with-fraction",
    kind="script",
    severity=Severity.WARNING,
    summary="an option has `type=int` and a fraction as its default: no fraction can be passed",
    markers=(
        r"add_argument",
        r"type['\"]?\s*\]?\s*[=:]\s*(?:\w+\.)*int\b",
        r"torch|deepspeed|accelerat|transformers|lightning",
        r"\.\d|\de-\d",
    ),
    references=("https://docs.python.org/3/library/argparse.html#default",),
    no_experiment="argparse refuses the value before any process meets another",
)

_HEAD = "import argparse\n\nimport torch\n\nparser = argparse.ArgumentParser()\n"
_END = "args = parser.parse_args()\n"
_RATIO = 'parser.add_argument("--warmup_ratio", type=%s, default=%s)\n'

EXAMPLES = (
    bad("a ratio", {"train.py": _HEAD + _RATIO % ("int", "0.05") + _END}, at="train.py:6 warning"),
    bad(
        "a rate in a group of options",
        {
            "train.py": _HEAD
            + "group = parser.add_argument_group('optimizer')\n"
            + "group.add_argument('--lr', default=1e-4, type=int, help='rate')\n"
            + _END
        },
        at="train.py:7 warning",
    ),
    bad(
        "a default that stands in a constant",
        {"train.py": "SCALE = 4.5\n" + _HEAD + _RATIO % ("int", "SCALE") + _END},
        at="train.py:7 warning",
    ),
    bad(
        "a negative one",
        {"train.py": _HEAD + _RATIO % ("int", "-0.5") + _END},
        at="train.py:6 warning",
    ),
    good("numbers with a point", {"train.py": _HEAD + _RATIO % ("float", "0.05") + _END}),
    good("a whole number with a point", {"train.py": _HEAD + _RATIO % ("int", "1.0") + _END}),
    good("a power of ten", {"train.py": _HEAD + _RATIO % ("int", "1e6") + _END}),
    good("a text", {"train.py": _HEAD + _RATIO % ("int", "'8'") + _END}),
    good("no default", {"train.py": _HEAD + _RATIO % ("int", "None") + _END}),
    good("a converter of its own", {"train.py": _HEAD + _RATIO % ("lambda text: int(float(text))", "0.05") + _END}),
    good("a script that trains nothing", {"show.py": (_HEAD + _RATIO % ("int", "0.05") + _END).replace("torch", "os")}),
)


class Check(ScriptCheck):
    """Looks at the declarations of arguments."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on `type=int` beside a default that `int` would cut."""
        if self.ctx.called(node) != "add_argument":
            return
        converter, default = self.ctx.argument(node, "type"), self.ctx.argument(node, "default")
        if converter is None or self.ctx.qualified_name(converter) not in ("int", "builtins.int"):
            return
        value = self.ctx.constant(default).get_or(None)
        if type(value) is not float or value.is_integer():
            return
        if isinstance(node.func, cst.Attribute) and self.ctx.is_own(node.func.value):
            return
        flags = [self.ctx.constant(given).get_or("") for given in self.ctx.positional_arguments(node)]
        name = next((flag for flag in flags if isinstance(flag, str) and flag.startswith("--")), "the option")
        self.report(
            converter,
            f"`{name}` takes whole numbers, and its default is {value}: a fraction ends every process with"
            " `invalid int value`",
            hint="Write `type=float`",
        )
