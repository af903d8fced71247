"""Other ways to compute the same step, to be measured beside ours in the same run."""
