#!/usr/bin/env bash
# Pre-train on a machine that may be taken away; run it whenever the machine starts. It saves and
# ends with status 143 on SIGTERM or on the provider's notice, and resumes when it is started again.
# RUN must be on a disk that outlives the machine.
#
#   scripts/preemptible_machine.sh DATA --recipe NAME --out RUN [key=value ...]
#
# NOTICE     a command that succeeds once the machine is about to be taken away (default: none;
#            then only SIGTERM counts, which a machine that shuts down sends to its services)
# EVERY      seconds between two such questions (default: 5)
# PROCESSES  processes that train together (default: one for each GPU, or 1 without one)
# RESTARTS   how often to start again after a failure (default: 3)
set -uo pipefail

python=${PYTHON:-python}
count_gpus='import torch; print(max(1, torch.cuda.device_count()))'
processes=${PROCESSES:-$("$python" -c "$count_gpus")}
training=
stopping=

stop() {
    stopping=yes
    [[ -n $training ]] && kill -TERM "$training" 2>/dev/null
}
trap stop TERM INT

watch() { # until the training ends, or the notice comes
    local seconds=0
    while kill -0 "$training" 2>/dev/null; do
        if [[ -z $stopping && -n ${NOTICE:-} ]] && ((seconds++ % ${EVERY:-5} == 0)) && bash -c "$NOTICE"; then
            echo "preemptible_machine.sh: this machine is about to be taken away; saving" >&2
            stop
        fi
        sleep 1
    done
}

for ((attempt = 0; attempt <= ${RESTARTS:-3}; attempt++)); do
    "$python" -m attmask pretrain --processes "$processes" "$@" &
    training=$!
    watch
    wait "$training"
    status=$?
    training=
    [[ $status -eq 0 || -n $stopping ]] && break
    echo "preemptible_machine.sh: training ended with status $status" >&2
done
exit "$status"
