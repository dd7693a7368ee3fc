"""Which script rules could the bytes of a file concern? The question is asked of every file, so it must cost little.

A marker is a regular expression, and most are alternatives of plain words. ``word in raw`` is ten to twenty times
faster than Python's regular expressions with alternatives, so words are searched for as words, once for all rules. And
a name is searched for among the different names of a text, which are a tenth of its bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from dslint.model.firstlook import names_in
from dslint.rules.registry import all_rules, project_version

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.python.vocabulary import Vocabulary

# Behind a code: a marker is missing, but a run begins in the file or may begin in what it imports, and the rule asks
# about it and all that it imports.
BY_RUN = "^"
# Where a run of several processes begins, or a library calls what a project defines: such a file is interpreted, with
# all that it imports. Other modules are judged under the scripts that reach them.
ENTRY = (
    r"init_process_group|DataParallel|\bDDP\(|\bFSDP\(|fully_shard\(|FullyShardedDataParallel"
    r"|(?:from|import) deepspeed\b|deepspeed\.init|init_distributed|init_dist\(|Accelerator\(|PartialState\(|Fabric\("
    r"|Trainer\(|ddp_timeout|\bspawn\(|Trainer\):|LightningModule|Callback\b|DistributedSampler\("
    r"|dist(?:ributed)?[\s\\]*\.(?:all_|broadcast|barrier|gather|scatter|reduce)|safe_[gs]et_full_"
    r"|distributed as (?!dist\b)"
    r"|HfDeepSpeedConfig|zero3_enabled\("
    r"|DistributedSampler as |notebook_launcher\(|start_processes\(|Trainer as |ProcessGroupKwargs|monitored_barrier"
    r"|cuda\.set_device\(|cuda:\{|CUDA_VISIBLE_DEVICES[\"']?\s*\]?\s*[=:]\s*[^=\s]"
    r"|set_per_process_memory_fraction\(|new_group\(|new_subgroups|RandomSampler\(|batch_sampler ?="
    r"|gather_list|scatter_list|gather_object\(|all_gather\w*\("
    r"|distributed\.checkpoint|distributed import checkpoint|TrainingArguments(?:\(| as )"
    r"|distributed import(?: \([^)]*|[^\n(]*)(?:gather|scatter|reduce|barrier|broadcast|\*)"
    r"|(?:environ|getenv)\W{1,4}(?:get\W{2,3})?(?:LOCAL_)?RANK\b"
    r"|accelerator\.prepare\(|import accelerate as |from accelerate import \*|from accelerate import[^\n]*Accelerator"
)
# A script that people start, whose run begins in something that it imports: what shows that it does.
MAIN = r"(?m:^[ \t]*if __name__\s*==)"
STARTS = (
    r"init_process_group\(|DistributedDataParallel\(|\bDDP\(|deepspeed\.init|FullyShardedDataParallel\(|\bFSDP\("
    r"|fully_shard\(|\bAccelerator\(|\bFabric\(|DistributedSampler\(|Trainer\("
)
# Calls that wait for other ranks, by the names that they have in most libraries.
WAITS = (
    r"\b(?:_?all_?reduce\w*|_?all_gather\w*|all_to_all\w*|reduce_\w+|broadcast\w*|barrier|monitored_barrier|reduce|gather"
    r"|scatter\w*|wait_for_everyone|synchronize\w*|_?\w*gather\w*|save_checkpoint|save_state|full_tensor|new_group"
    r"|pad_across_processes|[gs]et_\w*state_dict|safe_[gs]et_\w+|GatheredParameters|\w*(?:main|local|zero)\w*_first"
    r"|collect_results\w*|block_all|check_trigger|distributed_\w+|evaluation_loop|prediction_(?:loop|step)"
    r"|initialize_model_parallel|load_from_full\w+|\w*optim_state_dict|priority_execution|process_hf_dataset"
    r"|push_to_hub|save_\w*model|save_ckpt|summon_full_params|sync_random_seed)\("
    r"|(?:engine|trainer|accelerator|fabric|strategy)\w*\.\w+\("
)
# Words by which a program tells its ranks apart, and with them questions about each rank's own data.
RANKS = (
    r"(?<![A-Za-z])(?:[A-Za-z_]*_)?(?:rank|RANK|Rank)(?![a-z])|get_rank|is_main|main_process|is_master|process_index"
    r"|process_zero|global_zero|is_chief|rank_zero|PROCID|last_process|should_save"
)
OWN_DATA = rf"{RANKS}|isnan|isinf|isfinite|\.item\(|numel\(|perf_counter|time\(|len\(\w*(?:batch|loader|data)"
# A character that stands for itself, texts of such, and a group without flags.
_CHARACTER = re.compile(r"[A-Za-z0-9_ =,:;/%<>@\"'-]|\\[^A-Za-z0-9]")
_WORD = re.compile(rf"(?:{_CHARACTER.pattern})+")
_GROUP = re.compile(r"\((?:\?:)?([^?].*)\)", re.DOTALL)
# So many bytes of neighbouring files are searched at once: files of a folder resemble each other.
_BLOCK = 200_000
_NAME = re.compile(rb"\w+")


class _Marker(NamedTuple):
    """Words of which one is enough, and what is left of the expression: empty when the words say it all.

    ``hints``: texts of which the rest needs one, if that is known.
    """

    words: tuple[bytes, ...]
    rest: str
    hints: tuple[bytes, ...] = ()


_Table = list[tuple[str, tuple[_Marker, ...]]]


class _Text:
    """The bytes of a file, in which words are searched for; ``seen`` are the words and expressions that were."""

    __slots__ = ("_joined", "names", "raw", "seen")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.names = names_in(raw)
        self._joined = b"\n".join(self.names)
        self.seen: dict[bytes | str, bool] = {}

    def holds(self, word: bytes) -> bool:
        """A plain word stands in the text."""
        known = self.seen.get(word)
        if known is None:
            name = _name_in(word)
            known = name in self._joined and (name == word or word in self.raw)
            self.seen[word] = known
        return known


class _Block(_Text):
    """Several texts: a word that holds a name of theirs may stand in them, any other does not."""

    def __init__(self, texts: Iterable[_Text]) -> None:
        self.raw = b""
        self.names = set().union(*(text.names for text in texts))
        self._joined = b"\n".join(self.names)
        self.seen = {}

    def holds(self, word: bytes) -> bool:
        known = self.seen.get(word)
        if known is None:
            known = self.seen[word] = _name_in(word) in self._joined
        return known


@lru_cache(maxsize=4096)
def _name_in(word: bytes) -> bytes:
    """The longest part of a word that a name could hold; empty for punctuation."""
    return max(_NAME.findall(word), key=len, default=b"")


def begins_run(raw: bytes) -> bool:
    """Whether a script with these bytes is interpreted for all rules that ask about runs."""
    return _stands_in(ENTRY, raw)


def may_begin_run(raw: bytes) -> bool:
    """Whether a run may begin in what a script with these bytes imports: it is one that people start."""
    return _stands_in(MAIN, raw)


def starts(raw: bytes) -> bool:
    """Whether a module with these bytes starts what several ranks do together."""
    return _stands_in(STARTS, raw)


def holds_alone(patterns: Sequence[str], raw: bytes, imports: Callable[[], bool]) -> bool:
    """Whether a module in which no run begins is interpreted for a rule with these patterns (``RuleMeta.alone``).

    ``imports``: something that the module imports may wait for other ranks.
    """
    if not patterns or not all(_stands_in(pattern, raw) for pattern in patterns if pattern != WAITS):
        return False
    return WAITS not in patterns or _stands_in(WAITS, raw) or imports()


def waits(raw: bytes) -> bool:
    """Whether a module with these bytes may call what waits for other ranks."""
    return _stands_in(WAITS, raw)


def _stands_in(pattern: str, raw: bytes) -> bool:
    return re.search(pattern.encode(), raw) is not None


def rules_by_marker(
    raw: bytes, enabled: frozenset[str], own: Vocabulary | None = None, profile: Profile | None = None
) -> tuple[str, ...]:
    """The enabled script rules that the bytes of a file could concern.

    With one of the project's ``own`` names in it these are all of them: no marker knows that name.
    """
    if own is not None and own.stands_in(raw):
        return tuple(code for code, _ in _table(project_version()) if code in enabled)
    return _rules(_Text(raw), _enabled(enabled), _asking(enabled), profile)


def rules_of_all(
    texts: Sequence[bytes], enabled: frozenset[str], own: Vocabulary | None = None, profile: Profile | None = None
) -> Iterator[tuple[str, ...]]:
    """What :func:`rules_by_marker` says about each of many files, at a fraction of the cost.

    A word that no file of a block holds need not be searched for in each, nor a rule that needs one of such words.
    """
    asking = _asking(enabled)
    for raws in _blocks(texts):
        block = [*map(_Text, raws)]
        joined = _Block(block)
        table: _Table = []
        for code, markers in _enabled(enabled):
            look = partial(_may_stand_in, markers, joined)
            if look() if profile is None else profile.charged(code, "markers", look):
                table.append((code, markers))
        missing = {what: False for what, is_there in joined.seen.items() if not is_there}
        for text in block:
            if own is not None and own.stands_in(text.raw):
                yield rules_by_marker(text.raw, enabled, own, profile)
            else:
                text.seen = dict(missing)
                yield _rules(text, table, asking, profile)


def _blocks(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    block: list[bytes] = []
    size = 0
    for raw in texts:
        block.append(raw)
        size += len(raw)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _may_stand_in(markers: tuple[_Marker, ...], joined: _Block) -> bool:
    """One of the joined files may hold all markers that must stand in the file itself, as far as words say it."""
    return all(_has_words(m, joined) is not False for m in markers)


def _rules(text: _Text, table: _Table, asking: Sequence[str], profile: Profile | None) -> tuple[str, ...]:
    found: list[str] = []
    for code, markers in table:
        if profile is None:
            is_there = _look(markers, text)
        else:
            is_there = profile.charged(code, "markers", partial(_look, markers, text))
        if is_there:
            found.append(code)
    if asking and (_found(_split(ENTRY), text) or _found(_split(MAIN), text)):
        found += (code + BY_RUN for code in asking if code not in found)
    return tuple(found)


def _look(markers: tuple[_Marker, ...], text: _Text) -> bool:
    """Return whether all markers are found."""
    return all(_found(marker, text) for marker in markers)


def _found(marker: _Marker, text: _Text) -> bool:
    found = _has_words(marker, text)
    if found is None:
        found = text.seen.get(marker.rest)
    if found is None:
        found = text.seen[marker.rest] = re.search(marker.rest.encode(), text.raw) is not None
    return found


def _has_words(marker: _Marker, text: _Text) -> bool | None:
    """Whether words alone say that the marker is there, or that it is not; else ``None``."""
    for words, answer in ((marker.words, True), (marker.hints, None)):
        if any(map(text.holds, words)):
            return answer
    return None if marker.rest and not marker.hints else False


def _asking(enabled: frozenset[str]) -> list[str]:
    """The enabled rules that ask about runs."""
    return [rule.code for rule in all_rules() if rule.asks_runs and rule.code in enabled]


def _enabled(enabled: frozenset[str]) -> _Table:
    return [row for row in _table(project_version()) if row[0] in enabled]


@lru_cache(maxsize=1)
def _table(_: int) -> tuple[tuple[str, tuple[_Marker, ...]], ...]:
    # Plain words first: they spare most files the expressions.
    # Among those, words that many rules have, for each is searched for once.
    table = [(rule.code, [*map(_split, rule.markers)]) for rule in all_rules() if rule.kind == "script"]
    uses = Counter(word for _, markers in table for marker in markers for word in marker.words + marker.hints)

    def cost(marker: _Marker) -> tuple[bool, float]:
        words = sum(1 / uses[word] for word in marker.words + marker.hints)
        return bool(marker.rest), words

    return tuple((code, tuple(sorted(markers, key=cost))) for code, markers in table)


# The table is made again for each project in the process, the expressions of the rules are the same.
@lru_cache(maxsize=4096)
def _split(pattern: str) -> _Marker:
    if pattern.startswith("(?") and pattern[2:3].isalpha():  # flags for all alternatives
        flags, _, rest = pattern[2:].partition(")")
        hints = _hints(_alternatives(rest)) if flags == "s" else set()
        return _Marker((), pattern, _needed(hints))
    parts = _alternatives(pattern)
    words = {_plain(part) for part in parts if _WORD.fullmatch(part)}
    others = [part for part in parts if not _WORD.fullmatch(part)]
    return _Marker(_needed(words), "|".join(others), _needed(_hints(others)))


def _needed(words: Set[str]) -> tuple[bytes, ...]:
    # ``get_world_size`` says nothing that ``world_size`` does not say.
    needed = sorted(word for word in words if not any(other != word and other in word for other in words))
    return tuple(word.encode() for word in needed)


def _plain(part: str) -> str:
    return re.sub(r"\\(.)", r"\1", part)


def _hints(alternatives: Iterable[str]) -> set[str]:
    """Texts of which each match of one of the alternatives holds one; empty when that is not known."""
    found: set[str] = set()
    for alternative in alternatives:
        hints = _hints_of(alternative)
        if not hints:
            return set()
        found |= hints
    return found


def _hints_of(alternative: str) -> set[str]:
    """The same for one alternative: its longest plain text, or what its groups need."""
    tokens = _tokens(alternative)
    best: set[str] = set()
    text, at = "", 0
    while at < len(tokens):
        end = _end_of_group(tokens, at)
        token, after = "".join(tokens[at:end]), tokens[end] if end < len(tokens) else ""
        at = end
        is_needed = after not in ("?", "*", "{")
        if is_needed and _CHARACTER.fullmatch(token):
            text += _plain(token)
            best = _better(best, {text})
            continue
        text = ""
        if is_needed and (group := _GROUP.fullmatch(token)):
            parts = _alternatives(group[1])
            best = _better(best, _hints(parts))
    return best


def _better(one: set[str], other: set[str]) -> set[str]:
    return max(one, other, key=lambda texts: min(map(len, texts), default=0))


def _end_of_group(tokens: Sequence[str], at: int) -> int:
    """Behind the token at a place, or behind the group that it opens."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end], 0)
        if depth <= 0:
            return end + 1
    return len(tokens)


def _tokens(pattern: str) -> list[str]:
    return re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|.", pattern, re.DOTALL)


def _alternatives(pattern: str) -> list[str]:
    """The alternatives at the top level of an expression."""
    parts = [""]
    depth = 0
    for token in _tokens(pattern):
        if token == "|" and not depth:
            parts.append("")
            continue
        depth += {"(": 1, ")": -1}.get(token, 0)
        parts[-1] += token
    return parts
