#!/bin/bash
DATASETS=(alpaca dolly oasst)
FILES=("${DATASETS[@]/%/.json}")
PATHS=("${FILES[@]/#/data\/}")
deepspeed train.py --data "${PATHS[@]}" --names "${DATASETS[@]^^}" --first ${FILES[0]%.json} --csv "$(IFS=,; echo "${DATASETS[*]}")"
