#!/bin/bash
CONFIG="configs/my model/zero2.json"
deepspeed train.py --deepspeed "$CONFIG" --name "$(basename "$CONFIG" .json)" --dir "$(dirname "$CONFIG")/out" \
  --both "$(basename "$(dirname "$CONFIG")")"
