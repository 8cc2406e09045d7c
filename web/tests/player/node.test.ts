/** The player in Node, on Dawn. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { create } from "webgpu";
import { serve } from "../../tools/serve.mjs";
import { long } from "../long";
import { cases } from "./cases";
import type { Environment } from "./environment";
import { parseTensors } from "./files";

const web = join(import.meta.dirname, "..", "..");
let server: Awaited<ReturnType<typeof serve>>;
let environment: Environment;

beforeAll(async () => {
  server = await serve(join(web, "tests", "files"));
  const { port } = server.address() as AddressInfo;
  const url = (name: string) => `http://localhost:${port}/${name}`;
  environment = { gpu: create([]), url };
});

afterAll(() => {
  server.closeAllConnections();
  server.close();
});

test.each(Object.keys(cases))("%s", async (name) => {
  await cases[name]!(environment);
});

test("the module has at most 60 KB compressed, and imports nothing", async () => {
  const code = await readFile(join(web, "dist", "npm", "player.js"));
  expect(gzipSync(code).length).toBeLessThanOrEqual(60 * 1024);
  expect(code.toString()).not.toMatch(/\b(import|require)\s*[("'{]|\beval\b|new Function/);
});

/** A file of 150 MB, whose bytes are made as they are asked for: element k of `w` is k. */
function largeFile(program: object, count: number) {
  const metadata = {
    "torch_webgpu.graph": "1",
    "torch_webgpu.program": JSON.stringify(program),
  };
  const header = Buffer.from(
    JSON.stringify({
      __metadata__: metadata,
      w: { dtype: "U32", shape: [count], data_offsets: [0, count * 4] },
    }).padEnd(1200),
  );
  const start = Buffer.alloc(8);
  start.writeBigUInt64LE(BigInt(header.length));
  const head = Buffer.concat([start, header]);
  const size = head.length + count * 4;
  const before = process.memoryUsage().arrayBuffers;
  const seen = { most: 0, peak: 0 };
  const made: typeof fetch = async (_, options) => {
    const [, begin, end] = /(\d+)-(\d+)/.exec(new Headers(options?.headers).get("range")!)!;
    let at = Number(begin);
    const stop = Math.min(Number(end) + 1, size);
    seen.most = Math.max(seen.most, stop - at);
    const body = new ReadableStream({
      type: "bytes",
      pull(controller) {
        seen.peak = Math.max(seen.peak, process.memoryUsage().arrayBuffers - before);
        const from = Math.max(at - head.length, 0) >> 2;
        const words = new Uint32Array(1 << 15);
        for (let k = 0; k < words.length; ++k) {
          words[k] = from + k; // Uint32Array.from takes many times as long
        }
        const skip = at < head.length ? 0 : (at - head.length) & 3;
        const source = at < head.length ? head.subarray(at) : new Uint8Array(words.buffer, skip);
        const chunk = source.slice(0, stop - at);
        at += chunk.length;
        controller.enqueue(new Uint8Array(chunk));
        if (at === stop) {
          controller.close();
        }
      },
    });
    const range = `bytes ${begin}-${stop - 1}/${size}`;
    return new Response(body, { status: 206, headers: { "content-range": range } });
  };
  return { made, seen };
}

const LARGE = 150 * 2 ** 18;

test("150 MB are fetched in pieces of at most 64 MB, and not kept in memory", async () => {
  const { load } = await import("../../player");
  const last = LARGE - 1000;
  const program = {
    producer: "a test",
    buffers: [{ bytes: LARGE * 4, entry: "w" }],
    shaders: [],
    variants: [{ requires: {}, scratch: [], commands: [] }],
    inputs: {},
    outputs: {
      first: { dtype: "U32", shape: [1000], buffer: 0 },
      last: { dtype: "U32", shape: [1000], buffer: 0, offset: last * 4 },
    },
  };
  const { made, seen } = largeFile(program, LARGE);
  const player = await load("http://localhost/large", { gpu: environment.gpu, fetch: made });
  expect(seen.most).toBeLessThanOrEqual(64e6);
  expect(seen.peak).toBeLessThan(64e6);
  const { first, last: end } = (await player.run("run")) as Record<string, Uint32Array>;
  expect([...first!]).toEqual(Array.from({ length: 1000 }, (_, k) => k));
  expect([...end!]).toEqual(Array.from({ length: 1000 }, (_, k) => last + k));
  player.dispose();
});

test("150 MB of a state that no function uses are not kept in memory", async () => {
  const { load } = await import("../../player");
  const program = {
    producer: "a test",
    buffers: [],
    shaders: [],
    variants: [{ requires: {}, scratch: [], commands: [] }],
    inputs: {},
    outputs: {},
    state: { s: { dict: [["w", { tensor: { dtype: "U32", shape: [LARGE], entry: "w" } }]] } },
  };
  const { made, seen } = largeFile(program, LARGE);
  const before = process.memoryUsage().arrayBuffers;
  const player = await load("http://localhost/large", { gpu: environment.gpu, fetch: made });
  (globalThis as { gc?: () => void }).gc?.();
  expect(seen.peak).toBeLessThan(64e6);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64e6);
  const { data } = parseTensors((await player.state("s")).buffer).get("w")!;
  expect(data.length).toBe(LARGE);
  expect(data.findIndex((value, k) => value !== k)).toBe(-1);
  player.dispose();
});

type Call = [string, string, Record<string, Float32Array | BigInt64Array>];
const calls: Call[] = [["mlp", "forward", { x0: new Float32Array(100) }]];
if (long) {
  const inputs = { x: new Float32Array(12 * 16), target: new BigInt64Array(12) };
  calls.push(["training", "step", inputs]);
}

test.each(calls)("1,000 calls do not grow the heap: %s", async (file, name, inputs) => {
  const { load } = await import("../../player");
  const player = await load(environment.url(file), { gpu: environment.gpu });
  const run = async (calls: number) => {
    for (let k = 0; k < calls; ++k) {
      await player.run(name, inputs);
    }
    (globalThis as { gc?: () => void }).gc?.();
    return process.memoryUsage().heapUsed;
  };
  await run(300);
  const before = await run(100);
  const after = await run(1000);
  expect(after - before).toBeLessThan(1 << 20);
  player.dispose();
});

const python = join(import.meta.dirname, "..", "..", "..", ".venv", "bin", "python");

test.runIf(existsSync(python))(
  "Python reads the learning rate that a call set",
  async () => {
    const { load } = await import("../../player");
    const player = await load(environment.url("training"), { gpu: environment.gpu });
    const inputs = { x: new Float32Array(12 * 16), target: new BigInt64Array(12) };
    const folder = mkdtempSync(join(tmpdir(), "state-"));
    try {
      const files: string[] = [];
      for (const lr of [undefined, 0.0003, 0]) {
        await player.run("step", lr === undefined ? inputs : { ...inputs, lr });
        files.push(join(folder, String(lr)));
        writeFileSync(files.at(-1)!, await player.state());
      }
      const code =
        "import sys, torch, torch_webgpu\n" +
        "for path in sys.argv[1:]:\n" +
        "    state = torch.webgpu.load_state(path)\n" +
        "    print(state['optimizer']['param_groups'][0]['lr'], *state)";
      const printed = execFileSync(python, ["-c", code, ...files], { encoding: "utf-8" });
      expect(printed.trim().split("\n")).toEqual(
        ["0.01", "0.0003", "0.0"].map((rate) => `${rate} model optimizer`),
      );
    } finally {
      rmSync(folder, { recursive: true });
      player.dispose();
    }
  },
  60_000,
);
