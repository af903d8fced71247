#!/usr/bin/env bash
# Pre-train on several machines: start the same command on each of them; the same command resumes.
# RUN must be on a disk that all machines share, and all must see the same images.
#
#   MACHINES=4 FIRST=HOST:29400 scripts/several_machines.sh DATA --recipe NAME --out RUN [key=value ...]
#
# MACHINES   how many machines take part
# FIRST      one of them, by a name that all others reach, and a free port on it
# PROCESSES  processes on this machine (default: one for each GPU, or 1 without one)
# RESTARTS   how often all processes start again after one has failed (default: 3)
# ID         a name for this run, if the machines train several at the same time
# ADDRESS    how the others reach this machine (default: its host name)
set -euo pipefail

: "${MACHINES:?set MACHINES to the number of machines, e.g. MACHINES=4}"
: "${FIRST:?set FIRST to a host and port that all machines reach, e.g. FIRST=node0:29400}"
python=${PYTHON:-python}
count_gpus='import torch; print(max(1, torch.cuda.device_count()))'
processes=${PROCESSES:-$("$python" -c "$count_gpus")}
threads=$(($(nproc) / processes))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}

# The last step and its checkpoint may take longer than torchrun's 30 s.
exec "$python" -m torch.distributed.run \
    --nnodes="$MACHINES" \
    --nproc-per-node="$processes" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$FIRST" \
    --rdzv-id="${ID:-attmask}" \
    ${ADDRESS:+--local-addr="$ADDRESS"} \
    --max-restarts="${RESTARTS:-3}" \
    --shutdown-timeout=300 \
    -m attmask pretrain "$@"
