#!/bin/bash
python - <<'EOF'
print("torchrun --nproc_per_node 3 not a command")
EOF
torchrun --nproc_per_node 2 train.py --after heredoc
