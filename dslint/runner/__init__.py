"""``dslint run``: what is wrong with a command, said before it starts; then dslint becomes that command."""
