"""**What.** `xtuner train` runs on several nodes and nothing in the file sets `XTUNER_DATASET_TIMEOUT`.

**Why it hurts.** Rank 0 prepares the dataset while the others wait, at most 60 minutes by default. A large dataset
needs longer, and the job dies in a time-out before the first step.

**Fix.** `export XTUNER_DATASET_TIMEOUT=120`; the unit is minutes.

**When it stays quiet.** On one node, when the variable is anywhere in the file, and when another file is sourced.

**Evidence.** XTuner `dataset/huggingface.py`, `process_hf_dataset`: `timedelta(minutes=int(os.getenv(...,
default=60)))` for the process group and for `monitored_barrier`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.xtuner import multi_node_origins, trains
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL353",
    name="xtuner-dataset-timeout-missing",
    kind="launch",
    severity=Severity.INFO,
    summary="XTuner on several nodes gives the dataset 60 minutes",
    no_experiment="whether 60 minutes are enough is a matter of the data set, which no experiment can know",
    references=("https://github.com/InternLM/xtuner/blob/v0.1.23/xtuner/dataset/huggingface.py",),
    needs=("xtuner",),
)

_RUN = "NPROC_PER_NODE=8 NNODES=2 NODE_RANK=$1 PORT=29600 ADDR=10.0.0.1 xtuner train c.py --launcher pytorch\n"

EXAMPLES = (
    bad("two nodes and the default of 60 minutes", {"run.sh": "set -e\n" + _RUN}, "run.sh:2 info"),
    good("the time-out is set", {"run.sh": "export XTUNER_DATASET_TIMEOUT=240\n" + _RUN}),
    good("one node", {"run.sh": "NPROC_PER_NODE=8 xtuner train c.py\n"}),
    good("another file may set it", {"run.sh": ". ./env.sh\n" + _RUN}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first multi-node command of XTuner in a file that does not mention the time-out."""
    del context
    if "XTUNER_DATASET_TIMEOUT" in doc.source.text:
        return
    for command in doc.commands:
        if trains(command) and command.nodes.get_or(1) > 1 and command.variable("XTUNER_DATASET_TIMEOUT").is_absent:
            yield META.finding(
                command.location,
                "`XTUNER_DATASET_TIMEOUT` is not set: all ranks wait at most 60 minutes for rank 0's dataset",
                hint="Set `XTUNER_DATASET_TIMEOUT` to the minutes that the dataset may need",
                related=multi_node_origins(command),
            )
            return
