#!/bin/bash
# run: opt-125m out -- x
# run: llama out2 --lr 1e-4 --bf16
MODEL=$1; shift
OUTPUT=$1; shift
deepspeed main.py --model "$MODEL" --output "$OUTPUT" --zero_stage 2 "$@"
