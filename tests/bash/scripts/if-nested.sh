#!/bin/bash
# run: lora 7b
# run: lora 70b
# run: full 7b
METHOD=$1
SIZE=$2
EXTRA=""
if [ "$METHOD" = lora ]; then
  EXTRA="--lora_rank 8"
  if [ "$SIZE" = 70b ]; then
    EXTRA="$EXTRA --load_in_4bit"
  fi
fi
DEEPSPEED=zero2
[ "$SIZE" = 70b ] && DEEPSPEED=zero3
llamafactory-cli train --model_name_or_path llama-$SIZE --deepspeed examples/$DEEPSPEED.json $EXTRA
