#!/usr/bin/env bash
# Pre-train under Slurm, one task for each GPU; a job that runs out of time or is preempted saves,
# goes back to the queue and resumes. RUN must be on a disk that all nodes share.
#
#   sbatch --nodes=4 scripts/slurm.sh DATA --recipe NAME --out RUN [key=value ...]
#
# Options of sbatch on the command line replace those below.
#SBATCH --job-name=attmask
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

python=${PYTHON:-python}
cores=${SLURM_CPUS_PER_TASK:-1}
workers=$((cores > 1 ? cores - 1 : 1))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cores}

# A stopped task ends with status 143, those without a checkpoint to write first: the others may
# finish theirs. After a crash they are ended as late as that.
status=0
srun --kill-on-bad-exit=0 --wait=120 --cpus-per-task="$cores" \
    "$python" -m attmask pretrain "train.workers=$workers" "$@" || status=$?

# 128 + the number of the signal that stopped the run, which was saved: SIGTERM, SIGUSR1 or SIGINT.
if ((status == 143 || status == 138 || status == 130)); then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
