"""Settings: ``[tool.dslint]`` in ``pyproject.toml`` or ``dslint.toml``, then the environment, then flags.

>>> make_settings({"select": ["DSL1"]}).enabled("DSL130")
True
"""

from __future__ import annotations

from dslint.settings.errors import SettingsError
from dslint.settings.load import load_settings, make_settings
from dslint.settings.table import Launch, Settings, Table

__all__ = ["Launch", "Settings", "SettingsError", "Table", "load_settings", "make_settings"]
