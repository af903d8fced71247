#!/usr/bin/env bash
# Pre-train on all GPUs of this machine; the same command resumes.
#
#   scripts/one_machine.sh DATA --recipe NAME --out RUN [key=value ...]
#
# PROCESSES  processes that train together (default: one for each GPU, or 1 without one)
# RESTARTS   how often all processes start again after one has failed (default: 3)
set -euo pipefail

python=${PYTHON:-python}
count_gpus='import torch; print(max(1, torch.cuda.device_count()))'
processes=${PROCESSES:-$("$python" -c "$count_gpus")}
threads=$(($(nproc) / processes))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}

# The last step and its checkpoint may take longer than torchrun's 30 s.
exec "$python" -m torch.distributed.run --standalone \
    --nproc-per-node="$processes" \
    --max-restarts="${RESTARTS:-3}" \
    --shutdown-timeout=300 \
    -m attmask pretrain "$@"
