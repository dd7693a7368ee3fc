"""Steps of training: forwards, accumulation, trainers and engines of the file."""
