#!/bin/bash
PROCESSES=8
cat << EOF > accelerate.yaml
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: $PROCESSES
EOF
accelerate launch --config_file accelerate.yaml --num_processes $PROCESSES train.py
