#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")"/lib/functions.sh
launch_with 4 train.py --model "$(model_of small)"
deepspeed --num_gpus $DEFAULT_GPUS eval.py
