"""A keyword argument that the installed release of transformers or trl does not take.

**What.** `TrainingArguments(evaluation_strategy=...)`, `Trainer(tokenizer=...)`, `SFTConfig(max_seq_length=...)` and
the like: an argument that some releases of the library take and the release in use refuses, because it was removed,
renamed, or came later. Subclasses in the file and their `super().__init__(...)` count. So does reading a removed
argument: `training_args.overwrite_output_dir` raises `AttributeError` since 5.0.

**Why it hurts.** `TypeError: ... got an unexpected keyword argument` on every rank, after the queue, the container, the
imports and often the loading of the model. transformers 5.0 alone removed 26 arguments of `TrainingArguments`; scripts
with `evaluation_strategy` stop since 4.51, with `warmup_ratio` since 5.15.

**Fix.** Write the new name, or delete the argument. The fix renames where the values are the same and every release in
use takes the new name: `evaluation_strategy` to `eval_strategy`, `tokenizer` to `processing_class`, `no_cuda` to
`use_cpu`, `per_gpu_train_batch_size` to `per_device_train_batch_size`, `warmup_ratio` to `warmup_steps` for a number
between 0 and 1.

**When it stays quiet.** A test of the version or a handler of the `TypeError` is around the call, or the file
itself asks for releases of the library (`require_version("trl<=0.9.6")`), or it trains with flax or TensorFlow. The
releases come from the project's own files (requirements, pyproject.toml, lock files, ...). An error means that every
release in use refuses the argument; a warning, that the stated range reaches such releases and its newest one
refuses; an information, that nobody states a release and the newest refuses, or that the release in use calls the
argument deprecated. Names that no release knows are left alone, and so are classes that add the field themselves,
take any keyword, or are in `trl.experimental`.

**Evidence.** `schemas/trainer_arguments.json`, generated from the released sources of transformers 4.0 to 5.23 and trl
0.4 to 1.16; transformers 5.23 on two ranks: `TrainingArguments` and `Trainer` raise `TypeError` on both.
"""

from __future__ import annotations

from dslint.core.finding import Severity
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_origin
from dslint.model.trainerargs import (
    Releases,
    changing_names,
    hint,
    may_speak,
    removed_fields,
    successor,
)
from dslint.parse import cst
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import OLD_TRAINER
from dslint.rules.names.refusedargument import Refused, refused, renamed
from dslint.rules.names.trainerclasses import TrainerClasses
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL264",
    name="removed-training-argument",
    kind="script",
    severity=Severity.ERROR,
    summary="A keyword argument that the release of transformers or trl in use does not take",
    fix="safe",
    markers=(r"transformers|trl", r"TrainingArguments\b|Trainer\(|Trainer\)|Config\("),
    references=(
        "https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md",
        "https://github.com/huggingface/transformers/pull/30190",
    ),
    depends_on_run=True,
)


class Check(ScriptCheck):
    """Looks at the keywords of every call of a class that the table knows."""

    def start(self) -> None:
        """The classes of the file, when a call asks for them."""
        self.classes = TrainerClasses(self.ctx)
        self.read: list[Refused] = []

    def visit_Call(self, node: cst.Call) -> None:
        """Judge each keyword by the releases in use."""
        written = {a.keyword.value: a for a in node.args if a.keyword is not None}
        # What is unpacked has its place in the call: its text may stand anywhere.
        named = written.keys() | (self.ctx.argument_names(node) if any(a.star for a in node.args) else set())
        if changing_names().isdisjoint(named):
            return
        owner, added = self.classes.owner(node)
        if owner is None:
            return
        releases = self._releases()
        if self.classes.asks_for_release(node) or self.classes.states_release(owner[0]):
            return
        found: list[Refused] = []
        for name in (*written, *sorted(named - written.keys())):
            arg = written.get(name)
            place = arg.keyword if arg is not None and arg.keyword is not None else node
            fix = renamed(self.ctx, arg, owner, releases) if arg is not None else None
            judged = refused(place, name, owner, releases, fix) if name not in added else None
            found += [judged] if judged is not None else []
        # One finding a call, and one for each that has a fix of its own.
        others = [judged for judged in found if judged.fix is None]
        for judged in found:
            if judged.fix is not None or judged is others[0]:
                self._report(judged, owner, [o for o in others if o is not judged] if judged.fix is None else [])

    def visit_Attribute(self, node: cst.Attribute) -> None:
        """`training_args.overwrite_output_dir`: a removed argument is a removed attribute."""
        name = node.attr.value
        if name not in removed_fields() or self._is_stored(node):
            return
        owner = ("transformers", "TrainingArguments")
        if self.classes.any_adds(name) or self.classes.asks_for_release(node) or self.classes.states_release(owner[0]):
            return
        found = refused(node.attr, name, owner, self._releases(), None, "AttributeError: object has no attribute")
        # Whose attribute it is comes last: only an interpretation of the script knows it.
        if found is not None and found.severity is not Severity.INFO and self._is_owner(node):
            self.read.append(found)

    def _is_owner(self, node: cst.Attribute) -> bool:
        return self.ctx.class_of(node.value) == "transformers.TrainingArguments"

    def finish(self) -> None:
        """One finding a file for what is read: a copy of an old Trainer reads dozens."""
        if self.read:
            self._report(self.read[0], ("transformers", "TrainingArguments"), self.read[1:4])

    def _is_stored(self, node: cst.Attribute) -> bool:
        """What is assigned is there afterwards."""
        return any(
            isinstance(other, cst.AssignTarget) and self.ctx.text(other.target) == self.ctx.text(node)
            for other in self.ctx.tree.order
        )

    def _releases(self) -> Releases:
        libraries = self.ctx.run.libraries
        return Releases(libraries.get("transformers", VersionFact()), libraries.get("trl", VersionFact()))

    def _report(self, found: Refused, owner: tuple[str, str], others: list[Refused]) -> None:
        name, standing = found.name, found.standing
        more = tuple(self.ctx.location(other.node, "refused too") for other in others)
        self.report(
            found.node,
            found.message,
            hint=hint(owner, name, "" if standing.is_removed else f"{standing.library}>={standing.release}"),
            related=(*version_origin(found.version, standing.library), *more),
            fix=found.fix,
            severity=found.severity,
            facts={"class": owner[1], "argument": name, "instead": successor(owner, name)},
        )


