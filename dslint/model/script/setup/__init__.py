"""How a script starts: devices, process groups, timeouts, what the process sets itself."""
