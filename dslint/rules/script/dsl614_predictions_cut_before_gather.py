"""What `preprocess_logits_for_metrics` returns cannot be gathered from all ranks.

**What.** The function that a Trainer gets as `preprocess_logits_for_metrics` returns a tensor in the memory of the host
(`logits.argmax(-1).cpu()`), or the entries that a mask leaves (`logits[labels != -100]`), whose number differs between
the ranks.

**Why it hurts.** The Trainer calls the function on each rank, after it has padded logits and labels and right before
it gathers them. NCCL takes tensors on GPUs only, so a tensor of the host raises `No backend type associated with device
type cpu` in the first evaluation. With tensors of different length NCCL waits forever, or the rows of the ranks get
mixed up. In one process nothing is gathered, and the function works.

**Fix.** Leave the result on its device: the Trainer moves what it has gathered to the host itself, and
`eval_accumulation_steps` says how often. Keep one value for each position, and drop the masked ones in
`compute_metrics`, where the labels are at hand.

**When it stays quiet.** The run has one process only; the function is not known; the selection is reduced
(`logits[mask].mean()`) or padded; the result goes through anything else whose shape the code does not tell; the group
is made with another backend than NCCL, for tensors of the host; `eval_use_gather_object=True`.

**Evidence.** `Trainer.evaluation_loop` of transformers 5.23 calls `preprocess_logits_for_metrics` between
`pad_across_processes` and `gather_function`. Two ranks: rows of different length abort one rank or return numbers that
nobody sent (accelerate 1.15 `gather`); a group that has a backend for GPUs alone refuses a tensor of the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.values import Bound, Function, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.uncollectable import Uncollectable, reason_of
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL614",
    name="predictions-cut-before-gather",
    kind="script",
    severity=Severity.WARNING,
    summary="`preprocess_logits_for_metrics` returns what the ranks cannot gather: host tensors, or what a mask leaves",
    markers=(r"preprocess_logits_for_metrics", r"Trainer"),
    references=(
        "https://github.com/huggingface/transformers/issues/37730",
        "https://github.com/openreasoner/openr/issues/83",
    ),
    depends_on_run=True,
)
_ARGUMENT = "preprocess_logits_for_metrics"
_OTHER_BACKEND = re.compile(r"gloo|use_cpu|no_cuda|eval_use_gather_object")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each result of the function that is on the host, or as long as a mask makes it."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for found in run.happenings("trainer"):
        value = found.event.arguments.get(_ARGUMENT)
        for function in _functions(value):
            for reason in reason_of(function):
                if id(reason.node) not in seen and not _is_other(run):
                    seen.add(id(reason.node))
                    yield _finding(run, found, function, reason)


def _functions(value: Value | None) -> Iterator[Function]:
    """Yield the functions of the run that a value certainly is."""
    for atom in value.atoms if value is not None else ():
        function = atom.function if isinstance(atom, Bound) else atom
        if isinstance(function, Function):
            yield function


def _is_other(run: RunQuery) -> bool:
    """Return whether some code names another backend, the host, or objects instead of tensors."""
    return any(module.search(_OTHER_BACKEND) for module in run.machine.program.modules())


def _finding(run: RunQuery, found: Happening, function: Function, reason: Uncollectable) -> Finding:
    if reason.kind == "host":
        says = f"`{_ARGUMENT}` returns a tensor in host memory, which NCCL cannot gather from the ranks"
        hint = "Leave the result on its device: the Trainer moves it to the host after the gather"
    else:
        says = f"`{_ARGUMENT}` returns what a mask leaves: the Trainer gathers a different length from each rank"
        hint = "Return one value for each position, and drop the masked ones in `compute_metrics`"
    return run.finding(
        META,
        function.module,
        reason.node,
        says,
        hint=hint,
        related=(run.location(found.event.module, found.event.node, "the Trainer gathers the result here"),),
        facts={"kind": reason.kind},
    )


_TRAIN = """\
from transformers import Trainer, TrainingArguments
%s

def main(model, train, test):
    args = TrainingArguments("out", eval_strategy="epoch"%s)
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=test,
                      preprocess_logits_for_metrics=%s)
    trainer.train()
"""
_BEST = """\


def best(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    %s
"""
_STEPS = """\
import torch


class Steps:
    def __init__(self, good_id):
        self.good_id = good_id

    def keep(self, logits, labels):
        shifted, targets = logits[:, :-1], labels[:, 1:]
        %s
"""
_IN_TWO = "\nfrom steps import Steps\n"
_PICK = "pair = shifted[targets != -100][:, [self.good_id]]\n        scores = pair.softmax(dim=-1)[:, 0]\n        "
_LOOP = """\


def best(logits, labels):
    kept = []
    for row, target in zip(logits, labels):
        kept.append(%s)
    return torch.cat(kept)
"""


def _one(body: str, more: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (_BEST % body, more, "best")}


def _two(body: str) -> dict[str, str]:
    return {"steps.py": _STEPS % body, "train.py": _TRAIN % (_IN_TWO, "", "Steps(7).keep")}


EXAMPLES = (
    bad("moved to the host to save memory", _one("return logits.argmax(dim=-1).cpu()"), "train.py:7"),
    bad("by a variable, and with the labels",
        _one('ids = logits.argmax(dim=-1)\n    ids = ids.to("cpu")\n    return ids, labels'), "train.py:8"),
    bad("the steps of a batch, in a class of another file", _two(f"{_PICK}return scores"), "steps.py:10"),
    bad("the rows one by one",
        {"train.py": _TRAIN % ("import torch\n" + _LOOP % "row[target != -100].argmax(-1)", "", "best")},
        "train.py:8"),
    bad("a function of torch, and then a move",
        {"train.py": "import torch\n" + _one('return torch.softmax(logits, -1).to(torch.device("cpu"))')["train.py"]},
        "train.py:8"),
    bad("a mask that a method makes",
        _one("keep = labels.ne(-100)\n    return logits.argmax(-1)[keep]"), "train.py:8"),
    good("on its device", _one("return logits.argmax(dim=-1)")),
    good("reduced to one number", _two("return shifted[targets != -100].mean()")),
    good("masked in place", _two("return shifted.argmax(-1).masked_fill(targets == -100, -100)")),
    good("columns, which every rank has as many of", _two("return shifted[:, :, [self.good_id]]")),
    good("moved back", _one("return logits.cpu().argmax(dim=-1).to(labels.device)")),
    good("a group for tensors of the host as well",
         _one("return logits.argmax(dim=-1).cpu()", ', ddp_backend="cpu:gloo,cuda:nccl"')),
    good("objects are gathered", _one("return logits.argmax(dim=-1).cpu()", ", eval_use_gather_object=True")),
    good("one process",
         {**_one("return logits.argmax(dim=-1).cpu()"), "run.sh": "CUDA_VISIBLE_DEVICES=0 python train.py\n"}),
)  # fmt: skip
