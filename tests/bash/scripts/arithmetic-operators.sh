#!/bin/bash
# Every operator that a number in a launch script was made with.
A=7; B=2
SHIFT=$((1 << 20))
POWER=$((2 ** 10))
HALF=$((A / B)) REST=$((A % B)) NEG=$((-A / B))
CMP=$((A > B)) EQ=$((A == 7)) NE=$((A != 7)) LE=$((A <= B))
PICK=$((A > B ? A : B)) AND=$((A && 0)) OR=$((0 || B)) NOT=$((!A))
BITS=$((A & 3)) MASK=$((A | 8)) XOR=$((A ^ 1)) INV=$((~A)) RIGHT=$((SHIFT >> 3))
python train.py --max-bytes $SHIFT --ctx $POWER --half $HALF --rest $REST --neg $NEG --cmp $CMP$EQ$NE$LE \
  --pick $PICK --logic $AND$OR$NOT --bits $BITS $MASK $XOR $INV $RIGHT --list $((A, B)) --hex $((0x10)) --oct $((010))
