"""Every rank runs the model over the whole list of inputs, and the ranks then gather equal answers.

**What.** A loop without a backward runs or generates with the model over a list that is the same on all ranks (prompts
of a file, batches cut from it); afterwards the ranks gather what came out.

**Why it hurts.** The gather shows that each rank was meant to take a share. As written all ranks make the same answers:
eight GPUs take as long as one, and all copies but one are discarded, or the list holds every answer eight times.
ZeRO-3 divides the weights, never the inputs.

**Fix.** `items[rank::world_size]`, padded to one length where the model talks to other ranks, or accelerate's
`split_between_processes`.

**When it stays quiet.** The list depends on the rank; the loop leaves out the items of other ranks; each rank draws
answers of its own (sampling, several answers for a prompt); tensor, pipeline or model parallel scripts; some ranks
only; nothing is gathered; loaders (DSL603); one process.

**Evidence.** Two gloo ranks: both go through all 8 items, and what they gather holds each item twice; with
`items[rank::world_size]` once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.derived import Derived
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.evaluations import whole_lists
from dslint.rules.data.undivided import asks_for_rank
from dslint.rules.runs import RunQuery
from dslint.rules.training.schedules import knows_world

META = RuleMeta(
    code="DSL680",
    name="whole-list-on-every-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank runs the model over the whole list, and the ranks gather equal answers",
    markers=(r"gather", r"\bfor\b"),
    references=("https://github.com/huggingface/transformers/issues/15399",),
    depends_on_run=True,
)
# What takes part in a loop and is no part of its items.
_OTHERS = r"^(?:model|tokenizer|accelerator|engine|processor)$"
# Each rank may draw answers of its own.
_DRAWS = re.compile(r"do_sample['\"]?\s*[=:]\s*True|temperature|num_return|SamplingParams|multinomial")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each list that every rank works through as a whole before the ranks gather what came out."""
    if run.context.is_one_process:
        return
    derived: Derived | None = None
    for loop, joined in whole_lists(run):
        if loop.module.search(_DRAWS) or not isinstance(loop.node, ast.For):
            continue
        derived = derived or Derived(run.machine.program.modules(), (tree for _, tree in run.trees()), _OTHERS)
        pieces = derived.of(loop.module, [loop.node.iter])
        if pieces is None or any(
            knows_world(node) or asks_for_rank(node) or _speaks_of_rank(node) for _, node in pieces
        ):
            continue
        call = joined.api.rpartition(".")[2]
        yield run.finding(
            META,
            loop.module,
            loop.node,
            f"every rank runs the model over all items of this list, and `{call}` gathers the same answers from each",
            hint="Give each rank its share: `items[rank::world_size]`, padded to one length",
            related=(run.location(joined.module, joined.node, "the ranks gather equal results"),),
            varies=loop.varies,
            same=(loop.subject,),
            facts={"call": call},
        )


def _speaks_of_rank(node: ast.AST) -> bool:
    words = (getattr(n, "id", getattr(n, "attr", getattr(n, "arg", ""))) for n in ast.walk(node))
    return any("rank" in word.lower() or "process" in word.lower() for word in words if isinstance(word, str))


_INFER = """\
import json
import os

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer


def read(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    rows = read("prompts.jsonl")%s
    answers = {}
    for row in rows:
        %s
        ids = tokenizer(row["prompt"], return_tensors="pt").to("cuda")
        answers[row["id"]] = tokenizer.decode(model.generate(**ids, do_sample=%s)[0])
    gathered = [None] * world
    %s
    if rank == 0:
        print(gathered)


main()
"""
_GATHER = "dist.all_gather_object(gathered, answers)"
_ACCELERATE = """\
from accelerate import Accelerator
from accelerate.utils import gather_object
from transformers import AutoModelForCausalLM, AutoTokenizer


def answer(model, tokenizer, batches):
    found = []
    for batch in batches:
        out = model.generate(**tokenizer(batch, return_tensors="pt", padding=True))
        found.extend(tokenizer.batch_decode(out))
    return found


def main():
    accelerator = Accelerator()
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    model = AutoModelForCausalLM.from_pretrained("gpt2").to(accelerator.device)
    prompts = [line.strip() for line in open("prompts.txt")]%s
    found = answer(model, tokenizer, [prompts[at : at + 8] for at in range(0, len(prompts), 8)])
    found = gather_object(found)
    if accelerator.is_main_process:
        print(found)


main()
"""


def _infer(share: str = "", skip: str = "pass", sample: str = "False", gather: str = _GATHER) -> dict[str, str]:
    return {"infer.py": _INFER % (share, skip, sample, gather)}


EXAMPLES = (
    bad("The prompts of a file", _infer(), at="infer.py:22"),
    bad("Batches, in a function", {"infer.py": _ACCELERATE % ""}, at="infer.py:8"),
    bad(
        "Batches by their numbers",
        {
            "infer.py": (_ACCELERATE % "")
            .replace(
                "for batch in batches:", "for at in range(0, len(batches), 8):\n        batch = batches[at : at + 8]"
            )
            .replace("[prompts[at : at + 8] for at in range(0, len(prompts), 8)]", "prompts")
        },
        at="infer.py:8",
    ),
    good("A share of the rank", _infer("[rank::world]")),
    good("The loop skips", _infer(skip="if row['id'] % world != rank:\n            continue")),
    good("Answers are drawn", _infer(sample="True")),
    good("Nothing is gathered", _infer(gather="dist.barrier()")),
    good(
        "A share of the process",
        {"infer.py": _ACCELERATE % "[accelerator.process_index :: accelerator.num_processes]"},
    ),
    good("One process", _infer(), world_size=1),
)
