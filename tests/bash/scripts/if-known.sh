#!/bin/bash
USE_LORA=true
STAGE=3
if [ "$USE_LORA" = true ]; then
    EXTRA="--lora_r 8 --lora_alpha 16"
else
    EXTRA="--full"
fi
if [[ $STAGE -eq 3 ]]; then
  CONFIG=zero3.json
elif [[ $STAGE -eq 2 ]]; then
  CONFIG=zero2.json
fi
deepspeed train.py --deepspeed configs/$CONFIG $EXTRA
