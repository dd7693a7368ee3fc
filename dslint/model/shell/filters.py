"""What programs print that work on a text, worked out from it and their arguments: ``cut``, ``tr``, ``sed`` ...

Each takes its arguments and its standard input and returns what it prints; ``None`` when that takes more than is done
here (an option that is not listed, a text whose reading depends on the locale).
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MOST = 1_000_000
_SETS = {"[:upper:]": "A-Z", "[:lower:]": "a-z", "[:digit:]": "0-9", "[:space:]": " \t\n\r\f\v"}
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def _characters(text: str) -> str | None:
    """The characters of a set of ``tr``."""
    for name, members in _SETS.items():
        text = text.replace(name, members)
    if "[:" in text or "[=" in text or not text.isascii() or re.search(r"\[.\*", text):
        return None
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            if text[at + 1 : at + 2] not in _ESCAPES:
                return None
            char, at = _ESCAPES[text[at + 1]], at + 1
        at += 1
        if text[at : at + 1] == "-" and at + 1 < len(text):
            end = text[at + 1]
            if end == "\\" or end < char:
                return None
            out += map(chr, range(ord(char), ord(end) + 1))
            at += 2
        else:
            out.append(char)
    return "".join(out)


def _tr(arguments: list[str], given: str) -> str | None:
    option = arguments[0] if arguments and re.fullmatch(r"-[ds]", arguments[0]) else ""
    sets = [_characters(a) for a in (arguments[1:] if option else arguments)]
    if not given.isascii() or any(s is None or s == "" for s in sets):
        return None
    known = [s for s in sets if s]
    if option == "-d" and len(known) == 1:
        return "".join(c for c in given if c not in known[0])
    if option == "-s" and len(known) == 1:
        return re.sub(f"([{re.escape(known[0])}])\\1+", r"\1", given)
    if option or len(known) != 2:
        return None
    old, new = known[0], known[1].ljust(len(known[0]), known[1][-1])[: len(known[0])]
    # Of a character that is named twice the last counts.
    table = dict(zip(old, new, strict=True))
    return "".join(table.get(c, c) for c in given)


_CUT = re.compile(
    r"(?:-d\0?(?P<d>[^\0])\0)?-(?P<kind>[fc])\0?(?P<list>[\d,-]+)(?:\0-d\0?(?P<d2>[^\0]))?",
)


def _cut(arguments: list[str], given: str) -> str | None:
    """``-dX -fN``, ``-cN-M``."""
    match = _CUT.fullmatch("\0".join(arguments))
    if match is None or (match["kind"] == "c" and not given.isascii()):
        return None
    chosen = _ranges(match["list"])
    if chosen is None:
        return None
    delimiter = match["d"] or match["d2"] or "\t"
    lines = []
    for line in _lines(given):
        parts = line.split(delimiter) if match["kind"] == "f" else list(line)
        if match["kind"] == "f" and len(parts) == 1:
            lines.append(line)
            continue
        kept = [p for n, p in enumerate(parts, 1) if any(a <= n <= b for a, b in chosen)]
        lines.append((delimiter if match["kind"] == "f" else "").join(kept))
    return _joined(lines)


def _ranges(text: str) -> list[tuple[int, int]] | None:
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d*)(-?)(\d*)", part)
        if match is None or part in ("", "-") or (not match[2] and match[3]):
            return None
        first = int(match[1] or 1)
        last = int(match[3]) if match[3] else first if not match[2] else _MOST
        if not 0 < first <= last:
            return None
        found.append((first, last))
    return found


def _lines(given: str) -> list[str]:
    return given.removesuffix("\n").split("\n") if given else []


def _joined(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _head(arguments: list[str], given: str) -> str | None:
    count = _count(arguments)
    return None if count is None else _joined(_lines(given)[:count])


def _tail(arguments: list[str], given: str) -> str | None:
    count = _count(arguments)
    return None if not count else _joined(_lines(given)[-count:])


def _count(arguments: list[str]) -> int | None:
    match = re.fullmatch(r"-(?:n\0?)?(\d{1,6})", "\0".join(arguments))
    return int(match[1]) if match else 10 if not arguments else None


def _wc(arguments: list[str], given: str) -> str | None:
    if len(arguments) != 1:
        return None
    if arguments[0] == "-l":
        return f"{given.count(chr(10))}\n"
    if not given.isascii():
        return None
    return {"-w": f"{len(given.split())}\n", "-c": f"{len(given)}\n"}.get(arguments[0])


_SED_ATOM = re.compile(r"[\w/,:=@ _%#~\"'!-]|\\[./*$\[\]^-]|\.|\[\^?[\w/,:. -]+\]")


def _sed(arguments: list[str], given: str) -> str | None:
    """One ``s/old/new/`` with an expression that every reader reads alike."""
    if arguments[:1] in (["-e"], ["-E"], ["-r"]):
        arguments = arguments[1:] if arguments[0] == "-e" else []
    if len(arguments) != 1 or not given.isascii() or len(arguments[0]) < 4 or arguments[0][0] != "s":
        return None
    mark = arguments[0][1]
    parts = re.split(rf"(?<!\\){re.escape(mark)}", arguments[0])
    if len(parts) != 4 or parts[3] not in ("", "g") or not parts[1] or re.search(r"[\\&\n]", parts[2]):
        return None
    regex = _basic_regex(parts[1].replace(f"\\{mark}", mark) if mark not in ".*[]^$" else "")
    if regex is None or regex.fullmatch(""):
        return None
    count = 0 if parts[3] else 1
    return _joined([regex.sub(lambda _: parts[2], line, count=count) for line in _lines(given)])


def _basic_regex(text: str) -> re.Pattern[str] | None:
    out: list[str] = []
    at = 0
    if text.startswith("^"):
        out.append("^")
        at = 1
    while at < len(text):
        if text[at] == "$" and at == len(text) - 1:
            out.append(r"\Z")
            break
        atom = _SED_ATOM.match(text, at)
        if atom is None:
            return None
        piece = atom[0]
        at = atom.end()
        out.append(piece if piece[0] in "\\[." else re.escape(piece))
        if text[at : at + 1] == "*":
            out.append("*")
            at += 1
    return re.compile("".join(out)) if out else None


_AWK = re.compile(
    r"(?:-F\0?(?P<f>[^\0\\ *+?.|^$()\[{])\0)?\s*\{\s*print\s+(?P<what>NF|\$NF|\$[0-9])\s*;?\s*\}\s*",
)


def _awk(arguments: list[str], given: str) -> str | None:
    """``-F, '{print NF}'``, ``'{print $2}'``."""
    match = _AWK.fullmatch("\0".join(arguments))
    if match is None or given is None:
        return None
    lines = []
    for line in _lines(given):
        parts = (line.split(match["f"]) if line else []) if match["f"] else re.split(r"[ \t]+", line.strip(" \t"))
        parts = [] if parts == [""] else parts
        what = match["what"]
        if what == "NF":
            lines.append(str(len(parts)))
            continue
        number = len(parts) if what == "$NF" else int(what[1:])
        lines.append(line if number == 0 else parts[number - 1] if number <= len(parts) else "")
    return _joined(lines)


def _grep(arguments: list[str], given: str) -> str | None:
    """``-o X``: one line for each place at which a plain text stands."""
    if len(arguments) != 2 or arguments[0] != "-o" or not re.fullmatch(r"[\w,:;/=@-]+", arguments[1]):
        return None
    count = sum(line.count(arguments[1]) for line in _lines(given))
    return None if arguments[1].startswith("-") else f"{arguments[1]}\n" * count


def _xargs(arguments: list[str], given: str) -> str | None:
    """Alone it takes the blanks away."""
    if arguments not in ([], ["echo"]) or re.search(r"[\"'\\]", given):
        return None
    return " ".join(given.split()) + "\n"


FILTERS: dict[str, Callable[[list[str], str], str | None]] = {
    "awk": _awk,
    "cut": _cut,
    "grep": _grep,
    "head": _head,
    "sed": _sed,
    "tail": _tail,
    "tr": _tr,
    "wc": _wc,
    "xargs": _xargs,
}
