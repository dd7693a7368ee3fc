"""What dslint knows about DeepSpeed: its config, its releases, its batch arithmetic."""
