"""Run as a file by ``script.py``: reads a request from standard input and writes the answer to standard output."""

import os
import sys


def _find_dslint() -> None:
    """Put the folder of this dslint before other packages, and no folder before the standard library."""
    del sys.path[0]  # the folder of this file
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    packages = (at for at, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages")))
    sys.path.insert(next(packages, len(sys.path)), folder)


def main() -> None:
    """Answer one request."""
    import pickle

    from dslint.runner.watch import judged

    request, seconds = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(judged(request, seconds)))


if __name__ == "__main__":
    _find_dslint()
    main()
