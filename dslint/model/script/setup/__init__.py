"""What each process has of its own."""
