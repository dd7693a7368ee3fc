"""What ZeRO stage 3 does to a script: the stage at a place, parameters, models, gathering."""
