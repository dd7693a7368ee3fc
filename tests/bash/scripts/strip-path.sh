#!/bin/bash
CKPT=/mnt/ckpt/opt-1.3b/step-2000.tar.gz
FILE=${CKPT##*/}
DIR=${CKPT%/*}
STEP=${FILE%%.*}
EXT=${FILE#*.}
SUFFIX=.gz
python -m torch.distributed.run --nproc_per_node 2 resume.py --dir $DIR --step ${STEP#step-} --ext $EXT --plain "${CKPT%$SUFFIX}" --model ${DIR##*/}
