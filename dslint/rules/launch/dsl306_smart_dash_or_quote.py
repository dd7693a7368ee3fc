"""**What.** An option begins with a dash of a word processor (`–lr`, `—bf16`), or a word is in typographic
quotation marks (`“out”`), or between two words is a space of a web page that does not break or that nobody sees.

**Why it hurts.** They are ordinary letters to the shell. `–nproc_per_node` is not an option but the name of the
script, and the launcher stops with `No such file or directory`; after the script argparse stops with `unrecognized
arguments`. The marks become part of the value, whitespace between them divides it, and a string that begins with `"`
and ends in `”` continues to the next `"` in the file.

**Fix.** Type them again; the fix does.

**When it stays quiet.** In comments, in text that is printed, inside a string that is whole (`--prompt "say “hi”"`),
and in lines that belong to no launch command.

**Evidence.** bash 5.2; torch 2.13: `torchrun –nproc_per_node 2 train.py` looks for a script of that name.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.typing import FIRST_SMART, Smart, smart_characters
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL306",
    name="smart-dash-or-quote",
    kind="launch",
    severity=Severity.ERROR,
    summary="A dash, quotation mark or space of a word processor in a launch command",
    fix="safe",
    references=("https://www.shellcheck.net/wiki/SC1015", "https://www.shellcheck.net/wiki/SC1100"),
    needs=(f"/{FIRST_SMART}/",),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "a dash that a chat has made of two",
        {"run.sh": "torchrun \u2014nproc_per_node 8 train.py \u2013bf16 \u2013m a\n", **_SCRIPT},
        ("run.sh:1 error", "run.sh:1 error", "run.sh:1 error"),
        {"run.sh": "torchrun --nproc_per_node 8 train.py --bf16 -m a\n"},
    ),
    bad(
        "quotation marks",
        {"run.sh": "deepspeed train.py \\\n  --name \u201cmy run\u201d --tag=\u2018a\u2019\n", **_SCRIPT},
        ("run.sh:2 error", "run.sh:2 error"),
        {"run.sh": "deepspeed train.py \\\n  --name \"my run\" --tag='a'\n"},
    ),
    bad(
        "one of the two marks, in documentation",
        {"README.md": '```bash\npython train.py \\\n--model "$MODEL\u201d --lr 1\n```\n', **_SCRIPT},
        "README.md:3 warning",
        {"README.md": '```bash\npython train.py \\\n--model "$MODEL" --lr 1\n```\n'},
    ),
    bad(
        "a blank that does not break, of a web page",
        {"run.sh": "torchrun --nproc_per_node\u00a08 train.py \\\n\u00a0\u00a0--lr 1\n", **_SCRIPT},
        ("run.sh:1 error", "run.sh:2 error"),
        {"run.sh": "torchrun --nproc_per_node 8 train.py \\\n  --lr 1\n"},
    ),
    good(
        "such a blank in a string and in a comment",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --prompt 'a\u00a0b'  #\u00a0all\n", **_SCRIPT},
    ),
    good("plain characters", {"run.sh": 'torchrun --nproc_per_node 8 train.py --name "my run"\n', **_SCRIPT}),
    good(
        "in a string, a comment, and a sentence",
        {
            "run.sh": "# torchrun \u2013 the launcher \u201cof torch\u201d\necho \u201cstart\u201d\n"
            'torchrun --nproc_per_node 8 train.py --prompt "say \u201chi\u201d \u2013yes, it\u2019s me"\n',
            **_SCRIPT,
        },
    ),
    good(
        "a list of characters",
        {"run.sh": 'torchrun --nproc_per_node 8 train.py --ignore , ? \\" \u201c % \u2018 \u201d x\n', **_SCRIPT},
    ),
    good(
        "dashes between words",
        {"README.md": "```bash\ntorchrun --nproc_per_node 8 train.py  # \u2014 all GPUs\n```\n", **_SCRIPT},
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Typographic characters in launch commands."""
    del context
    for found in smart_characters(doc.shell):
        if found.kind == "blank":
            yield _blank(doc, found)
            continue
        what = "dash" if found.kind == "dash" else "quotation mark"
        shown = found.text.replace("`", "'")
        verb = "is" if len(shown) == 1 else "has"
        effect = (
            "the shell takes it for a word, not an option"
            if found.kind == "dash"
            else "the shell takes it for an ordinary letter"
        )
        yield META.finding(
            doc.source.location(found.span),
            f"`{shown if len(shown) < 40 else shown[:39] + '…'}` {verb} a typographic {what}: {effect}",
            hint=f"Write `{found.meant}`" if found.kind == "dash" else "Use plain quotation marks",
            fix=Fix("Type it plainly", (Edit(doc.source.path, found.span, found.meant),), uncovers=True),
            severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
            facts={"kind": found.kind},
        )


def _blank(doc: LaunchDoc, found: Smart) -> Finding:
    code = next(f"U+{ord(char):04X}" for char in found.text if char not in " \t")
    return META.finding(
        doc.source.location(found.span),
        f"the space here is {code}, a letter to bash: the text on both sides is one word",
        hint="Type the space again",
        fix=Fix("Type it plainly", (Edit(doc.source.path, found.span, found.meant),), uncovers=True),
        severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
        facts={"kind": found.kind},
    )
