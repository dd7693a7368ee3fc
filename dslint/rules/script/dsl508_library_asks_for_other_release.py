"""A call asks a library for what it does only beside newer releases of another one, and an older one is pinned.

**What.** transformers 5 takes `bitsandbytes` below 0.46.1 as absent, and a 4-bit `BitsAndBytesConfig` raises; since
4.41 `TrainingArguments` raises beside an `accelerate` below 0.21, later below 0.26 and 1.1; `load_in_4bit` of any
release needs bitsandbytes 0.39. The code says so, and the metadata do not: pip installs the pair.

**Why it hurts.** `ImportError: ... requires accelerate>=1.1.0` on every rank, when the arguments are made or the model
is loaded, after the queue and the download. The message tells people to install what they have.

**Fix.** Pin the other library at the release that the message names, or an older release of the library that asks.

**When it stays quiet.** No file states both; a release of one of the two is not known; the place asks under a condition
that the call does not show; the release that asks was not read. Two pins are an error; where a fresh install chooses
one of them, it is a warning.

**Evidence.** What the sources of each release compare (`schemas/minimums.json`, `scripts/surface/minimums.py`); pairs
that were installed and called are in `tests/fixtures/pairs_installed.toml`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.standing.presence import read_as
from dslint.model.versions.environment import environment
from dslint.model.versions.known import distribution_of
from dslint.model.versions.minimums import Ask, asks_of, available_from
from dslint.model.versions.ranges import contains
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import MARKERS, LibraryUses
from dslint.rules.names.gonenames import CAUGHT
from dslint.rules.names.librarycalls import LibraryCall
from dslint.rules.names.versionpairs import are_beside, stated_places

META = RuleMeta(
    code="DSL508",
    name="library-asks-for-other-release",
    kind="script",
    severity=Severity.ERROR,
    summary="a call that a library refuses beside the release of another library that is pinned",
    markers=MARKERS,
    references=(
        "https://github.com/huggingface/transformers/issues/24147",
        "https://arxiv.org/abs/2512.20345",
    ),
    depends_on_run=True,
    no_experiment="the call raises before any rank meets another; the pairs that were called stand in the tests",
)

# Where the functions of a library ask that a call reaches: the call, an argument of it, and the end of the place.
_REACHED = (
    ("transformers", "TrainingArguments", "", "TrainingArguments._setup_devices"),
    ("transformers", "TrainingArguments", "deepspeed", "HfDeepSpeedConfig.__init__"),
    ("transformers", "Seq2SeqTrainingArguments", "", "TrainingArguments._setup_devices"),
    ("transformers", "Seq2SeqTrainingArguments", "deepspeed", "HfDeepSpeedConfig.__init__"),
    ("transformers", "BitsAndBytesConfig", "load_in_4bit", "Bnb4BitHfQuantizer.validate_environment"),
    ("transformers", "BitsAndBytesConfig", "load_in_8bit", "Bnb8BitHfQuantizer.validate_environment"),
    ("transformers", "from_pretrained", "load_in_4bit", "Bnb4BitHfQuantizer.validate_environment"),
    ("transformers", "from_pretrained", "load_in_8bit", "Bnb8BitHfQuantizer.validate_environment"),
)
_MAKES = ("", ".__init__", ".__post_init__", ".post_init")


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each call that asks for what is not installed, once for each pair of libraries."""
    found = environment(view.context.allowed)
    told = set()
    for call in view.calls:
        for releases, severity in ((found.pins, None), (found.fresh, Severity.WARNING)):
            release = releases.get(distribution_of(call.library))
            if release is None or call.caught & CAUGHT["name"]:
                continue
            for ask in _asks(view, call, release):
                other = distribution_of(ask.other)
                mine = releases.get(other)
                pair = (call.library, other)
                if mine is None or pair in told or other in found.implied or contains(ask.specifier, mine):
                    continue
                if not view.runs(call.guards, call.library, release) or not are_beside(view, call.library, other):
                    continue
                told.add(pair)
                yield _finding(view, call, ask, release, mine, severity)


