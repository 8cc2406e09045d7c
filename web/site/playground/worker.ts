/** Runs one program, away from the page: it can be stopped whatever it does. */

import * as library from "../../torch";
import { compile, explain, type Print } from "./compile";
import { format } from "./format";

/** What the page is told. A run ends with `done` or `error`; `error` without a run: there is no GPU. */
export type Message =
  | { readonly kind: "ready" }
  | { readonly kind: "print"; readonly text: string }
  | { readonly kind: "error"; readonly text: string }
  | { readonly kind: "done"; readonly milliseconds: number; readonly peak: number };

const NAME = "torch-webgpu/torch";
const MAX_PRINTS = 10_000; // more would fill the page's memory

const tell = (message: Message): void => {
  postMessage(message);
};

function load(name: string): unknown {
  if (name !== NAME) {
    throw new Error(`"${name}" is not here: a program of this page imports "${NAME}" only`);
  }
  return library;
}

let prints = 0;
// Texts come in the order of their calls, also when nobody awaits them.
let printed = Promise.resolve();

const print: Print = (...values) => {
  if (++prints > MAX_PRINTS) {
    throw new RangeError(`a program prints ${MAX_PRINTS.toLocaleString("en")} times at most`);
  }
  // The values are asked for now: what changes them later comes behind.
  const texts = Promise.all(values.map(format));
  const before = printed;
  printed = (async () => {
    await before;
    tell({ kind: "print", text: (await texts).join(" ") });
  })();
  // Raised where it is awaited, here or at the end of the run.
  texts.catch(() => undefined);
  printed.catch(() => undefined);
  return printed;
};

async function run(text: string): Promise<void> {
  Object.assign(console, { log: print });
  const begin = performance.now();
  try {
    await compile(text)(load, {}, print);
    await printed;
    await library.torch.synchronize();
  } catch (error) {
    // What was printed before stands before the error.
    await printed.catch(() => undefined);
    tell({ kind: "error", text: explain(error) });
    return;
  }
  const milliseconds = performance.now() - begin;
  tell({ kind: "done", milliseconds, peak: library.torch.memory().peak });
}

addEventListener("message", ({ data }: MessageEvent<string>) => void run(data));
addEventListener("unhandledrejection", ({ reason }) => {
  tell({ kind: "error", text: explain(reason) });
});

library.torch.init().then(
  () => tell({ kind: "ready" }),
  (error: unknown) => tell({ kind: "error", text: explain(error) }),
);
