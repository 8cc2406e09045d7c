/** What all pages have in common: which program they run, its inputs, and how the runner calls it.
 *
 * The same modules run in Node, where the runner gives the address as an argument. */

import { readTensors, type Tensors } from "./tensors";

/** A program that is ready. Run k returns what the record's row k has; runs go in order from 0. */
export type Run = (k: number) => Promise<ArrayLike<number>>;

export interface Task {
  /** The name of the program. */
  readonly program: string;
  readonly inputs: Tensors;
  /** The address of a file. */
  readonly url: (name: string) => string;
}

export interface Timed {
  /** Milliseconds: of the first run since the page was asked for or the process began, of others
   * since their own begin. */
  readonly ms: number;
  readonly result: number[];
}

export interface Bench {
  /** The first result, or what went wrong. */
  readonly first: Promise<Timed>;
  run(k: number): Promise<Timed>;
  /** What the adapter says of itself. */
  adapter(): Promise<string>;
}

/** What the runner calls in a page and in Node. */
declare global {
  var bench: Bench | undefined;
}

const address = () => new URL(typeof location === "undefined" ? process.argv[2]! : location.href);

export function start(prepare: (task: Task) => Promise<Run>): void {
  let run: Run;
  const first = (async () => {
    const page = address();
    const program = page.searchParams.get("program")!;
    const url = (name: string) => new URL(`/${name}`, page).href;
    const inputs = await readTensors(url(`files/${program}.inputs.safetensors`));
    run = await prepare({ program, inputs, url });
    const result = await run(0);
    return { ms: performance.now(), result: Array.from(result) };
  })();
  // The runner asks for it later.
  first.catch(() => undefined);
  globalThis.bench = {
    first,
    run: async (k) => {
      const begin = performance.now();
      const result = await run(k);
      const ms = performance.now() - begin;
      return { ms, result: Array.from(result) };
    },
    adapter: async () => {
      const info = (await navigator.gpu.requestAdapter())?.info;
      return info === undefined
        ? "none"
        : `${info.vendor} ${info.architecture} ${info.description}`;
    },
  };
}

/** The rows from `begin` to `end` of a tensor, as a view of its memory. */
export function rows<T extends Float32Array | Int32Array>(
  { data, shape }: { data: T; shape: readonly number[] },
  begin: number,
  end: number,
): T {
  const width = shape.slice(1).reduce((product, size) => product * size, 1);
  return data.subarray(begin * width, end * width) as T;
}
