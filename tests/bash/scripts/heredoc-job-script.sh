#!/bin/bash
NODES=2
cat > job.sh <<'EOF'
#!/bin/bash
#SBATCH --nodes=2
srun python train.py --from job
EOF
chmod +x job.sh
sbatch --nodes=$NODES job.sh
python submit_done.py --nodes $NODES
