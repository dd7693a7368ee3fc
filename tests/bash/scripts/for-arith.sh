#!/bin/bash
CHUNKS=3
for ((i = 0; i < CHUNKS; i++)); do
  CUDA_VISIBLE_DEVICES=$i python -m eval.model --num-chunks $CHUNKS --chunk-idx $i --temperature 0 &
done
wait
for IDX in $(seq 0 $((CHUNKS-1))); do
    cat answers/$IDX.jsonl >> merged.jsonl
done
python score.py --file merged.jsonl
