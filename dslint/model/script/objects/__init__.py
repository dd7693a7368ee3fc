"""What a variable holds: engines, optimizers, models, trainers, loaders, and how they get there."""
