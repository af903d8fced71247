"""The curves of runs: read, timed, compared and drawn."""
