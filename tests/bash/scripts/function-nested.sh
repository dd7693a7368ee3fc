#!/bin/bash
run_one() { deepspeed --num_gpus "$1" "$2" --seed 1 "${@:3}"; }
run_all() {
  for script in a.py b.py; do
    run_one 2 $script --tag "$1"
  done
}
run_all "first run"
run_one 4 c.py
