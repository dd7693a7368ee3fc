"""Control flow of a shell script: tests, choices between the arms of a test, loops."""
