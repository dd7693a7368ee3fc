"""A keyword argument that the installed release of transformers or trl does not take.

**What.** `TrainingArguments(evaluation_strategy=...)`, `Trainer(tokenizer=...)`, `SFTConfig(max_seq_length=...)` and
the like: an argument that some releases of the library take and the release in use refuses, because it was removed,
renamed, or came later. Subclasses in the file and their `super().__init__(...)` count.

**Why it hurts.** `TypeError: ... got an unexpected keyword argument` on every rank, after the queue, the container, the
imports and often the loading of the model. transformers 5.0 alone removed 26 arguments of `TrainingArguments`; scripts
with `evaluation_strategy` stop since 4.51, with `warmup_ratio` since 5.15.

**Fix.** Write the new name, or delete the argument. The fix renames where the values are the same and every release in
use takes the new name: `evaluation_strategy` to `eval_strategy`, `tokenizer` to `processing_class`, `no_cuda` to
`use_cpu`, `per_gpu_train_batch_size` to `per_device_train_batch_size`, `warmup_ratio` to `warmup_steps` for a number
between 0 and 1.

**When it stays quiet.** The releases come from the project's own files (requirements, pyproject.toml, lock files, ...).
An error means that every release in use refuses the argument; a warning, that the stated range reaches such releases
and its newest one refuses; an information, that nobody states a release and the newest refuses, or that the release in
use calls the argument deprecated. Names that no release knows are left alone, and so are classes that add the field
themselves, take any keyword, or stand in `trl.experimental`.

**Evidence.** `schemas/trainer_arguments.json`, generated from the released sources of transformers 4.0 to 5.23 and trl
0.4 to 1.16; transformers 5.23 on two ranks: `TrainingArguments` and `Trainer` raise `TypeError` on both.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.script.dotted import is_super
from dslint.model.script.quick import call_name, flat
from dslint.model.trainerargs import (
    INSTEAD,
    Releases,
    changing_names,
    class_names,
    class_of,
    deprecated_since,
    in_newest,
    predecessor,
    since,
    successor,
    taken,
    until,
)
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL264",
    name="removed-training-argument",
    kind="script",
    severity=Severity.ERROR,
    summary="A keyword argument that the release of transformers or trl in use does not take",
    fix="safe",
    markers=(r"transformers|trl", r"TrainingArguments\(|Trainer\(|Trainer\)|Config\("),
    references=(
        "https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md",
        "https://github.com/huggingface/transformers/pull/30190",
    ),
    depends_on_run=True,
)


def precheck(tree: ast.Module) -> bool:
    """A call of such a class, or of `__init__` in a subclass, passes a name that not every release takes."""
    nodes = flat(tree)
    names, titles = changing_names(), class_names()
    local = {n.name for n in nodes.nodes(ast.ClassDef) if n.bases}
    imported = {a.asname for n in nodes.nodes(ast.ImportFrom) for a in n.names if a.asname and a.name in titles}
    known = titles | local | imported | {"__init__"}
    return any(
        call_name(call) in known and any(keyword.arg in names for keyword in call.keywords)
        for call in nodes.nodes(ast.Call)
    )


class Check(ScriptCheck):
    """Looks at the keywords of every call of a class that the table knows."""

    def visit_Call(self, node: cst.Call) -> None:
        """Judge each keyword by the releases in use."""
        if not any(a.keyword is not None and a.keyword.value in changing_names() for a in node.args):
            return
        owner, added = self._owner(node)
        if owner is None:
            return
        libraries = self.ctx.run.libraries
        releases = Releases(libraries.get("transformers", VersionFact()), libraries.get("trl", VersionFact()))
        given = {a.keyword.value for a in node.args if a.keyword is not None}
        for arg in node.args:
            if arg.keyword is not None and arg.keyword.value not in added:
                self._judge(arg, owner, releases, given)

    def _owner(self, call: cst.Call) -> tuple[tuple[str, str] | None, set[str]]:
        """The class of the table that takes the arguments, and the fields that subclasses of the file add."""
        name = self.ctx.qualified_name(call.func)
        if name is not None:
            return class_of(name), set()
        local: cst.ClassDef | None = None
        if isinstance(call.func, cst.Name):
            local = self.ctx.names.local_class(call.func.value, call)
            if local is not None and _makes_itself(local):
                return None, set()
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "__init__" and is_super(call.func.value):
            local = self.ctx.enclosing_class(call)
        return self._base(local) if local is not None else (None, set())

    def _base(self, local: cst.ClassDef) -> tuple[tuple[str, str] | None, set[str]]:
        """The nearest class of the table above one of the file, when nothing unknown stands between."""
        added = _fields(local)
        for base in self.ctx.class_bases(local.name.value):
            between = self.ctx.names.local_class(base) if "." not in base else None
            if between is None:
                return class_of(base), added
            if _makes_itself(between):
                return None, added
            added |= _fields(between)
        return None, added

    def _judge(self, arg: cst.Arg, owner: tuple[str, str], releases: Releases, given: set[str]) -> None:
        assert arg.keyword is not None
        name = arg.keyword.value
        status = taken(owner, name, releases)
        gone = until(owner, name)
        library, release = gone if gone[1] else since(owner, name)
        found = self._severity(owner, name, status, releases, library)
        if found is None:
            return
        severity, reach = found
        version = releases.of(library)
        does = "was removed in" if gone[1] else "is newer and came with"
        who = version_named(version, library)
        if reach == "deprecated":
            message = f"{who} calls `{name}` of `{owner[1]}` deprecated, and {release} removes it: an upgrade breaks"
        else:
            who = who if reach == "use" else f"{library} {release} and later"
            verb = "does" if reach == "use" else "do"
            message = (
                f"{who} {verb} not take `{name}`, which {does} {library} {release}: `{owner[1]}` raises `TypeError: "
                "unexpected keyword argument` on every rank"
            )
        self.report(
            arg.keyword,
            message,
            hint=self._hint(arg, owner, "" if gone[1] else f"{library}>={release}"),
            related=version_origin(version, library),
            fix=self._fix(arg, owner, releases, given),
            severity=severity,
            facts={"class": owner[1], "argument": name, "instead": successor(owner, name)},
        )

    def _severity(
        self, owner: tuple[str, str], name: str, status: str, releases: Releases, library: str
    ) -> tuple[Severity, str] | None:
        """How bad it is, and of which releases to speak: those in ``use``, ``later`` ones, or ``deprecated``."""
        version = releases.of(library)
        if status == "no":
            return Severity.ERROR, "use" if version.is_known else "later"
        if status == "maybe" and until(owner, name)[1] and in_newest(owner, name, releases) == "no":
            return Severity.WARNING if version.is_known else Severity.INFO, "later"
        old = deprecated_since(owner, name)
        if status == "yes" and old and version.is_known and covers(version, f">={old}", library) == "yes":
            return Severity.INFO, "deprecated"
        return None

    def _hint(self, arg: cst.Arg, owner: tuple[str, str], newer: str) -> str:
        name = arg.keyword.value if arg.keyword is not None else ""
        if newer:
            old = predecessor(owner, name)
            return f"Write `{old}`, or upgrade to `{newer}`" if old else f"Delete `{name}`, or upgrade to `{newer}`"
        new = successor(owner, name)
        if new:
            return f"Write `{new}`"
        if name in INSTEAD:
            what = INSTEAD[name]
            return f"Delete `{name}`: {what[9:]}" if what.startswith("nothing: ") else f"Use {what} in its place"
        return f"Delete `{name}`, or pin the release that takes it"

    def _fix(self, arg: cst.Arg, owner: tuple[str, str], releases: Releases, given: set[str]) -> Fix | None:
        """Rename where the values are the same; what nobody pins may be older than the new name."""
        assert arg.keyword is not None
        name = arg.keyword.value
        new = successor(owner, name) or predecessor(owner, name)
        if not new or new in given or (name == "warmup_ratio" and not self._is_part(arg.value)):
            return None
        status = taken(owner, new, releases)
        if status == "no":
            return None
        safety = Safety.SAFE if status in ("yes", "") else Safety.UNSAFE
        return Fix(f"Rename to `{new}`", (Edit(self.ctx.doc.path, self.ctx.span(arg.keyword), new),), safety)

    def _is_part(self, value: cst.BaseExpression) -> bool:
        """`warmup_steps` takes a number below 1 as a part of all steps, and any other as a count."""
        part = self.ctx.constant(value).get_or(None)
        return isinstance(part, float) and 0 < part < 1


def _fields(node: cst.ClassDef) -> set[str]:
    """The fields that a dataclass of the file adds."""
    lines = (line for line in node.body.body if isinstance(line, cst.SimpleStatementLine))
    small = (item for line in lines for item in line.body if isinstance(item, cst.AnnAssign))
    return {item.target.value for item in small if isinstance(item.target, cst.Name)}


def _makes_itself(node: cst.ClassDef) -> bool:
    """The class has an `__init__` of its own."""
    return any(isinstance(item, cst.FunctionDef) and item.name.value == "__init__" for item in node.body.body)


_REMOVED = """\
from transformers import Trainer, TrainingArguments


