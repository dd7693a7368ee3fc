#!/bin/bash
ray start --head --node-ip-address 0.0.0.0 --num-gpus 8
ACTOR=meta-llama/Llama-3-8B
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{"working_dir": "/openrlhf"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray --pretrain $ACTOR --zero_stage 3 --bf16