applies = may_speak
EXAMPLES = (
    bad(
        "Arguments in a dictionary",
        {
            "requirements.txt": "transformers==5.3.0\n",
            "train.py": """\
from transformers import TrainingArguments

options = {"output_dir": "out"}
options["evaluation_strategy"] = "steps"
args = TrainingArguments(**options)
""",
        },
        at="train.py:5 error",
    ),
    bad(
        "Arguments that were renamed before the pinned release",
        {"requirements.txt": "transformers==5.3.0\n", "train.py": OLD_TRAINER},
        at=("train.py:7 error", "train.py:10 error"),
        fixed={
            "requirements.txt": "transformers==5.3.0\n",
            "train.py": OLD_TRAINER.replace("evaluation_", "eval_").replace("tokenizer=", "processing_class="),
        },
    ),
    bad(
        "A range that reaches releases without the argument",
        {"requirements.txt": "transformers>=4.37\n", "train.py": OLD_TRAINER},
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
        {"train.py": OLD_TRAINER},
        at=("train.py:7 info", "train.py:10 info"),
    ),
    good(
        "The pinned release takes the old names",
        {"requirements.txt": "transformers==4.37.2\n", "train.py": OLD_TRAINER},
    ),
    bad(
        "Several arguments of one call that have no new name",
        {
            "requirements.txt": "transformers==5.23.0\n",
            "train.py": """\
from transformers import TrainingArguments

args = TrainingArguments("out", overwrite_output_dir=True, save_safetensors=True, logging_dir="logs")
""",
        },
        at="train.py:3 error",
    ),
    bad(
        "A removed argument is read",
        {
            "requirements.txt": "transformers>=4.40\n",
            "train.py": """\
import os

from transformers import HfArgumentParser, TrainingArguments

parser = HfArgumentParser((TrainingArguments,))
(training_args,) = parser.parse_args_into_dataclasses()
if os.path.isdir(training_args.output_dir) and not training_args.overwrite_output_dir:
    raise ValueError("the folder is there")
""",
        },
        at="train.py:7 warning",
    ),
    good(
        "A test of the version chooses the name",
        {
            "requirements.txt": "transformers>=4.37\n",
            "train.py": """\
import transformers
from packaging import version
from transformers import TrainingArguments

if version.parse(transformers.__version__) >= version.parse("4.41"):
    args = TrainingArguments("out", eval_strategy="no")
else:
    args = TrainingArguments("out", evaluation_strategy="no")
""",
        },
    ),
    good(
        "The script asks for an older release than the project",
        {
            "requirements.txt": "trl>=0.18,<=0.24\n",
            "train.py": """\
from transformers.utils.versions import require_version
from trl import PPOConfig


def make():
    require_version("trl>=0.8.6,<=0.9.6", "pip install trl==0.9.6")
    return PPOConfig(model_name="m", ppo_epochs=4)
""",
        },
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
