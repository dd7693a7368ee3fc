"""``dslint server``: the language server on standard input and output."""

from __future__ import annotations

import logging
import os
import sys

from dslint import __version__
from dslint.core.commandline import Parser, say

DONE, LOST, USAGE = 0, 1, 2
_EPILOG = """\
Editors start this command; docs/editor.md has working configuration for Neovim, VS Code, Helix and Emacs.
It needs pygls: pip install 'deepspeed-lint[server]'.
"""


def server_parser() -> Parser:
    """The parser of ``dslint server``."""
    parser = Parser(
        prog="dslint server",
        description="Speak the language server protocol (LSP) on standard input and output.",
        epilog=_EPILOG,
    )
    parser.add_argument("--stdio", action="store_true", help="what is done anyway; some editors pass it")
    parser.add_argument("--clientProcessId", type=int, metavar="PID", help="what VS Code passes; not used")
    parser.add_argument("--check", action="store_true", help="say whether the server can run here, and end")
    parser.add_argument("--log", metavar="FILE", help="write what the server does and the errors of it to a file")
    return parser


def main(arguments: list[str]) -> int:
    """Serve until the editor says goodbye or goes away; returns the exit code."""
    options = server_parser().parse_args(arguments)
    try:
        import pygls  # noqa: F401
    except ImportError:
        say("the server needs pygls: pip install 'deepspeed-lint[server]'")
        return USAGE
    if options.check:
        sys.stdout.write(f"dslint {__version__} can serve\n")
        return DONE
    logging.basicConfig(
        handlers=[logging.FileHandler(options.log) if options.log else logging.NullHandler()],
        level=logging.INFO,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
    )
    from dslint.server.serving import serve

    is_said = serve()
    logging.shutdown()
    # A look may be under way in another thread, and the reader of the client may wait for ever: nobody wants either.
    os._exit(DONE if is_said else LOST)
