"""Which rank a process is, and the tests, exits and decorators that let only some ranks through."""
