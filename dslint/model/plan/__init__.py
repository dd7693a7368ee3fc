"""The run plan: a launch command joined with its script, arguments and configs."""
