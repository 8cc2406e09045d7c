/** The player in Node, on Dawn. */

import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { create } from "webgpu";
import { serve } from "../../tools/serve.mjs";
import { cases } from "./cases";
import type { Environment } from "./environment";

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
  const code = await readFile(join(web, "dist", "player.js"));
  expect(gzipSync(code).length).toBeLessThanOrEqual(60 * 1024);
  expect(code.toString()).not.toMatch(/\b(import|require)\s*[("'{]|\beval\b|new Function/);
});

test("1,000 calls do not grow the heap", async () => {
  const { load } = await import("../../player");
  const player = await load(environment.url("mlp"), { gpu: environment.gpu });
  const x0 = new Float32Array(100);
  const run = async (calls: number) => {
    for (let k = 0; k < calls; ++k) {
      await player.run("forward", { x0 });
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
