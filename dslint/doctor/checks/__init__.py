"""One check, one file: a docstring (what, why it hurts, how it is known, repair), ``META`` and ``check(machine)``."""
