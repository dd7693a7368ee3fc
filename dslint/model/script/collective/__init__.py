"""The calls that every rank must make, by library, and what the functions of a file do with them."""
