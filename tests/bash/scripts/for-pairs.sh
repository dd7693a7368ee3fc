#!/bin/bash
for pair in "opt 16" "llama 4"; do
  set -- $pair
  deepspeed train.py --model $1 --batch $2 --fixed 7
done
