"""The static meaning of a shell script: words, values, assignments in force at a command."""
