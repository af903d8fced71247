// How many epochs a run needs to reach a value.

/** The epoch at which the best value so far reaches the target, between evaluations by linear
 * interpolation; null if it never does. */
function firstEpochReaching(epochs, values, target, higher = true) {
  const sign = higher ? 1 : -1;
  let best = -Infinity;
  let before = null;
  for (let i = 0; i < values.length; i++) {
    const value = sign * values[i];
    if (!Number.isFinite(value) || !Number.isFinite(epochs[i])) continue;
    const goal = sign * target;
    if (value >= goal) {
      if (before === null) return epochs[i];
      return before + ((epochs[i] - before) * (goal - best)) / (value - best);
    }
    best = Math.max(best, value);
    before = epochs[i];
  }
  return null;
}

/** "epoch 31 of 48 (35 % fewer)", against the epochs of the baseline. */
function savingSentence(epoch, baselineEpochs) {
  if (epoch === null) return "never reached";
  const saved = 1 - epoch / baselineEpochs;
  const percent = Math.round(Math.abs(saved) * 100);
  const compared = percent === 0 ? "no fewer" : `${percent} % ${saved > 0 ? "fewer" : "more"}`;
  return `epoch ${readable(epoch, 3)} of ${readable(baselineEpochs)} (${compared})`;
}
