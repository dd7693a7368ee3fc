"""Rewrites of the examples that change nothing of what a script does, and what dslint says then."""
