#!/bin/bash
# `cd -`, pushd and popd lead back to where the script was.
mkdir -p src data
cd src
echo built
cd -
torchrun --log_dir "$PWD/logs" train.py --here 1
pushd src > /dev/null
torchrun --log_dir "$PWD/logs" train.py --here 2
pushd ../data
torchrun --log_dir "$PWD/logs" train.py --here 3
popd
torchrun --log_dir "$PWD/logs" train.py --here 4
popd > /dev/null
torchrun --log_dir "$PWD/logs" train.py --here 5
cd src
cd ../data
cd - > /dev/null
torchrun --log_dir "$PWD/logs" train.py --here 6
(cd .. && pushd data)
torchrun --log_dir "$PWD/logs" train.py --here 7
