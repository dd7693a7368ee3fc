#!/bin/bash
# One variable, two runs: each command has the value of its time.
STAGE=2
OUT=out/stage$STAGE
deepspeed --num_gpus=2 train.py --deepspeed configs/zero$STAGE.json --output_dir $OUT

STAGE=3
OUT=out/stage$STAGE
deepspeed --num_gpus=2 train.py --deepspeed configs/zero$STAGE.json --output_dir $OUT
