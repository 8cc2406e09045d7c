/** From sentences to vectors. */

import type { PlayerOf } from "../../player";
import type { Functions } from "./minilm.twg";
import type { WordPiece } from "./wordpiece";

const SHORT = 32; // tokens: the lengths that make_pages.py exports
const LONG = 128; // what is longer is cut there, as by the model's own tokenizer file

export interface Embedded {
  /** Of length 1. */
  readonly vector: Float32Array;
  readonly tokens: number;
  readonly cut: boolean;
}

export const cosine = (a: Embedded, b: Embedded): number =>
  a.vector.reduce((sum, value, k) => sum + value * b.vector[k]!, 0);

export async function embed(
  player: PlayerOf<Functions>,
  tokenizer: WordPiece,
  sentence: string,
): Promise<Embedded> {
  const ids = tokenizer.encode(sentence, LONG);
  const length = ids.length <= SHORT ? SHORT : LONG;
  const inputs = { ids: new BigInt64Array(length), mask: new BigInt64Array(length) };
  inputs.ids.set(ids.map(BigInt));
  inputs.mask.fill(1n, 0, ids.length);
  const { vector } = length === SHORT ? await player.short(inputs) : await player.long(inputs);
  return { vector, tokens: ids.length, cut: tokenizer.encode(sentence).length > LONG };
}
