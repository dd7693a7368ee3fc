#!/bin/bash
MIX=(0.5 0.3 0.2)
EMPTY=()
python train.py --mix="${MIX[@]}" x"${EMPTY[@]}"y --weights "${MIX[@]:1}" --none "${EMPTY[@]}" --all="${MIX[*]}" ${EMPTY[@]} --end
