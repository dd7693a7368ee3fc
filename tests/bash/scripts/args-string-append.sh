#!/bin/bash
OPTIONS="--bf16"
OPTIONS="$OPTIONS --lr 1e-5"
OPTIONS+=" --gradient_checkpointing"
OPTIONS+=" --name=run1   --tags a,b"
EMPTY_ARGS=""
deepspeed --include localhost:0,1 train.py ${OPTIONS} $EMPTY_ARGS --last