def train(model, data, tokenizer):
    args = TrainingArguments(
        output_dir="out",
        evaluation_strategy="steps",
        bf16=True,
    )
    Trainer(model=model, args=args, train_dataset=data, tokenizer=tokenizer).train()
"""

EXAMPLES = (
    bad(
        "Arguments that were renamed before the pinned release",
        {"requirements.txt": "transformers==5.3.0\n", "train.py": _REMOVED},
        at=("train.py:7 error", "train.py:10 error"),
        fixed={
            "requirements.txt": "transformers==5.3.0\n",
            "train.py": _REMOVED.replace("evaluation_", "eval_").replace("tokenizer=", "processing_class="),
        },
    ),
    bad(
        "A range that reaches releases without the argument",
        {"requirements.txt": "transformers>=4.37\n", "train.py": _REMOVED},
        at=("train.py:7 warning", "train.py:10 warning"),
    ),
    bad(
        "A subclass hands the old name on",
        {
            "requirements.txt": "transformers==5.0.0\n",
            "train.py": """\
from transformers import Trainer


class MyTrainer(Trainer):
    def __init__(self, model, tokenizer):
        super().__init__(model=model, tokenizer=tokenizer)
""",
        },
        at="train.py:6 error",
    ),
    bad(
        "The new name under an old release",
        {
            "requirements.txt": "transformers==4.37.2\n",
            "train.py": """\
