"""What rules ask about a training step and who drives it: Accelerators, Trainers of Lightning, schedules, counts."""
