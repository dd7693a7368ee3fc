#!/bin/bash
CONFIG="examples/llama/lora.yml"
export AXOLOTL_DO_NOT_TRACK=1
axolotl preprocess $CONFIG
axolotl train "$CONFIG" --num-processes 4
accelerate launch -m axolotl.cli.train $CONFIG --deepspeed deepspeed_configs/zero2.json
