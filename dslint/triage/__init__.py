"""Reads the log of a hung or failed run: which symptoms it shows, on which ranks, and what to check.

``command`` is the entry; ``blocks`` streams a file, ``gates`` finds the few lines that matter, ``scan`` turns them into
hits, ``verdict`` orders what was found. ``symptoms/`` is the table of what is known, one file per family.
"""
