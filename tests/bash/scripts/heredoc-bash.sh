#!/bin/bash
MODEL=opt
bash <<'EOF'
export NCCL_DEBUG=INFO
torchrun --nproc_per_node 2 train.py --quoted yes
EOF
cat <<END | grep -v nothing
usage text with torchrun --nproc_per_node 9 that never runs
END
python final.py --model $MODEL
