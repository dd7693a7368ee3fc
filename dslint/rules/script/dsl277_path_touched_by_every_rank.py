"""Every rank makes, removes, moves or writes the same file or folder.

**What.** A script that runs as several processes makes a folder without `exist_ok`, removes or moves a file or folder,
writes a file, or downloads and unpacks a data set without a lock (also by a helper of its own, which opens the file for
what it fetches), under a path that is the same on all ranks, and nothing keeps ranks from coming there together. The
same of old checkpoints that every rank finds in a listing of the shared folder, and removes.

**Why it hurts.** The ranks race. Of two that make a folder one gets `FileExistsError`, also where both have looked
before whether it is there. Of two that remove or move something one gets `FileNotFoundError`. That rank ends, and the
others wait for it. Of two that write a file the last one wins: the results of the others are lost, and a file that two
write at the same time may hold parts of both. A rank that finds an archive of which another has written a part reads
it as broken: `Dataset not found or corrupted`, at the first run on a machine.

**Fix.** Do it on rank 0 only, with a barrier before other ranks use the path; pass `exist_ok=True` for a folder; or put
the rank into the name.

**When it stays quiet.** Only some ranks come there, or a test in the way names a rank or cannot be read; the path
differs by rank or its origin is not certain; a lock or `main_process_first` is around, or other
ranks wait at a barrier; the error is caught, or
`exist_ok`, `missing_ok`, `ignore_errors` rule it out; files that are appended to; tokenizers and
processors; downloads of libraries that take a lock; what some process has fetched or made before;
calls of libraries that write on one rank themselves; scripts of which nothing says that they run as several
processes, and processes that are started later.

**Evidence.** Two gloo ranks: the second `os.makedirs`, `shutil.rmtree` and `shutil.move` of the same path raise, also
after a test; a file that both write holds the results of one rank; an archive that one is still writing
is refused by the other. With paths of their own nothing happens.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event
from dslint.python.source import Module
from dslint.python.varies import HOST, UNMODELLED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.pathscripts import (
    BOTH,
    DATA,
    DECORATED,
    FABRIC,
    FETCHED,
    FETCHES,
    FETCHES_OWN,
    FILES,
    FIRST,
    KEPT,
    MAIN,
    MAIN_ONLY,
    NAMED,
    NAMED_BY_STAGE,
    OWN_FETCH,
    PATHED,
    PPO,
    PREPARED,
    PRUNED,
    READS,
    RESULTS,
    RESUMED,
    RUN,
    SAVE,
    SPAWN,
    TESTED,
    WRITER,
)
from dslint.rules.ranks.everyrank import Arrival, arrivals, every_rank_comes, row_of
from dslint.rules.ranks.touchedpaths import (
    does_to_path,
    is_download,
    is_shared_path,
    is_stated,
    path_of,
    shared_listings,
)
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL277",
    name="path-touched-by-every-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank makes, removes or writes the same file or folder: one of them fails, or results are lost",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine",),
    references=(
        "https://docs.python.org/3/library/os.html#os.makedirs",
        "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
    ),
    depends_on_run=True,
)
_TOUCHES = ("makes-folder", "removes", "moves-file", "saves", "opens", "unpacks")
_MESSAGES = {
    "folder": "Every rank creates this folder: the second one gets `FileExistsError`, and the others wait for it",
    "tested folder": "Every rank creates this folder if it is missing: when two look at the same time, one fails",
    "remove": "Every rank removes the same path: the second one gets `FileNotFoundError`",
    "move": "Every rank moves the same path: the second one gets `FileNotFoundError`",
    "download": "Every rank downloads this data set into one folder: a rank may read what another has half written",
    "fetch": "Every rank downloads this file to one path: a rank may read what another has half written",
    "write": "Every rank writes this file: the last one wins, and simultaneous writes corrupt it",
}
_HINTS = {
    "folder": "Pass `exist_ok=True`",
    "download": "Download on one rank of each machine, let the others wait at a barrier, then open it on all of them",
    "fetch": "Download on one rank of each machine, let the others wait at a barrier, then open it on all of them",
    "write": "Write it on rank 0 only, or put the rank into its name",
    "": "Do it on rank 0 only, and let the others wait at a barrier",
}


_LOOKS = re.compile(r"\bexists\(|\bis_?file\(|\bis_?dir\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call by which every rank changes the same path."""
    if run.context.is_one_process:
        return
    # Also by tests of what code without a model has given the ranks.
    come = partial(every_rank_comes, run, lanes=run.machine.worlds.full, assumed=UNMODELLED)
    reached = list(arrivals(run, *_TOUCHES, come=come))
    fetched = _fetched_before(run, reached)
    listings, done = shared_listings(run), _done_before(run, reached)
    for found in reached:
        event, row = found.event, row_of(run, found.event)
        does, name = does_to_path(found, row), str(row.get("path", ""))
        if does is None or (does in ("download", "fetch") and fetched & {event.api, event.node}):
            continue
        if id(event.node) in done:
            continue
        if not is_shared_path(run, event, name, listings if does in ("remove", "move", "write") else frozenset()):
            continue
        calls = [node for node in found.around if isinstance(node, Call)]
        tests = any(isinstance(node, Alt) and node.varies & HOST for node in found.around)
        yield run.finding(
            META,
            event.module,
            event.node,
            _MESSAGES["tested folder" if does == "folder" and tests else does],
            hint=_HINTS.get(does, _HINTS[""]),
            related=(
                *(run.location(call.module, call.node, "called from here") for call in calls[:-4:-1]),
                run.location(found.start.module, found.start.node, "here the run has several processes"),
            ),
            varies=event.snapshot[name][0],
            same=(path_of(event, name),),
            facts={"does": does, "tests": tests},
        )


