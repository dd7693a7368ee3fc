"""How the results are shown: for people, for programs."""
