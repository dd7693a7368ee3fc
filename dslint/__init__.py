"""dslint: a static analyzer for distributed-training code, configs and launch commands."""

__version__ = "0.1.0"
