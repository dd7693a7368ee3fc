"""What each rank does to the others: its sequence of collectives, and where the sequences of two ranks part.

The idea is that of structural correctness (Aiken and Gay, "Barrier Inference", POPL 1998) and of PARCOACH
("Multi-Valued Expression Analysis for Collective Checking", Euro-Par 2019): which values differ between ranks,
which branches they decide, and whether the collectives behind the branches match. Here the program is traced
once for each of two ranks: a test whose outcome is known for the rank decides, any other test stays a symbol that
is the same on both ranks, and the two traces are compared.
"""
