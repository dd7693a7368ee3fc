#!/bin/bash
RESUME=checkpoints/step-1000
DEBUG=
accelerate launch --num_processes 8 train.py ${RESUME:+--resume_from_checkpoint $RESUME} ${DEBUG:+--debug} \
   --wandb "${RESUME:+resumed}" --quiet${DEBUG:+-not}
