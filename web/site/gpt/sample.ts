/** How the next token is chosen. */

/**
 * The number of a token. At temperature 0 the most probable one; otherwise one of the `topK` most
 * probable, at random: the softmax of their logits over the temperature. `random` is from 0 to 1.
 */
export function choose(
  logits: Float32Array,
  temperature: number,
  topK: number,
  random: number,
): number {
  const order = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]!);
  if (temperature === 0) {
    return order[0]!;
  }
  const best = order.slice(0, topK);
  const weights = best.map((token) => Math.exp((logits[token]! - logits[best[0]!]!) / temperature));
  let left = random * weights.reduce((sum, weight) => sum + weight, 0);
  for (const [k, weight] of weights.entries()) {
    left -= weight;
    if (left < 0) {
      return best[k]!;
    }
  }
  return best.at(-1)!;
}
