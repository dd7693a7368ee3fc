"""The scanner under :mod:`dslint.parse.jsondoc`: blanks, comments, strings and bare words of JSON, JSONC and Hjson.

DeepSpeed reads its config with the ``hjson`` package (``DeepSpeedConfig.__init__`` in deepspeed/runtime/config.py),
so what hjson accepts is no mistake here. Offsets are code points; nothing raises on any text.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]

from dslint.core.source import Span
from dslint.parse.data import ParseProblem

# A text with more mistakes than this is something else than JSON; reading on helps nobody.
MAX_PROBLEMS = 50

_BLANKS = re.compile(r"[ \t\r\n]*")
_LINE_END = re.compile(r"[\r\n]|\Z")
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_PYTHON_WORDS = {"True": ("true", True), "False": ("false", False), "None": ("null", None)}
# Where a number or word may end; a bare Hjson text runs on to the end of its line instead.
_WORD_END = re.compile(r"[,}\]\r\n#]|/[/*]|\Z")
_NEXT_KEY = re.compile(r"""[ \t]*(?=(?:"[^"\n]*"|'[^'\n]*')[ \t]*:)""")
# ``{{ x }}``, ``{% x %}``, ``${x}``, alone or inside a word: a template that some program fills in.
TEMPLATE = "a template placeholder is no JSON value"
PLACEHOLDER = re.compile(r"(?:[\w.\-]*(?:\{\{.*?\}\}|\{%.*?%\}|\$\{[^}\n]*\}))+[\w.\-]*")


