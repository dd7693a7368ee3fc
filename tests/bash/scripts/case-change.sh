#!/bin/bash
MODEL=LLaMA-2
DTYPE=bf16
deepspeed train.py --model ${MODEL,,} --dtype "${DTYPE^^}" --title ${DTYPE^} --first "${MODEL,}" --flag ${DTYPE^^[bf]}
