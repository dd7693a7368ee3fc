"""The first process of every machine makes, removes, moves or writes the same file or folder.

**What.** A call under `if local_rank == 0`, `accelerator.is_local_main_process` or `trainer.is_local_process_zero()`
makes a folder without `exist_ok`, removes or moves a file or folder, or writes a file, under a path that is the same on
all machines. The usual case is a helper that removes old checkpoints.

**Why it hurts.** The test lets one process of each machine through, and jobs of several machines share their storage.
Both list the same old checkpoints and remove them at once: one deletes files under the other, which ends with
`FileNotFoundError`, and the job with it. Of two that make a folder one gets `FileExistsError`. A file that both write
may hold parts of both; that is an information only, for mostly both write the same, and the storage may be a machine's
own. On one machine the same code works.

**Fix.** Ask for the first process of the job: `dist.get_rank() == 0`, `accelerator.is_main_process`,
`trainer.is_world_process_zero()`.

**When it stays quiet.** All commands start one machine, or the script says that it is for one; the path holds the rank,
the machine or a temporary folder, or a name in the code says that it is a machine's own (`local_dir`, `cache`);
`exist_ok`, `missing_ok`, `ignore_errors`, or the error is caught; data sets that are fetched, unpacked or prepared once
on each machine, and files that are appended to. Of any other path it is assumed that the machines share it.

**Evidence.** Two gloo ranks that are the first process of a machine each: `shutil.rmtree` and `os.makedirs` of the
second one raise; under a test of the rank of the job they do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event
from dslint.python.varies import HOST
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.pathscripts import KEPT, MAIN, MAIN_ONLY, PRUNED, RESULTS, SAVE, TESTED
from dslint.rules.ranks.everyrank import arrivals, row_of
from dslint.rules.ranks.touchedpaths import does_to_path, is_shared_path, path_of, shared_listings
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL632",
    name="path-touched-by-every-machine",
    kind="script",
    severity=Severity.WARNING,
    summary="the first process of every machine makes, removes or writes the same path: with two machines one fails",
    markers=(
        r"torch|accelerat|deepspeed|lightning|transformers",
        r"(?i)local_?rank|is_local_main|on_local_main|is_local_process_zero|rank_zero",
    ),
    references=(
        "https://huggingface.co/docs/accelerate/basic_tutorials/execution",
        "https://docs.python.org/3/library/shutil.html#shutil.rmtree",
    ),
    depends_on_run=True,
)
# Names of what each machine has for itself.
_OWN = re.compile(r"(?i)local_?(?:dir|path|disk|cache|copy|file)|scratch|/tmp\b|cache|nvme|ssd|node|host")
_HARM = {
    "folder": "creates this folder: with two machines one of them gets `FileExistsError`",
    "remove": "removes the same path: with two machines one of them gets `FileNotFoundError`",
    "move": "moves the same path: with two machines one of them gets `FileNotFoundError`",
    "write": "writes this file: with two machines the last one wins, or the parts mix",
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call by which one process of each machine changes the same path."""
    worlds = run.machine.worlds
    first = worlds.mask(lambda lane: worlds.lanes[lane][1] == 0)
    if run.context.is_one_process or first == worlds.main:
        return
    listings = shared_listings(run)
    for found in arrivals(run, "makes-folder", "removes", "moves-file", "saves", "opens", lanes=first):
        event, row = found.event, row_of(run, found.event)
        does, name = does_to_path(found, row), str(row.get("path", ""))
        if does not in _HARM or not is_shared_path(run, event, name, listings):
            continue
        calls = [node for node in found.around if isinstance(node, Call)]
        if any(_OWN.search(text) for text in _said(event, calls)):
            continue
        tests = [node for node in found.around if isinstance(node, Alt)]
        test = next((node for node in reversed(tests) if node.then_lanes != node.else_lanes), None)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"The first process of every machine {_HARM[does]}",
            hint="Ask for the first process of the job: its rank, not the one on its machine",
            related=(
                *(run.location(call.module, call.node, "called from here") for call in calls[:-4:-1]),
                *((run.location(test.module, test.node, "true once per machine"),) if test is not None else ()),
            ),
            severity=Severity.INFO if does == "write" else None,
            varies=event.snapshot[name][0],
            same=(path_of(event, name),),
            facts={"does": does, "tests": any(node.varies & HOST for node in tests)},
        )


