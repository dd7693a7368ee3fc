"""What the adapters share: option tables, flags with values, and counts as facts with labelled origins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dslint.core.fact import Fact, absent, known, product, unknown
from dslint.core.source import Location, Region, Span
from dslint.model.launch.command import Flag, Word, canonical

# ``NAME=value`` as one word of a command.
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a launcher that stand before the script.

    ``values`` take a value, ``switches`` do not; long ones are spelled with ``_``. ``abbreviates``: a unique
    prefix is as good as the name (argparse). ``guesses``: an option that the table does not list may have a value,
    because launchers gain options with every release.
    """

    values: frozenset[str]
    switches: frozenset[str]
    abbreviates: bool = True
    guesses: bool = True

    def resolve(self, name: str) -> str | None:
        """The full name of an option as typed, ``None`` when the launcher has no such option."""
        wanted = canonical(name)
        if wanted in self.values or wanted in self.switches:
            return wanted
        if not self.abbreviates or not wanted.startswith("--"):
            return None
        fits = [o for o in self.values | self.switches if o.startswith(wanted)]
        return fits[0] if len(fits) == 1 else None


def options(values: str, switches: str = "", abbreviates: bool = True, guesses: bool = True) -> Options:
    """A table from names separated by blanks."""
    return Options(frozenset(values.split()), frozenset(switches.split()), abbreviates, guesses)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A launcher's own options and where its operands begin; ``open`` when an unknown word may hold more.

    ``dashed``: the operands stand behind ``--``.
    """

    flags: tuple[Flag, ...]
    rest: tuple[Word, ...]
    open: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """How many processes a command starts."""

    nodes: Fact[int] = field(default_factory=absent)
    per_node: Fact[int] = field(default_factory=absent)
    total: Fact[int] = field(default_factory=absent)


def parse_options(words: Sequence[Word], table: Options, stops: Collection[str] = ()) -> Parsed:
    """Split the words after the launcher's name into its options and the rest, which begins at the first operand.

    ``stops`` are options at which it begins, too.
    """
    flags: list[Flag] = []
    is_open = dashed = False
    at = 0
    while at < len(words):
        word = words[at]
        name = flag_name(word) or _short_name(word, table) or _digits(word, table)
        if name is None:
            if not word.spreads:
                break
            is_open = True
            at += 1
            continue
        if name in stops:
            break
        if word.text == "--":
            dashed = True
            at += 1
            break
        full = table.resolve(name) or _bundled(name, table)
        value = glued_value(word, name)
        if full is None and value is None and not name.startswith("--") and name[:2] in table.values:
            full, value = name[:2], _tail(word, 2)
        elif value is None and full is not None and name != word.text and word.text is not None and len(name) == 2:
            value = _tail(word, 2)
        at += 1
        if value is None and at < len(words) and _takes_next(full, table, words[at]):
            value = words[at]
            at += 1
        flags.append(Flag(full or name, value, word.location))
    return Parsed(tuple(flags), tuple(words[at:]), is_open, dashed)


def _short_name(word: Word, table: Options) -> str | None:
    """``-H`` of ``-H/job/hostfile``: the value stands glued to a short option."""
    name = (word.text or "")[:2]
    return name if len(word.text or "") > 2 and name != "--" and name in table.values else None


def _bundled(name: str, table: Options) -> str | None:
    """``-w`` of ``-bw HOSTS``: only the last of several letters takes a value. For programs that read like getopt."""
    letters = name[1:]
    is_bundle = not (table.guesses or table.abbreviates) and len(letters) > 1 and letters.isalpha()
    if not is_bundle or any(f"-{letter}" in table.values for letter in letters[:-1]):
        return None
    return f"-{letters[-1]}" if f"-{letters[-1]}" in table.values else None


def _digits(word: Word, table: Options) -> str | None:
    """``-0`` of xargs, ``-10`` of nice."""
    text = word.text or ""
    is_getopt = not (table.guesses or table.abbreviates)
    return text if is_getopt and text[:1] == "-" and text[1:].isdigit() and text.isascii() else None


def _takes_next(full: str | None, table: Options, following: Word) -> bool:
    if full is not None:
        # Behind an option whose value has become nothing (``--node_rank $EMPTY``) stands the next one.
        name = flag_name(following)
        return full in table.values and (name is None or table.resolve(name) is None)
    # An option of a version that the table does not know: a script or another option is no value.
    return table.guesses and flag_name(following) is None and not (following.text or "").endswith(".py")


def script_flags(words: Sequence[Word]) -> tuple[Flag, ...]:
    """The options among the arguments of a script. Only the first value of ``--names a b`` is kept."""
    flags: list[Flag] = []
    for index, word in enumerate(words):
        name = flag_name(word)
        if name is None or word.text == "--":
            continue
        value = glued_value(word, name)
        if value is None and index + 1 < len(words):
            following = words[index + 1]
            if flag_name(following) is None and not following.spreads:
                value = following
        flags.append(Flag(name, value, word.location))
    return tuple(flags)


def flag_name(word: Word) -> str | None:
    """``--lr`` of ``--lr``, ``--lr=1`` or ``--lr=$LR``; ``None`` for a word that is no option."""
    text = word.text if word.text is not None else word.raw.lstrip("\"'")
    return _option(text) if text.startswith("-") else None


# Every command is asked for its options several times, and all commands have the same ones.
@lru_cache(maxsize=10_000)
def _option(text: str) -> str | None:
    if text == "-":
        return None
    name = text.partition("=")[0]
    body = name.lstrip("-")
    if text == "--":
        return text
    if not body[:1].isalpha() or not body.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return None
    return name


def glued_value(word: Word, name: str) -> Word | None:
    """The value of ``--name=value`` as a word at its own place."""
    return _tail(word, len(name) + 1) if "=" in (word.text if word.text is not None else word.raw) else None


def _tail(word: Word, skip: int) -> Word:
    text = None if word.text is None else word.text[skip:]
    if word.raw[:1] in "\"'$" or (word.text is not None and not word.raw.startswith(word.text[:skip])):
        return Word(text, word.raw, word.location, word.origins, tail=word.tail)
    old = word.location
    region = Region(
        old.region.line, old.region.column + skip, old.region.end_line, old.region.end_column, old.region.cell
    )
    span = Span(old.span.start + skip, old.span.end)
    return Word(text, word.raw[skip:], Location(old.path, span, region, old.label), word.origins, tail=word.tail)


def text_fact(flag: Flag | None) -> Fact[str]:
    """What an option says: absent without the option, unknown without a readable value."""
    if flag is None:
        return absent()
    if flag.value is None or flag.value.text is None:
        return unknown(f"the value of `{flag.name}` is not known", flag.location)
    place = flag.location.labelled(f"{flag.name} {flag.value.text}")
    return known(flag.value.text, place, *flag.value.origins)


def last(flags: Iterable[Flag], *names: str) -> Flag | None:
    """The last option with one of these names."""
    found = None
    for flag in flags:
        if canonical(flag.name) in names:
            found = flag
    return found


def count(fact: Fact[str]) -> Fact[int]:
    """A number of nodes or processes; ``2:4`` or ``auto`` is unknown, ``2:2`` and ``2-2`` are 2."""
    if not fact.is_known:
        return Fact(fact.state, None, fact.origins, fact.reason)
    text = fact.get().strip()
    low, _, high = text.replace(":", "-").partition("-")
    if low.isascii() and low.isdigit() and int(low) > 0 and high in ("", low):
        return known(int(low), *fact.origins)
    return unknown(f"`{text}` is not one number", *fact.origins)


def flag_count(flags: Iterable[Flag], *names: str) -> Fact[int]:
    """A count that an option states."""
    return count(text_fact(last(flags, *names)))


def env_text(env: Mapping[str, Fact[str]], name: str) -> Fact[str]:
    """A variable with a label that names it; absent when the file does not set it."""
    fact: Fact[str] = env.get(name) or env.get("") or absent()
    if not fact.is_known or not fact.origins:
        return fact
    first, *others = fact.origins
    return known(fact.get(), first if first.label else first.labelled(f"{name}={fact.get()}"), *others)


def env_count(env: Mapping[str, Fact[str]], name: str) -> Fact[int]:
    """A count that a variable states."""
    return count(env_text(env, name))


def one(place: Location, why: str) -> Fact[int]:
    """The default of a launcher, with the launcher's name as its place."""
    return known(1, place.labelled(why))


def world(nodes: Fact[int], per_node: Fact[int]) -> World:
    """The usual case: every node starts the same number."""
    return World(nodes, per_node, product(nodes, per_node))


def divided(total: Fact[int], nodes: Fact[int]) -> Fact[int]:
    """Processes per node from the total, when it comes out even."""
    if not total.is_known or not nodes.is_known:
        return total if not total.is_known else nodes
    if total.get() % nodes.get():
        return unknown("the processes do not spread evenly over the nodes", *total.origins, *nodes.origins)
    return known(total.get() // nodes.get(), *total.origins, *nodes.origins)


def closed(fact: Fact[int], is_open: bool) -> Fact[int]:
    """An absent count is unknown when words of the launcher could not be read."""
    return unknown("some words of the launcher are not known") if fact.is_absent and is_open else fact