from transformers import TrainingArguments

args = TrainingArguments("out", eval_strategy="no")
""",
        },
        at="train.py:3 error",
    ),
    bad(
        "An argument of trl that became another one",
        {
            "requirements.txt": "trl==0.24.0\ntransformers==4.57.1\n",
            "train.py": """\
from trl import SFTConfig

config = SFTConfig("out", max_seq_length=2048)
""",
        },
        at="train.py:3 error",
    ),
    bad(
        "A part of all steps, and a number of steps, under the old name",
        {
            "requirements.txt": "transformers==5.23.0\n",
            "train.py": """\
from transformers import TrainingArguments

args = TrainingArguments("out", warmup_ratio=0.03)
""",
        },
        at="train.py:3 error",
        fixed={
            "requirements.txt": "transformers==5.23.0\n",
            "train.py": """\
from transformers import TrainingArguments

args = TrainingArguments("out", warmup_steps=0.03)
""",
        },
    ),
    bad(
        "Nobody says which release is installed",
        {"train.py": _REMOVED},
        at=("train.py:7 info", "train.py:10 info"),
    ),
    good(
        "The pinned release takes the old names",
        {"requirements.txt": "transformers==4.37.2\n", "train.py": _REMOVED},
    ),
    good(
        "A subclass that has the field itself",
        {
            "requirements.txt": "transformers==5.23.0\n",
            "train.py": """\
from dataclasses import dataclass

import transformers


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    group_by_length: bool = False
    max_seq_length: int = 512


args = TrainingArguments("out", group_by_length=True, max_seq_length=128)
""",
        },
    ),
    good(
        "Another class of the same name, and a function",
        {
            "requirements.txt": "transformers==5.23.0\n",
            "train.py": """\
from mylib import Trainer
from transformers import AutoTokenizer


def make(tokenizer, no_cuda):
    return Trainer(tokenizer=tokenizer, no_cuda=no_cuda)
""",
        },
    ),
    good(
        "An argument that trl takes in the place of transformers",
        {
            "requirements.txt": "trl==0.12.0\ntransformers==4.46.3\n",
            "train.py": """\
from trl import SFTConfig

config = SFTConfig("out", max_seq_length=2048, eval_strategy="no", learning_rate=1e-5)
""",
        },
    ),
)
