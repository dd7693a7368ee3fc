"""Findings that the user has decided to accept: comment directives and per-file ignores, and those of no use.

``run.py`` is where a run begins. Nothing is imported here: most files hold no directive, and need no grammar of them.
"""