def _done_before(run: RunQuery, reached: list[Arrival]) -> frozenset[int]:
    """Return the calls of functions that some ranks alone have run before, and that look whether a file is there."""
    every, full = {id(found.event.node) for found in reached}, run.machine.worlds.full
    touched = (found.event for found in run.occurrences(*_TOUCHES)) if every else ()
    alone = {id(event.node): event for event in touched if event.lanes != full and id(event.node) in every}
    return frozenset(key for key, event in alone.items() if _looks(event.module, event.node))


def _looks(module: Module, node: ast.AST) -> bool:
    """Return whether the function around a call, or one of the module that it calls, looks whether a file is there."""
    scope = module.function(node)
    if scope is None:
        return False
    text = module.text(scope)
    called = [f for f in module.nodes_of(ast.FunctionDef) if f is not scope and f"{f.name}(" in text]
    return any(_LOOKS.search(found) for found in (text, *map(module.text, called)))


def _fetched_before(run: RunQuery, reached: list[Arrival]) -> frozenset[object]:
    """Return the calls by which some processes fetch files elsewhere, so that the others find them."""
    every, full = {id(found.event.node) for found in reached}, run.machine.worlds.full
    others = [h.event for h in run.happenings("unpacks") if id(h.event.node) not in every]
    others += _before_launch(run)
    found: set[object] = {event.api for event in others if not is_stated(event, "download", False)}
    found |= {h.event.node for h in run.occurrences("opens") if h.event.lanes != full and is_download(h.event)}
    # Also by the same call, in a function that some ranks have run before.
    fetches = [h.event for h in run.occurrences("fetches")]
    return frozenset(found | {e.api for e in fetches if e.lanes != full or id(e.node) not in every})


def _before_launch(run: RunQuery) -> list[Event]:
    """Return what the first process unpacks before Fabric starts the others, which begin the script anew."""
    found: list[Event] = []
    for happening in run.happenings("unpacks", "spawns"):
        if happening.event.api.endswith(".Fabric.launch"):
            return found if run.context.world_size.get_or(1) < 2 else []
        found.append(happening.event)
    return []


