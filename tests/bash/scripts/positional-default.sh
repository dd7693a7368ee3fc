#!/bin/bash
# run:
# run: zero3 16
STAGE=${1:-zero2}
BATCH=${2:-8}
OUT=${3:-output/$STAGE}
deepspeed --num_gpus 8 train.py --deepspeed configs/$STAGE.json --batch $BATCH --output $OUT --fixed yes
