"""A data set is mapped under `main_process_first`, and the others are told not to read what the first has written.

**What.** `map` or `filter` of a Hugging Face data set with `load_from_cache_file=False` (or after
`datasets.disable_caching()`) inside `main_process_first`, `local_main_process_first` or the like.

**Why it hurts.** The block lets the main process work first, so that the others find its result in the cache. With the
cache off they find nothing: the main process maps the whole data set while the others wait, and then all of them map it
again. A preprocessing of one hour takes two, uses the memory of one process for each GPU, and may outlast the timeout
of the process group.

**Fix.** Leave `load_from_cache_file` out. To map anew after a change, delete the cache, or pass another
`new_fingerprint`.

**When it stays quiet.** The value is an option that nobody states; the block belongs to no library that dslint knows;
one process.

**Evidence.** datasets 4.4, `arrow_dataset.py`: `_map_single` is skipped only where `load_from_cache_file` is true and
the cache file exists. accelerate 1.15, `PartialState._goes_first`: all processes but the first wait, and run the
block then.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Context, Event
from dslint.python.queries.steps import tags_of
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL617",
    name="cache-off-under-main-process-first",
    kind="script",
    severity=Severity.WARNING,
    summary="a data set is mapped under `main_process_first` with the cache off: every process maps it again",
    markers=(r"_first\(", r"load_from_cache_file|disable_caching"),
    references=(
        "https://huggingface.co/docs/datasets/use_with_pytorch",
        "https://huggingface.co/docs/accelerate/package_reference/accelerator",
    ),
    depends_on_run=True,
    no_experiment="it costs time and memory, and changes no result",
)
_TURNS = frozenset({"main-first", "local-main-first"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `map` without a cache in a block that the main process runs first."""
    if run.context.is_one_process:
        return
    is_off = run.has("disables-caching")
    for found in run.happenings("slow"):
        event = found.event
        if not event.api.startswith("datasets.") or not (_is_off(event) or (is_off and _says_nothing(event))):
            continue
        blocks = [n for n in found.around if isinstance(n, Context) and tags_of(run.machine, n) & _TURNS]
        if blocks:
            yield run.finding(
                META,
                event.module,
                event.node,
                "the others may not read the cache that the main process writes here: each maps all rows again",
                hint="Leave `load_from_cache_file` out",
                related=(run.location(blocks[-1].module, blocks[-1].node, "the main process goes first"),),
            )


def _is_off(event: Event) -> bool:
    given = event.arguments.get("load_from_cache_file")
    return given is not None and given.constants == (False,)


def _says_nothing(event: Event) -> bool:
    return "map" in event.api and "load_from_cache_file" not in event.arguments


_MAP = """\
from datasets import load_dataset
from transformers import AutoModel, Trainer, TrainingArguments


def encode(row):
    return {"length": len(row["text"])}


def main():
    args = TrainingArguments("out")
    rows = load_dataset("json", data_files="rows.json")
    %s
        rows = rows.map(encode, %s)
    Trainer(AutoModel.from_pretrained('bert-base-uncased'), args, train_dataset=rows).train()


main()
"""
_FIRST = "with args.main_process_first(desc='map'):"

EXAMPLES = (
    bad(
        "the cache is off",
        {"train.py": _MAP % (_FIRST, "load_from_cache_file=False")},
        at="train.py:13 warning",
    ),
    good("the cache is read", {"train.py": _MAP % (_FIRST, "num_proc=4")}),
    good("no process waits for it", {"train.py": _MAP % ("if rows:", "load_from_cache_file=False")}),
)