EXAMPLES = (
    good(
        "the others find what the first process has prepared",
        {"train.py": PREPARED % 'if (root / "rows.txt").exists():\n        return\n    '},
    ),
    bad("each looks at nothing", {"train.py": PREPARED % ""}, at=("train.py:11", "train.py:13")),
    bad("a trainer of trl", {"ppo.py": PPO % "", "requirements.txt": "trl==0.8.6\n"}, "ppo.py:10"),
    good("a trainer of trl, on the main process", {
        "ppo.py": PPO % "if trainer.accelerator.is_main_process:\n            ", "requirements.txt": "trl==0.8.6\n"}),
    bad("a number that the names in the folder say", {"train.py": RESUMED % ""}, "train.py:16"),
    good("the same on one rank", {"train.py": RESUMED % "if accelerator.is_main_process:\n            "}),
    bad("old checkpoints that every rank finds in the folder",
        {"keeper.py": PRUNED % ("", ""), "train.py": KEPT % BOTH}, ("keeper.py:16", "keeper.py:22")),
    good("one rank removes them", {"keeper.py": PRUNED % ("", ""), "train.py": KEPT % MAIN_ONLY}),
    good("what is gone does not matter",
         {"keeper.py": PRUNED % (", ignore_errors=True", "missing_ok=True"), "train.py": KEPT % BOTH}),
    good("a decorator of the project keeps the other ranks away", {"runner.py": DECORATED}),
    good("downloaded before Fabric starts the other processes", {"train.py": FABRIC % FIRST}),
    bad("downloaded by all processes that Fabric has started", {"train.py": FABRIC % ""}, "train.py:9"),
    bad("downloaded by all processes that a launcher has started", {
        "train.py": FABRIC % FIRST, "run.sh": "torchrun --nproc_per_node 4 train.py\n"}, "train.py:9"),
    bad("a data set that every rank downloads", {
        "data.py": DATA % ("", "True"), "train.py": READS % ("", "", "")}, "data.py:5"),
    bad("a file that every rank downloads if it is missing", {
        "data.py": FETCHED, "train.py": FETCHES % ""}, "data.py:13"),
    bad("a file that the data set fetches itself", {
        "data.py": FETCHED.replace("urlretrieve(url, path)", "download_url(url, root)"), "train.py": FETCHES % ""},
        "data.py:13"),
    good("rank 0 has fetched the file before", {"data.py": FETCHED, "train.py": FETCHES % (
        "if dist.get_rank() == 0:\n    Captions('data')\ndist.barrier()\n")}),
    bad("own helpers that download", {"fetch.py": OWN_FETCH, "train.py": FETCHES_OWN % ""},
        ("fetch.py:10", "fetch.py:19")),
    good("rank 0 has been there", {"fetch.py": OWN_FETCH.replace("    if not os.path.isfile(path):\n", "    if 0:\n"),
         "train.py": FETCHES_OWN % (
             "if dist.get_rank() == 0:\n    weights('https://example.com/vgg.pth', 'cache')\ndist.barrier()\n")}),
    bad("a configuration that nobody can read names the data set and the files", {"main.py": NAMED % ("", "")},
        ("main.py:12", "main.py:14", "main.py:25", "main.py:26", "main.py:28")),
    good("a function that nobody can read decides who comes", {"main.py": NAMED_BY_STAGE}),
    bad("a flag that the call gives", {
        "data.py": DATA % (", fetch", "fetch"), "train.py": READS % ("", "", ", fetch=True")}, "data.py:5"),
    good("the data set must be there", {
        "data.py": DATA % ("", "False"), "train.py": READS % ("", "", "")}),
    good("the default is not to download", {
        "data.py": (DATA % ("", "")).replace(", download=", ""), "train.py": READS % ("", "", "")}),
    good("the first rank of each machine downloads", {
        "data.py": DATA % (", fetch", "fetch"), "train.py": READS % ("", "", ', os.environ["LOCAL_RANK"] == "0"')}),
    good("one rank has fetched it before", {"data.py": DATA % ("", "True"), "train.py": READS % (
        "from torchvision.datasets import CIFAR10\n\n",
        "if dist.get_rank() == 0:\n    CIFAR10('/tmp/cifar10', download=True)\ndist.barrier()\n", "")}),
    bad("a writer of Lightning, which runs on every rank", {"predict.py": WRITER % ("", "ddp")}, "predict.py:14"),
    good("the writer runs on rank 0 only", {
        "predict.py": (WRITER % ("    @rank_zero_only\n", "ddp")).replace(
            "import pandas", "from lightning.pytorch.utilities import rank_zero_only\nimport pandas")}),
    good("one process drives all devices", {"predict.py": WRITER % ("", "dp")}),
    bad("a folder that every rank looks for", {"train.py": MAIN % (TESTED, "")}, "train.py:15"),
    bad(
        "results that every rank writes",
        {"train.py": MAIN % ("", RESULTS + SAVE)},
        ("train.py:19", "train.py:21"),
    ),
    bad(
        "an old folder is moved away and removed",
        {"train.py": MAIN % ("    shutil.move(args.old, args.output)\n    os.remove(args.list)\n", "")},
        ("train.py:14", "train.py:15"),
    ),
    bad(
        "a helper in another file",
        {"files.py": FILES, "train.py": RUN % ""},
        ("files.py:11", "files.py:12"),
    ),
    bad("processes that the script starts", {"train.py": SPAWN % "log.txt"}, "train.py:7"),
    good("the rank is in the name", {"train.py": SPAWN % "log{rank}.txt"}),
    good("and goes through `Path`", {"train.py": PATHED}),
    good("rank 0 alone", {
        "files.py": FILES, "train.py": (RUN % "if accelerator.is_main_process:\n    "),
        "plain.py": MAIN % ("    if dist.get_rank() == 0:\n        os.makedirs(args.output)\n", ""),
    }),
    good("the main process goes first", {
        "files.py": FILES, "train.py": RUN % "with accelerator.main_process_first():\n    "}),
    good("the others wait until rank 0 has made it", {"train.py": MAIN % (
        "    if dist.get_rank() != 0:\n        dist.barrier()\n" + TESTED
        + "    if dist.get_rank() == 0:\n        dist.barrier()\n", "")}),
    good("a folder that may be there", {"train.py": MAIN % ("    os.makedirs(args.output, exist_ok=True)\n", "")}),
    good("the error is caught", {
        "train.py": MAIN % (
            "    try:\n        os.makedirs(args.output)\n    except FileExistsError:\n        print('there')\n", "")}),
    good("a test that knows who writes", {"train.py": MAIN % ("", "    if args.is_main:\n    " + SAVE)}),
    good("a lock", {"train.py": (MAIN % (
        "    with FileLock(args.output + '.lock'):\n        shutil.rmtree(args.output)\n", "")).replace(
        "import torch\n", "import torch\nfrom filelock import FileLock\n", 1)}),
    good("nothing starts other processes", {
        "files.py": FILES, "train.py": "from files import Folder\n\nFolder('out').fresh()\n"}),
    good("one process", {"train.py": MAIN % (TESTED, "")}, world_size=1),
    good("every rank copies the same file", {
        "train.py": MAIN % ("    shutil.copy(args.config, os.path.join(args.output, 'config.yaml'))\n", "")}),
    bad("each rank copies its own file over those of the others", {"train.py": MAIN % (
        "", "    shutil.copy(f'part_{dist.get_rank()}.pt', args.output + '/part.pt')\n")}, "train.py:19"),
)  # fmt: skip