class Scanner:
    """Reads the tokens of one text and collects what is unusual about them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.comments: list[Span] = []
        self.problems: list[ParseProblem] = []
        self.relaxed: list[ParseProblem] = []

    def problem(self, start: int, end: int, message: str) -> None:
        """Record a place that no reader of the file accepts."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(ParseProblem(Span(start, max(start, min(end, len(self.text)))), message))

    def relax(self, start: int, end: int, message: str) -> None:
        """Record a place that hjson accepts and plain ``json.load`` does not."""
        self.relaxed.append(ParseProblem(Span(start, end), message))

    def skip(self, at: int) -> int:
        """The offset of the next token."""
        text = self.text
        while True:
            at = _end(_BLANKS, text, at)
            char = text[at : at + 1]
            pair = text[at : at + 2]
            if char == "#" or pair == "//":
                end = self.line_end(at)
            elif pair == "/*":
                end = text.find("*/", at + 2) + 2
                if end < 2:
                    end = len(text)
                    self.problem(at, at + 2, "the comment opened by `/*` is never closed")
            elif char and (char.isspace() or not char.isprintable()):
                end = at + 1
                while text[end : end + 1] == char:
                    end += 1
                if char != "\0":  # reported once for the whole file
                    self.problem(at, end, f"the character U+{ord(char):04X} is no white space in JSON")
                at = end
                continue
            else:
                return at
            self.comments.append(Span(at, end))
            at = end

    def line_end(self, at: int) -> int:
        """The offset of the end of the line, line break excluded."""
        return _start(_LINE_END, self.text, at)

    def string(self, at: int) -> tuple[str, int]:
        """The string whose quote stands at ``at``, and the offset after it."""
        text = self.text
        if text[at] == '"':
            try:
                value, end = scanstring(text, at + 1, True)
                return str(value), int(end)
            except JSONDecodeError:
                pass
        elif text.startswith("'''", at):
            return self._multiline(at)
        else:
            self.relax(at, at + 1, "plain JSON needs double quotes")
        return self._string(at)

    def _string(self, at: int) -> tuple[str, int]:
        """The slow road: single quotes, or something wrong inside."""
        text, quote = self.text, self.text[at]
        parts: list[str] = []
        index = at + 1
        while True:
            char = text[index : index + 1]
            if char == quote:
                return "".join(parts), index + 1
            if char in ("", "\n", "\r"):
                # A missing quote takes the comma of the line with it; give it back to the reader.
                end = at + 1 + len(text[at + 1 : index].rstrip(" \t"))
                end -= text[at + 1 : end].endswith(",")
                self.problem(at, end, "the string is never closed on its line")
                return "".join(parts).rstrip(" \t").removesuffix(","), end
            if char == "\\":
                piece, index = self._escape(index)
                parts.append(piece)
                continue
            if char < " ":
                self.problem(index, index + 1, f"a control character (U+{ord(char):04X}) in a string must be escaped")
            parts.append(char)
            index += 1

    def _escape(self, at: int) -> tuple[str, int]:
        text = self.text
        char = text[at + 1 : at + 2]
        if char in _ESCAPES and char:
            return _ESCAPES[char], at + 2
        if char == "u" and _HEX4.match(text, at + 2):
            code = int(text[at + 2 : at + 6], 16)
            if 0xD800 <= code < 0xDC00 and text.startswith("\\u", at + 6) and _HEX4.match(text, at + 8):
                low = int(text[at + 8 : at + 12], 16)
                if 0xDC00 <= low < 0xE000:
                    return chr(0x10000 + ((code - 0xD800) << 10 | low - 0xDC00)), at + 12
            return chr(code), at + 6
        self.problem(at, at + 2, "no such escape in a JSON string: a backslash itself is written `\\\\`")
        return "\\", at + 1

    def _multiline(self, at: int) -> tuple[str, int]:
        """Hjson's ``'''`` text: indented by its opening quotes, without its last line end."""
        text = self.text
        self.relax(at, at + 3, "plain JSON has no ''' strings")
        end = text.find("'''", at + 3)
        if end < 0:
            self.problem(at, at + 3, "the text opened by ''' is never closed")
            return text[at + 3 :], len(text)
        indent = at - (text.rfind("\n", 0, at) + 1)
        while text[end : end + 4] == "''''":
            end += 1
        first, *lines = text[at + 3 : end].replace("\r", "").split("\n")
        cut = [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines]
        body = "\n".join(([first.lstrip(" \t")] if first.strip(" \t") or not lines else []) + cut)
        return body.removesuffix("\n"), end + 3

    def word(self, at: int) -> tuple[object, int]:
        """A number, ``true``, ``false``, ``null``, or a bare text; ``at`` is no quote and no punctuation."""
        text = self.text
        placeholder = PLACEHOLDER.match(text, at)
        if placeholder:
            self.problem(at, placeholder.end(), TEMPLATE)
            return placeholder[0], placeholder.end()
        end = _start(_WORD_END, text, at)
        word = text[at:end].rstrip()
        if ";" in word and (word.partition(";")[0] in _WORDS or _NUMBER.fullmatch(word.partition(";")[0])):
            word = word.partition(";")[0]
        if word in _WORDS:
            return _WORDS[word], at + len(word)
        match = _NUMBER.fullmatch(word)
        if match:
            return self._number(word, at, bool(match[1] or match[2])), at + len(word)
        cut = self._missing_comma(word, at)
        if cut:
            return Scanner(text[at:cut]).word(0)[0], cut
        return self._bare(at, end)

    def _missing_comma(self, word: str, at: int) -> int:
        """Where the value ends when another value or key follows it without a comma, else 0."""
        parts = word.split()
        if len(parts) > 1 and all(part in _WORDS or _NUMBER.fullmatch(part) for part in parts):
            return at + len(parts[0])
        following = _NEXT_KEY.search(self.text, at + 1, min(self.line_end(at), at + len(word) + 200))
        return following.start() if following and following.start() <= at + len(word) else 0

    def _number(self, word: str, at: int, is_float: bool) -> int | float:
        if is_float:
            return float(word)
        try:
            return int(word)
        except ValueError:  # CPython reads no int of more than 4300 digits
            self.problem(at, at + len(word), "the number has too many digits")
            return float(word)

    def _bare(self, at: int, end: int) -> tuple[object, int]:
        """Text without quotes. Hjson takes all of the line, commas and brackets included, which nobody means."""
        text = self.text
        line = text[at : self.line_end(at)].rstrip()
        if not any(stop in line for stop in ",}]"):
            self.relax(at, at + len(line), "plain JSON needs quotes around text")
            return line, at + len(line)
        word = text[at:end].rstrip()
        after = at + max(1, len(word))
        if word in _PYTHON_WORDS:
            right, value = _PYTHON_WORDS[word]
            self.problem(at, after, f"`{word}` is Python: JSON writes `{right}`")
            return value, after
        number = _other_number(word)
        if number is not None:
            self.problem(at, after, f"`{word}` is not how JSON writes a number")
            return number, after
        self.problem(at, after, f"the text `{word[:40]}` needs quotes")
        return word, after


def _other_number(word: str) -> int | float | None:
    """What the author means by ``.5``, ``+1``, ``0x10``, ``007`` or ``1_000``."""
    try:
        return int(word, 0)
    except ValueError:
        pass
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        return None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _start(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.search(text, at)
    return match.start() if match else len(text)
