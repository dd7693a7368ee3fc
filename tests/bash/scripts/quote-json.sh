#!/bin/bash
# JSON on a command line.
STAGE=3
deepspeed train.py --ds_config '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}' \
  --override "{\"stage\": $STAGE, \"name\": \"run\"}" --list '["a", "b"]'
accelerate launch train.py --kwargs "{'lr': 1e-4}" --path C:\\data
