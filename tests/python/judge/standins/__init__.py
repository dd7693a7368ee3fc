"""Stand-ins for libraries: real enough that control flow runs, and every call of theirs is an event."""