def _said(event: Event, calls: list[Call]) -> Iterator[str]:
    """Yield the code of a call and of the calls that lead to it."""
    for module, node in ((event.module, event.node), *((call.module, call.node) for call in calls)):
        yield module.text(node)


_LOCAL = KEPT % MAIN_ONLY.replace("is_main", "is_local_main")
_FIRST = 'int(os.environ["LOCAL_RANK"]) == 0'
_RESULTS = "".join(f"    {line}\n" for line in (TESTED + RESULTS + SAVE).splitlines())
_CALLBACK = """\
import shutil

from transformers import Trainer, TrainerCallback, TrainingArguments


class DropOptimizer(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        if state.%s:
            shutil.rmtree(f"{args.output_dir}/checkpoint-{state.global_step}/global_step{state.global_step}")


def main(model, data):
    args = TrainingArguments("out")
    Trainer(model=model, args=args, train_dataset=data, callbacks=[DropOptimizer()]).train()
"""
_DECORATED = """\
import shutil
import sys

from accelerate import Accelerator

accelerator = Accelerator()


@accelerator.%s
def clear(folder):
    shutil.move(folder, folder + ".old")


def main(model, loader, folder):
    model, loader = accelerator.prepare(model, loader)
    clear("out/samples")


main(*load(sys.argv))
"""

EXAMPLES = (
    bad("old checkpoints, removed by the first process of each machine",
        {"keeper.py": PRUNED % ("", ""), "train.py": _LOCAL}, "keeper.py:16"),
    bad("a folder that is made, and files that are written",
        {"train.py": MAIN % ("", f"    if {_FIRST}:\n{_RESULTS}")},
        ("train.py:21 warning", "train.py:22 info", "train.py:24 info")),
    bad("a callback of the Trainer", {"train.py": _CALLBACK % "is_local_process_zero"}, "train.py:9"),
    bad("a decorator of accelerate", {"train.py": _DECORATED % "on_local_main_process"}, "train.py:11"),
    bad("a number that the launcher passes, and a test of the steps",
        {"train.py": MAIN % (
            "", "    if args.local_rank in (-1, 0) and args.step % 9:\n        os.remove(args.old)\n")},
        "train.py:20"),
    bad("counted by the GPUs of a machine",
        {"train.py": MAIN % ("", "    if dist.get_rank() % torch.cuda.device_count() == 0:\n"
                                 "        shutil.rmtree(args.old)\n")}, "train.py:20"),
    good("the main process of the job", {
        "keeper.py": PRUNED % ("", ""), "train.py": KEPT % MAIN_ONLY,
        "callback.py": _CALLBACK % "is_world_process_zero", "tidy.py": _DECORATED % "on_main_process",
        "plain.py": MAIN % ("", f"    if dist.get_rank() == 0:\n{_RESULTS}")}),
    good("what is gone does not matter", {
        "keeper.py": PRUNED % (", ignore_errors=True", "missing_ok=True"), "train.py": _LOCAL}),
    good("the machine is in the name", {"train.py": MAIN % (
        "", f"    if {_FIRST}:\n        shutil.rmtree(f'{{args.old}}/{{os.environ[\"GROUP_RANK\"]}}')\n")}),
    good("a folder of each machine, by its name", {
        "train.py": MAIN % ("", f"    if {_FIRST}:\n        os.makedirs(args.local_dir)\n")}),
    good("every command starts one machine", {
        "train.py": MAIN % ("", f"    if {_FIRST}:\n{_RESULTS}"),
        "run.sh": "torchrun --nproc_per_node 8 train.py\n"}),
)  # fmt: skip
