"""Decorators after which a function takes what it took before."""

from __future__ import annotations

# Decorators of libraries after which a function takes what it took before.
KEEPS = frozenset({
    *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "compile", "script", "export"),
    *("ignore", "unused", "disable", "wraps", "lru_cache", "cache", "contextmanager", "asynccontextmanager"),
    *("staticmethod", "classmethod", "abstractmethod", "override", "final", "record", "rank_zero_only"),
    *("rank_zero_experiment", "on_main_process", "on_local_main_process", "on_process", "on_last_process"),
    *("master_only", "property", "cached_property", "typechecked", "jaxtyped", "timer", "profile"),
})  # fmt: skip
