#!/bin/bash
for SEED in {1..2}; do
  for TASK in mnli sst2; do
    OUT=out/${TASK}_$SEED
    mkdir -p "$OUT"
    python -m torch.distributed.launch --nproc_per_node 4 run_glue.py --task_name ${TASK^^} --seed $SEED --output_dir $OUT
  done
done
