"""dslint: a static analyzer for distributed-training code, configs and launch commands.

For programs: :func:`check` judges files, :func:`preflight` the script that calls it; both return a :class:`Report`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslint.api import Finding, Report, check, preflight

__version__ = "0.1.0"
__all__ = ["Finding", "Report", "__version__", "check", "preflight"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load what programs use when they ask for it: the command line must start at once."""
        if name in __all__:
            from dslint import api

            found = globals()[name] = getattr(api, name)
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
