#!/bin/bash
mkdir -p work/examples
cd work
cd examples || exit 1
torchrun --nproc_per_node 2 train.py --data ../data
cd ../..
pushd work > /dev/null
python eval.py
popd > /dev/null
python report.py
