#!/bin/bash
ZERO=2
CONFIG=ds_config.json
cat > $CONFIG <<EOT
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": $ZERO},
  "bf16": {"enabled": true}
}
EOT
deepspeed train.py --deepspeed --deepspeed_config $CONFIG
