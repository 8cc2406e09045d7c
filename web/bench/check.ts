/** Whether a player's result is PyTorch's. */

/** Of float32 sums in another order, with room; a wrong weight or a missing mask is far above. */
export const BOUND = 1e-3;

/** The largest difference, as a part of the largest magnitude that is wanted. Infinity for another
 * number of elements and for what is not finite. */
export function relativeDifference(actual: ArrayLike<number>, wanted: ArrayLike<number>): number {
  if (actual.length !== wanted.length || wanted.length === 0) {
    return Infinity;
  }
  let [difference, magnitude] = [0, 0];
  for (let k = 0; k < wanted.length; ++k) {
    const distance = Math.abs(actual[k]! - wanted[k]!);
    if (!Number.isFinite(distance)) {
      return Infinity;
    }
    difference = Math.max(difference, distance);
    magnitude = Math.max(magnitude, Math.abs(wanted[k]!));
  }
  return difference === 0 ? 0 : difference / magnitude;
}

/** The difference of run k; `results` has a row for each run, or one for all. Throws RangeError
 * where it is above the bound, so that no wrong run is timed. */
export function checkRun(
  k: number,
  actual: ArrayLike<number>,
  results: readonly (readonly number[])[],
): number {
  const wanted = results.length === 1 ? results[0] : results[k];
  if (wanted === undefined) {
    throw new RangeError(`there is no result of run ${k}`);
  }
  const difference = relativeDifference(actual, wanted);
  if (!(difference <= BOUND)) {
    throw new RangeError(
      `run ${k} is wrong: it differs from PyTorch by ${difference.toExponential(1)}`,
    );
  }
  return difference;
}
