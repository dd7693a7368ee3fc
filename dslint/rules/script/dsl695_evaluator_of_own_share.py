"""An evaluator of detectron2 is told not to gather, in a job that is launched in several processes.

**What.** `COCOEvaluator(name, tasks, False)` or `COCOEvaluator(name, distributed=False)` (LVIS, semantic segmentation)
in a script whose `launch(main, num_gpus, ...)` may start more than one process.

**Why it hurts.** The test loader of detectron2 divides the images over the ranks. Without the gather each rank judges
the predictions of its own share against the annotations of all images: those of the other ranks count as missed. The AP
that rank 0 prints is far too low, the lower the more GPUs there are, and the best checkpoint is chosen by it.

**Fix.** `distributed=True`, which is the default.

**When it stays quiet.** Nothing launches several processes, or exactly one; the argument is not certainly false;
another library.

**Evidence.** `COCOEvaluator.evaluate` in `detectron2/evaluation/coco_evaluation.py`, and
`build_detection_test_loader` in `detectron2/data/build.py`, whose `InferenceSampler` deals the images out.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL695",
    name="evaluator-of-own-share",
    kind="script",
    severity=Severity.WARNING,
    summary="an evaluator does not gather the predictions of the ranks, and counts those of the others as missed",
    markers=(r"detectron2", r"Evaluator\("),
    references=(
        "https://github.com/facebookresearch/detectron2/issues/1838",
        "detectron2/evaluation/coco_evaluation.py",
    ),
    no_experiment="detectron2 is not part of the machines on which experiments run.",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each evaluator that does not gather, where a launch of several processes is in sight."""
    launch = next((h.event for h in run.happenings("launches") if _is_of_several(run, h.event)), None)
    if run.context.is_one_process and not run.has("launches"):
        return
    for found in run.happenings("makes-evaluator") if launch is not None else ():
        told = found.event.arguments.get("distributed")
        if found.event.may or told is None or told.constants != (False,):
            continue
        name = found.event.api.rpartition(".")[2]
        yield run.finding(
            META,
            found.event.module,
            found.event.node,
            f"`{name}` with `distributed=False` judges only each rank's share: all other images count as missed",
            hint="Leave `distributed` out, or pass `True`",
            related=(run.location(launch.module, launch.node, "may start several processes"),) if launch else (),
        )


def _is_of_several(run: RunQuery, event: Event) -> bool:
    """Return whether a launch may start more than one process."""
    number = event.arguments.get(str(row_of(run, event).get("processes", "")))
    machines = event.arguments.get("num_machines")
    is_one = number is None or number.constants == (1,)
    return not is_one or (machines is not None and machines.constants not in ((1,), None))


_TRAIN = """\
import os

import torch
from detectron2.engine import DefaultTrainer, default_argument_parser, launch
from detectron2.evaluation import %s


class Trainer(DefaultTrainer):
    @classmethod
    def build_evaluator(cls, cfg, dataset_name, output_folder=None):
        folder = output_folder or os.path.join(cfg.OUTPUT_DIR, "inference")
        return %s


def main(args):
    return Trainer(args.cfg).train()


if __name__ == "__main__":
    args = default_argument_parser().parse_args()
    launch(main, %s, num_machines=1, machine_rank=0, dist_url="auto", args=(args,))
"""
_COCO = 'COCOEvaluator(dataset_name, ("bbox",), %s, output_dir=folder)'
_ONE = _TRAIN.replace('launch(main, %s, num_machines=1, machine_rank=0, dist_url="auto", args=(args,))', "main(%s)")

EXAMPLES = (
    bad("by its name", {"train_net.py": _TRAIN % ("COCOEvaluator", _COCO % "distributed=False", "args.num_gpus")},
        "train_net.py:12 warning"),
    bad("by its place", {
        "train_net.py": _TRAIN % ("COCOEvaluator", "COCOEvaluator(dataset_name, cfg, False, folder)", "8")},
        "train_net.py:12 warning"),
    bad("of semantic segmentation", {"train_net.py": _TRAIN % (
        "SemSegEvaluator", "SemSegEvaluator(dataset_name, False, folder)", "torch.cuda.device_count()")},
        "train_net.py:12 warning"),
    good("it gathers", {"train_net.py": _TRAIN % ("COCOEvaluator", _COCO % "distributed=True", "args.num_gpus")}),
    good("by default", {"train_net.py": _TRAIN % ("COCOEvaluator", "COCOEvaluator(dataset_name)", "args.num_gpus")}),
    good("one process", {"train_net.py": _TRAIN % ("COCOEvaluator", _COCO % "distributed=False", "1")}),
    good("nothing is launched", {"train_net.py": _ONE % ("COCOEvaluator", _COCO % "distributed=False", "args")}),
)  # fmt: skip