def _asks(view: LibraryUses, call: LibraryCall, release: str) -> Iterator[Ask]:
    """What a call asks for in one release of its library."""
    surface = view.surface(call.library)
    if surface is None:
        return
    last = call.dotted.rpartition(".")[2]
    ends = [end for library, name, argument, end in _REACHED
            if library == call.library and name == last and (not argument or _is_set(call, argument))]  # fmt: skip
    home = surface.canonical(call.dotted, read_as(surface, release)) or call.dotted
    made = {f"{home}{end}" for end in _MAKES}
    for ask in asks_of(call.library, release):
        is_called = ask.place in made and (ask.kind == "asks" or _is_asked_for(call, ask))
        is_reached = any(ask.place.endswith(f".{end}") for end in ends)
        if is_called or (is_reached and _is_sure(call.library, release, ask)):
            yield ask


def _is_asked_for(call: LibraryCall, ask: Ask) -> bool:
    """The place asks where an argument is set, and the call sets it."""
    condition, _, argument = ask.kind.partition(" if ")
    return condition == "asks" and bool(argument) and _is_set(call, argument)


def _is_sure(library: str, release: str, ask: Ask) -> bool:
    """Under a condition of its own a place counts where it asks whether the other library is there at all."""
    is_all = ask.kind == "may ask" and ask.specifier == available_from(library, release, ask.other)
    return ask.kind == "asks" or is_all


def _is_set(call: LibraryCall, argument: str) -> bool:
    """An argument is given, and as something else than off."""
    value = next((word.value for word in call.node.keywords if word.arg == argument), None)
    return value is not None and not (isinstance(value, ast.Constant) and not value.value)


def _finding(
    view: LibraryUses, call: LibraryCall, ask: Ask, release: str, mine: str, severity: Severity | None
) -> Finding:
    other = distribution_of(ask.other)
    takes = "pinned" if severity is None else "what a fresh install takes"
    return view.finding(
        META,
        call.node,
        f"`{call.short}` of {call.library} {release} needs `{other}{ask.specifier}`, {mine} is {takes}: `ImportError`",
        hint=f"Pin `{other}{ask.specifier}`; {ask.place} asks for it, and the metadata do not",
        related=stated_places(view, other, call.library),
        severity=severity,
        facts={"library": call.library, "release": release, "other": other},
    )


_ARGUMENTS = "from transformers import TrainingArguments\n\nargs = TrainingArguments(output_dir='out')\n"
_QUANTIZED = """\
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

four_bits = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("m", quantization_config=four_bits)
"""

EXAMPLES = (
    bad(
        "Arguments beside an accelerate that is too old",
        {"requirements.txt": "transformers==4.52.4\naccelerate==0.20.3\n", "train.py": _ARGUMENTS},
        "train.py:3 error",
    ),
    bad(
        "A quantized model beside an old bitsandbytes",
        {
            "requirements.txt": "transformers==5.10.2\nbitsandbytes==0.45.5\naccelerate==1.15.0\n",
            "train.py": _QUANTIZED,
        },
        "train.py:3 error",
    ),
    bad(
        "A fresh install takes the newest transformers",
        {"requirements.txt": "transformers>=4.57\nbitsandbytes==0.45.5\naccelerate\n", "train.py": _QUANTIZED},
        "train.py:3 warning",
    ),
    bad(
        "Four bits beside a bitsandbytes that has eight",
        {"requirements.txt": "transformers==4.34.1\nbitsandbytes==0.38.1\n", "train.py": _QUANTIZED},
        "train.py:3 error",
    ),
    good(
        "Eight bits beside the same",
        {
            "requirements.txt": "transformers==4.34.1\nbitsandbytes==0.38.1\n",
            "train.py": _QUANTIZED.replace("4bit", "8bit"),
        },
    ),
    good(
        "Releases that the code takes",
        {"requirements.txt": "transformers==4.52.4\naccelerate==0.26.1\n", "train.py": _ARGUMENTS},
    ),
    good(
        "Eight bits are not asked for",
        {
            "requirements.txt": "transformers==5.10.2\nbitsandbytes==0.45.5\naccelerate==1.15.0\n",
            "train.py": _QUANTIZED.replace("=True", "=False"),
        },
    ),
    good(
        "Two files for two environments",
        {"requirements.txt": "transformers==4.52.4\n", "environment.yml": "dependencies:\n  - accelerate==0.20.3\n",
         "train.py": _ARGUMENTS},
    ),
)  # fmt: skip
