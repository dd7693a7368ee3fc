#!/bin/bash
SCRIPT_PATH=$(realpath "$0")
SCRIPT_DIR=$(dirname "$SCRIPT_PATH")
PROJECT=$(cd "$SCRIPT_DIR/.." && pwd)
export PYTHONPATH="$PROJECT"
cd "$PROJECT"
torchrun --nproc_per_node 2 scripts/train.py --config "$SCRIPT_DIR/config.yaml" --name "${0##*/}"
