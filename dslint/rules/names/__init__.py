"""What rules ask about names of libraries: which release lacks one, or refuses an argument."""
