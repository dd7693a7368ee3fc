"""A program on a Ray cluster is told another number of nodes than the Slurm job has.

**What.** A batch script starts Ray on all nodes of its job (`ray start --head` on one, `ray start --address` on the
others) and then one program, with another number of nodes in its words: `trainer.nnodes=1` of verl,
`cluster.num_nodes=4` of NeMo-RL, `--num_nodes 1`.

**Why it hurts.** With fewer nodes than there are, the program asks Ray for the GPUs of those only: the others are idle
during the whole run. With more, it waits for GPUs that no node has.

**Fix.** The number from the job: `trainer.nnodes=$SLURM_NNODES`.

**When it stays quiet.** When a number is not known, when the words hold several numbers of nodes (of trainer and
rollout), when several programs share the cluster, and when the script starts Ray on one node only.

**Evidence.** `trainer.nnodes` in the configuration of verl, which makes its resource pool of so many nodes.
https://github.com/verl-project/verl/pull/309
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.otherhosts import uncommented
from dslint.model.launch.slurmjob import job_nodes
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL399",
    name="ray-nodes-vs-program",
    kind="launch",
    severity=Severity.WARNING,
    summary="A program on a Ray cluster is told another number of nodes than the Slurm job has",
    references=(
        "https://verl.readthedocs.io/en/latest/start/multinode.html",
        "https://github.com/verl-project/verl/pull/309",
    ),
    depends_on_run=True,
    no_experiment="it takes a Slurm job of several nodes, and Ray on them",
    needs=(r"/\bray[ \t]+start\b/",),
)

_HEAD = re.compile(r"\bray[ \t]+start\b(?:[^\n]*\\\n)*[^\n]*--head\b")
_OTHERS = re.compile(r"\bray[ \t]+start\b(?:[^\n]*\\\n)*[^\n]*--address\b")
_ALL = re.compile(r"SLURM_(?:JOB_NUM_NODES|NNODES|JOB_NODELIST|NODELIST)\b")
_NUMBER = re.compile(r"\+*[\w.-]*?(?:nnodes|num[-_]nodes|num[-_]machines)")
_OWN = re.compile(r"\+*(?:(?:trainer|cluster)\.)?(?:nnodes|num_nodes)|--(?:nnodes|num[-_]nodes|num[-_]machines)")

_JOB = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
srun --nodes=1 --ntasks=1 -w "${nodes[0]}" \\
    ray start --head --port=6379 --num-gpus 4 --block &
sleep 15
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
    srun --nodes=1 --ntasks=1 -w "${nodes[$i]}" ray start --address "${nodes[0]}:6379" --block &
done
sleep 15
"""
_VERL = (
    "srun --overlap --nodes=1 --ntasks=1 -w ${nodes[0]} python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=4%s\n"
)
_OTHER = "srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) ray start --address $HEAD:6379 --block &\n"
_STEP = "#!/bin/bash\n#SBATCH -N 4\nray start --head --port 6379\n" + _OTHER

EXAMPLES = (
    bad("one of two nodes", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=1"}, "job.sbatch:13"),
    bad("more nodes than there are", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=4"}, "job.sbatch:13"),
    bad("an option of the script", {
        "job.sbatch": _STEP + "python train.py --num-nodes 2\n", "train.py": "print()\n",
    }, "job.sbatch:5"),
    bad("another framework", {
        "job.sbatch": _STEP + "python run.py cluster.num_nodes=8 cluster.gpus_per_node=8\n", "run.py": "print()\n",
    }, "job.sbatch:5"),
    good("the nodes of the job", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=2"}),
    good("a variable", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=$SLURM_NNODES"}),
    good("a number that is not known", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=$N"}),
    good("two groups of nodes", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=1 rollout.nnodes=1"}),
    good("two programs", {"job.sbatch": _JOB + _VERL % " trainer.nnodes=1" + _VERL % " trainer.nnodes=1 a.b=1"}),
    good("Ray on one node", {
        "job.sbatch": "#!/bin/bash\n#SBATCH --nodes=2\nray start --head\n" + _VERL % " trainer.nnodes=1",
    }),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The one program that is told of nodes, beside Ray on all nodes of the job."""
    del context
    text = uncommented(doc.shell)
    if not (_HEAD.search(text) and _OTHERS.search(text) and _ALL.search(text)):
        return
    told = [(command, word) for command in doc.commands if (word := _told(command)) is not None]
    if len({command.location for command, _ in told}) != 1:
        return
    command, word = told[0]
    number, nodes = _value(command, word), job_nodes(command)
    if not nodes.is_known or nodes.get() < 2 or not number.isdigit() or int(number) == nodes.get() or int(number) < 1:
        return
    is_less = int(number) < nodes.get()
    effect = "the GPUs of the others are idle" if is_less else "it waits for GPUs that no node has"
    yield META.finding(
        word.location,
        f"the program is told of {number} node{'s' if int(number) > 1 else ''}, but its job joins {nodes.get()} to Ray:"
        f" {effect}",
        hint="Take the number from the job: `$SLURM_NNODES`",
        related=nodes.origins[:1],
        severity=Severity.INFO if doc.in_docs else None,
        facts={"told": int(number), "nodes": nodes.get()},
    )


def _told(command: LaunchCommand) -> Word | None:
    """The one word that says how many nodes the program has; ``None`` where several do, or may."""
    words = [word for word in command.script_args if _NUMBER.fullmatch(word.raw.partition("=")[0])]
    if len(words) != 1 or command.hides_words or not _OWN.fullmatch(words[0].raw.partition("=")[0]):
        return None
    return words[0]


def _value(command: LaunchCommand, word: Word) -> str:
    text = word.text or ""
    if "=" in text or not text:
        return text.partition("=")[2]
    at = command.script_args.index(word) + 1
    return (command.script_args[at].text or "") if at < len(command.script_args) else ""
