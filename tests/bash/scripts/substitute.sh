#!/bin/bash
MODEL="meta-llama/Llama-2-7b-hf"
GPUS=0,1,2,3
RUN=${MODEL//\//_}
SHORT=${MODEL/meta-llama\//}
SPACED="${GPUS//,/ }"
deepspeed --include localhost:$GPUS train.py --run "$RUN" --short $SHORT --ids $SPACED --dots ${MODEL//[.-]/_} \
  --yaml ${RUN/%hf/yaml} --pre ${GPUS/#0/9} --none ${GPUS//,}
