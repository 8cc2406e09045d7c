/** The playground's programs in Node, and what it says of errors. */

import { expect, test } from "vitest";
import * as library from "../torch";
import { compile, explain } from "../site/playground/compile";
import { EXAMPLES } from "../site/playground/examples";
import { format } from "../site/playground/format";
import { initTorch } from "./torch/gpu";

/** What a program prints, by line. */
async function run(text: string): Promise<string[]> {
  const printed: Promise<string>[] = [];
  const print = async (...values: unknown[]) => {
    printed.push(Promise.all(values.map(format)).then((texts) => texts.join(" ")));
    await printed.at(-1);
  };
  await compile(text)(() => library, {}, print);
  return (await Promise.all(printed)).join("\n").split("\n");
}

const failure = (text: string): Promise<string> => run(text).then(() => "no error", explain);

test("the examples run", async () => {
  await initTorch();
  const lines: Record<string, string[]> = {};
  for (const [name, text] of Object.entries(EXAMPLES)) {
    lines[name] = await run(text);
  }
  expect(lines.Tensors!.slice(0, 3)).toEqual([
    "tensor([[ 0,  1,  2,  3],",
    "        [ 4,  5,  6,  7],",
    "        [ 8,  9, 10, 11]])",
  ]);
  expect(lines.Autograd!.at(-1)).toBe("tensor(27., grad_fn=<MulBackward0>) tensor(18.)");
  const losses = lines["Train a network"]!.flatMap((line) => /loss (.*)/.exec(line)?.[1] ?? []);
  expect(losses.length).toBe(10);
  expect(Number(losses.at(-1))).toBeLessThan(0.01);
  expect(lines["A module of your own"]![0]).toBe("module with the parameters");
});

test("errors name the line of the program", async () => {
  expect(await failure("let a: number = 1;\n\nthrow new RangeError(`no ${a}`);")).toBe(
    "RangeError: no 1\n  at line 3",
  );
  expect(await failure("const b = 1;\nconst c = = b;")).toMatch(/^SyntaxError: .*\n {2}at line 2$/);
  expect(await failure("type T = string;\nconst d = (e: T) => f;\nd('');")).toBe(
    "ReferenceError: f is not defined\n  at line 2",
  );
  expect(await failure("throw 'text'")).toBe("thrown: text");
});

test("values that are no tensors", async () => {
  const circle: unknown[] = [1];
  circle.push(circle);
  expect(await format(circle)).toBe("[1, ...]");
  expect(await format({ a: null, b: [true, "c"], d: new Float32Array([0.5]) })).toBe(
    '{a: null, b: [true, "c"], d: [0.5]}',
  );
  expect(await format(new Map([["k", 2n]]))).toBe("{k: 2}");
});
