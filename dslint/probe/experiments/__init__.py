"""One mechanism, one file."""
