"""The parser of a script: which options it takes, and what it makes of the words of a command."""
