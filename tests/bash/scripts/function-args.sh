#!/bin/bash
run() {
  local name=$1
  local stage=$2
  shift 2
  deepspeed --num_gpus 4 train.py --name "$name" --deepspeed "configs/zero$stage.json" "$@"
}
run base 1
run lora 2 --lora_r 8
run "two words" 3 --lr 1e-5
