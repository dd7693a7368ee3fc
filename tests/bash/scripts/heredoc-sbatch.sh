#!/bin/bash
PARTITION=gpu
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --partition=$PARTITION
torchrun --nproc_per_node 8 train.py --config configs/base.yaml
EOF
