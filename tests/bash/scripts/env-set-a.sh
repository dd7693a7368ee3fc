#!/bin/bash
# Everything that is set between these is exported.
set -a
HF_HOME=/cache/hf
WANDB_DISABLED=true
set +a
EPOCHS=3
accelerate launch --config_file accelerate.yaml run_clm.py --num_train_epochs $EPOCHS
