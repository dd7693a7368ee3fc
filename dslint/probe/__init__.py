"""The probe: two-arm experiments on real ranks that show what a finding means; torch lives in child processes only."""
