"""Programs with which launch scripts make configs: what they write, as far as their arguments say it."""
