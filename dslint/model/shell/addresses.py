"""Whether a word of the shell is the address or the name of a machine, by the commands that print it."""

from __future__ import annotations

import re

_QUOTES = re.compile(r"""^(["'])(.*)\1$""", re.DOTALL)
_DEFAULT = re.compile(r"\$\{\w+:?-(.*)\}", re.DOTALL)
_OUTPUT = re.compile(r"\$\((?!\()(.*)\)|`(.*)`", re.DOTALL)
# Their output is addresses or host names, never names of interfaces.
_PRINTS = re.compile(
    r"(?:sudo\s+)?(?:hostname\b|getent\s+(?:a?hosts\w*)\b|dig\s|nslookup\s|scontrol\s+show\s+hostnames?\b"
    r"|curl\s.*(?:ifconfig\.me|checkip|ipify|icanhazip|ident\.me|local-ipv4)|python3?\s+-c\s.*gethostby)",
    re.DOTALL,
)
# Tools whose output has both; what is cut out of it decides.
_LISTS = re.compile(r"(?:\S*/)?(?:ip|ifconfig)\b")
_CUTS = re.compile(
    r"""\binet\b.*(?:cut\s+-d\s*['"]?/|sed\s+['"]?s[|#,/]\\?/|(?:awk|gawk)\s+-F\s*['"\[]*\s*/)"""
    r"""|\bsrc\s*\\K|\binet\s*\\K|\(\?<=\s*(?:src|inet)\s|print\s+\$7\b""",
    re.DOTALL,
)
_FILTER = re.compile(r"\s*(?:awk|gawk|cut|head|tail|tr|xargs|sed|sort|grep|uniq)\b")


def is_address(raw: str) -> bool:
    """Whether a command that is substituted for the whole word prints an address: also one behind ``||``."""
    text = _unquoted(raw.strip())
    default = _DEFAULT.fullmatch(text)
    text = _unquoted(default[1].strip()) if default is not None else text
    output = _OUTPUT.fullmatch(text)
    body = (output[1] or output[2] or "") if output is not None else ""
    if "$(" in body.replace("$((", "") or "`" in body:
        return any(_prints_address(part) for part in body.split("||")[1:] if "$(" not in part and ")" not in part)
    return any(map(_prints_address, body.split("||")))


def has_output(raw: str) -> bool:
    """Whether the output of a command is part of the word."""
    return "$(" in raw or "`" in raw


def _unquoted(text: str) -> str:
    quoted = _QUOTES.match(text)
    return quoted[2] if quoted is not None else text


def _prints_address(pipeline: str) -> bool:
    first, *rest = pipeline.split("|")
    if not all(map(_FILTER.match, rest)):
        return False
    if _PRINTS.match(first.strip()):
        return True
    return _LISTS.match(first.strip()) is not None and _CUTS.search(pipeline) is not None
