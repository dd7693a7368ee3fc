#!/bin/bash
# Text tools on text that is known.
MODEL=Qwen/Qwen2.5-7B-Instruct
SHORT=$(basename $MODEL)
OWNER=$(dirname $MODEL)
LOWER=$(echo $SHORT | tr 'A-Z' 'a-z')
FIRST_GPU=$(echo "4,5,6,7" | cut -d, -f1)
SAFE=$(echo "$MODEL" | sed 's#/#--#g')
COUNT=$(echo 4,5,6,7 | tr ',' '\n' | wc -l)
CUDA_VISIBLE_DEVICES=4,5,6,7 torchrun --nproc_per_node $COUNT --master_port 2950$FIRST_GPU sft.py \
  --name "$LOWER" --owner $OWNER --cache "cache/$SAFE"
