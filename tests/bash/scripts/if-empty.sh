#!/bin/bash
# run:
# run: RESUME_FROM=ckpt/step-10
if [ -z "$RESUME_FROM" ]; then
  ARGS="--init random"
else
  ARGS="--resume $RESUME_FROM"
fi
[[ -n $WANDB_KEY ]] && ARGS="$ARGS --wandb"
deepspeed train.py $ARGS --bf16
