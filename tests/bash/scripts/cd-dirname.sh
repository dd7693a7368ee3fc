#!/bin/bash
SCRIPT_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$SCRIPT_DIR/.."
ROOT=$(pwd)
export PYTHONPATH=$ROOT/src
torchrun --nproc_per_node 4 $ROOT/train.py --config "$SCRIPT_DIR/config.yaml"
