/** The examples of the pages in Node, on Dawn, against what PyTorch recorded. */

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { create } from "webgpu";
import { load } from "../player";
import type { Functions as Digits } from "../site/digits/digits.twg";
import type { Functions as Gpt } from "../site/gpt/gpt.twg";
import { Text } from "../site/gpt/text";
import { toInput } from "../site/resnet/input";
import { ResNet18 } from "../site/resnet/model";
import { cosine, embed, type Embedded } from "../site/similarity/embed";
import type { Functions as MiniLM } from "../site/similarity/minilm.twg";
import { WordPiece } from "../site/similarity/wordpiece";
import { safetensors, torch } from "../torch";
import { serve } from "../tools/serve.mjs";
import { long } from "./long";
import { site } from "./site/folder";
import { initTorch } from "./torch/gpu";

const gpu = create([]);
let server: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  server = await serve(site);
});

afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const url = (name: string): string =>
  `http://localhost:${(server.address() as AddressInfo).port}/${name}`;

const facts = async <T>(name: string): Promise<T> =>
  JSON.parse(await readFile(join(site, name), "utf-8")) as T;

const most = (found: readonly number[], wanted: readonly number[]): number => {
  expect(found.length).toBe(wanted.length);
  return Math.max(...found.map((value, k) => Math.abs(value - wanted[k]!)));
};

/** The page's pictures and labels: two counts, the images' bytes, the labels. */
async function digitsOf(name: string) {
  const file = await readFile(join(site, name));
  const [training, tested] = [file.readUInt32LE(0), file.readUInt32LE(4)];
  const count = training + tested;
  const pixels = (file.length - 8 - count) / count;
  const labels = file.subarray(8 + count * pixels);
  return {
    training,
    count,
    images: (places: readonly number[]) =>
      Float32Array.from(
        places.flatMap((k) => [...file.subarray(8 + k * pixels).subarray(0, pixels)]),
      ).map((byte) => byte / 16),
    labels: (places: readonly number[]) =>
      BigInt64Array.from(places.map((k) => BigInt(labels[k]!))),
  };
}

const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first }, (_, k) => first + k);

test("digits: the first steps of training lose what PyTorch's do", async () => {
  const { losses } = await facts<{ losses: number[] }>("digits/digits.json");
  const player = await load<Digits>(url("digits/digits.twg"), { gpu });
  const digits = await digitsOf("digits/digits.bin");
  const found: number[] = [];
  for (const k of losses.keys()) {
    const batch = range(64 * k, 64 * (k + 1));
    const inputs = { images: digits.images(batch), labels: digits.labels(batch) };
    const { loss } = await player.step(inputs);
    found.push(loss[0]!);
  }
  expect(losses.at(-1)!).toBeLessThan(losses[0]!);
  expect(most(found, losses)).toBeLessThan(1e-3);
});

test.runIf(long)("digits: the training reaches 97 %", async () => {
  const player = await load<Digits>(url("digits/digits.twg"), { gpu });
  const digits = await digitsOf("digits/digits.bin");
  const tested = range(digits.training, digits.count);
  const [images, labels] = [digits.images(tested), digits.labels(tested)];
  const batches = Math.floor(digits.training / 64);
  let share = 0;
  for (let epoch = 0; epoch < 20 && share < 0.97; ++epoch) {
    for (let k = 0; k < batches; ++k) {
      // Every n-th picture, so that a batch has pictures from all parts of the file.
      const batch = range(0, 64).map((n) => (k + n * batches + epoch * 7) % digits.training);
      const inputs = { images: digits.images(batch), labels: digits.labels(batch) };
      await player.step(inputs, { read: [] });
    }
    const { digits: found } = await player.recognize({ images });
    share = found.filter((digit, k) => digit === labels[k]).length / labels.length;
  }
  expect(share).toBeGreaterThanOrEqual(0.97);
});

test("gpt: writes what PyTorch writes, and beyond what its caches hold", async () => {
  const { context, greedy, read } = await facts<{
    context: number;
    greedy: { prompt: string; text: string };
    read: { tokens: number[]; logits: number[] };
  }>("gpt/gpt.json");
  const player = await load<Gpt>(url("gpt/gpt.twg"), { gpu });
  const text = new Text(player);
  await text.begin(new TextEncoder().encode(greedy.prompt), context);
  let written = "";
  while (text.written < new TextEncoder().encode(greedy.text).length) {
    written += await text.next(0, 0);
  }
  expect(greedy.text.length).toBeGreaterThan(3);
  expect(written).toBe(greedy.text);

  expect(read.tokens.length).toBeGreaterThan(context);
  let logits: Float32Array | undefined;
  for (const [position, token] of read.tokens.entries()) {
    ({ logits } = await player.step({ token: [token], position: [position] }));
  }
  expect(most([...logits!], read.logits)).toBeLessThan(1e-3);
});

// site.test.ts compares them in Chromium.
test.runIf(long && existsSync(join(site, "similarity", "minilm.twg")))(
  "similarity: the cosines are PyTorch's",
  async () => {
    const { sentences, cosines } = await facts<{ sentences: string[]; cosines: number[][] }>(
      "similarity/similarity.json",
    );
    const vocabulary = await readFile(join(site, "similarity", "vocab.txt"), "utf-8");
    const tokenizer = new WordPiece(vocabulary);
    const player = await load<MiniLM>(url("similarity/minilm.twg"), { gpu });
    const found: Embedded[] = [];
    for (const sentence of sentences) {
      found.push(await embed(player, tokenizer, sentence));
    }
    const all = found.flatMap((a) => found.map((b) => cosine(a, b)));
    expect(most(all, cosines.flat())).toBeLessThan(1e-5);
    // A long sentence goes through the other function, and gives the same where both can take it.
    const long = await embed(player, tokenizer, `A man is eating food. ${"really ".repeat(40)}`);
    expect(long.tokens).toBeGreaterThan(32);
    expect(cosine(long, long)).toBeCloseTo(1, 5);
  },
  120_000,
);

test("resnet: the logits are PyTorch's", async () => {
  await initTorch();
  const { side, logits } = await facts<{ side: number; logits: number[][] }>("resnet/resnet.json");
  const pictures = await readFile(join(site, "resnet", "pictures.bin"));
  const weights = await readFile(join(site, "resnet", "shapes.safetensors"));
  const network = new ResNet18(logits[0]!.length);
  torch.scope(() => network.load_state_dict(safetensors.load(weights)));
  network.eval();
  const bytes = 3 * side * side;
  expect(pictures.length).toBe(bytes * logits.length);
  // One picture as on the page, and some as a batch.
  for (const [first, last] of [
    [0, 1],
    [1, 4],
  ] as const) {
    // prettier-ignore
    const inputs = Array.from({ length: last - first }, (_, k) =>
      torch
        .tensor(toInput(pictures.subarray((first + k) * bytes, (first + k + 1) * bytes), 3))
        .view(1, 3, side, side),
    );
    const out = torch.no_grad(() => network.forward(torch.cat(inputs)));
    const found = (await out.tolist()) as number[][];
    found.forEach((row, k) => {
      expect(most(row, logits[first + k]!)).toBeLessThan(1e-4);
    });
  }
}, 120_000);
