"""CPython as the judge of `dslint.python`: programs run on simulated ranks, and what the engine believes of them."""
