#!/bin/bash
export ACCELERATE_LOG_LEVEL=info
CONFIG=recipes/accelerate/zero3.yaml
accelerate launch --config_file $CONFIG --num_machines 2 --machine_rank 0 --main_process_ip 10.0.0.1 --main_process_port 29500 \
  --num_processes=16 scripts/run_sft.py recipes/zephyr/sft.yaml --load_in_4bit=false
