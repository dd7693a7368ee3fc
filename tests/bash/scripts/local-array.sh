#!/bin/bash
build() {
  local -a args=(--lr "$1")
  args+=(--seed 3)
  deepspeed --num_gpus 2 train.py "${args[@]}"
}
build 1e-4
build 1e-5
