/** How the page of the GPT chooses the next byte. */

import { expect, test } from "vitest";
import { choose } from "../site/gpt/sample";

const logits = Float32Array.of(0, 3, -1, 2, 1);

test("temperature 0 takes the most probable one", () => {
  expect([0, 0.5, 0.999].map((random) => choose(logits, 0, 5, random))).toEqual([1, 1, 1]);
});

test.each([0.5, 1, 1.5])("the shares are those of softmax over temperature %s", (temperature) => {
  const count = 20_000;
  const found = new Array<number>(5).fill(0);
  for (let k = 0; k < count; k++) {
    found[choose(logits, temperature, 3, (k + 0.5) / count)]! += 1 / count;
  }
  const weights = [...logits].map((logit) => (logit < 1 ? 0 : Math.exp(logit / temperature)));
  const sum = weights.reduce((a, b) => a + b);
  found.forEach((share, token) => expect(share).toBeCloseTo(weights[token]! / sum, 3));
});
