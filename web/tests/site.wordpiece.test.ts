/** The tokenizer of the page of sentences against that of Python's transformers. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { WordPiece } from "../site/similarity/wordpiece";

interface Recorded {
  readonly vocabulary: string;
  readonly texts: readonly string[];
  readonly ids: readonly (readonly number[])[];
}

const file = join(import.meta.dirname, "files", "site", "tokens.json");
const recorded = JSON.parse(readFileSync(file, "utf-8")) as Recorded | null;

test.skipIf(recorded === null)("hundreds of texts in many scripts have the same ids", () => {
  const { vocabulary, texts, ids } = recorded!;
  const tokenizer = new WordPiece(vocabulary);
  expect(texts.length).toBeGreaterThan(400);
  const different = texts.flatMap((text, k) => {
    const found = tokenizer.encode(text);
    return found.join() === ids[k]!.join()
      ? []
      : [[text, tokenizer.decode(found), tokenizer.decode(ids[k]!)]];
  });
  expect(different).toEqual([]);
});

test.skipIf(recorded === null)("a long text is cut, and keeps its end mark", () => {
  const tokenizer = new WordPiece(recorded!.vocabulary);
  const ids = tokenizer.encode("one two three four five", 5);
  expect(tokenizer.decode(ids)).toEqual(["[CLS]", "one", "two", "three", "[SEP]"]);
});

test("a vocabulary without its special tokens is refused", () => {
  expect(() => new WordPiece("[PAD]\n[UNK]\nthe\n")).toThrow("has no [CLS]");
});
