"""What a run is: DeepSpeed config, launch command, script facts, world size, run plan."""
