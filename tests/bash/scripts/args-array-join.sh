#!/bin/bash
GPUS=(0 1 2 3)
join() { local IFS=,; echo "$*"; }
LIST=$(IFS=,; echo "${GPUS[*]}")
deepspeed --include "localhost:$LIST" train.py --deepspeed ds.json --gpus ${#GPUS[@]}
