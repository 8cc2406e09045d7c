/** Measures all players on all programs, in turns, and prints the tables: `make bench-web`.
 *
 * Arguments: names of programs and of players, to run only these; --seconds N, which a program's
 * runs may take (one is made in any case); --firsts N, how often a page is opened anew at most;
 * --patience N, seconds within which a page has its first result and a run its own, or is given up;
 * --in Chromium or Node; --json PATH. */

import { type ChildProcess, fork } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import type { Browser } from "playwright-core";
import { findChromium, launch } from "../tests/chromium";
import { checkRun } from "./check";
import type { Timed } from "./pages/page";
import { type Bytes, figures, losses, OURS, ratios, type Row } from "./table";

// Of the module that build.mjs makes of this: web/dist/bench/run.mjs.
const DIST = import.meta.dirname;
const WEB = join(DIST, "..", "..");

// Not a part of this module: it would take itself for the program that serves the site.
const { serve } = (await import(
  join(WEB, "tools", "serve.mjs")
)) as typeof import("../tools/serve.mjs");

const PACKAGES: Record<string, string> = {
  [OURS]: "package.json",
  onnxruntime: "bench/node_modules/onnxruntime-web/package.json",
  transformers: "bench/node_modules/@huggingface/transformers/package.json",
  tensorflow: "bench/node_modules/@tensorflow/tfjs-core/package.json",
};
const PLAYERS = Object.keys(PACKAGES);
/** What the others need that Node has not, README.md says. */
const IN_NODE: readonly string[] = [OURS, "tensorflow"];

/** How often a page is opened anew, and the most rounds after the first result: `warm` ones that are
 * not counted, in which pipelines and pools are still made, and timed ones. */
const PROGRAMS: Record<string, { firsts: number; warm: number; runs: number }> = {
  "minilm-1": { firsts: 3, warm: 1, runs: 20 },
  // A run takes a minute or more on a software adapter.
  "minilm-32": { firsts: 1, warm: 0, runs: 3 },
  resnet: { firsts: 3, warm: 1, runs: 10 },
  gpt: { firsts: 3, warm: 1, runs: 60 },
  digits: { firsts: 3, warm: 1, runs: 60 },
};
/** Timed rounds that are made however long they take. */
const LEAST = 1;

/** A player with its program, in a page or in a process. */
interface Session {
  readonly first: Timed;
  /** Paths that were fetched until the first result. */
  readonly fetched: ReadonlySet<string>;
  run(k: number): Promise<Timed>;
  close(): Promise<void>;
}

interface Environment {
  readonly name: string;
  open(player: string, program: string): Promise<Session>;
}

/** What `work` gives, unless it takes longer than so many seconds. */
async function within<T>(patience: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout;
  const late = new Promise<never>((_, fail) => {
    const error = new Error(`there was no result within ${patience} s`);
    timer = setTimeout(() => fail(error), 1000 * patience);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

const messageOf = (error: unknown) =>
  (error instanceof Error ? error.message : String(error)).replace(
    /^page\.evaluate: (Error: )?/,
    "",
  );

function inChromium(browser: Browser, base: string, patience: number): Environment {
  return {
    name: "Chromium",
    open: async (player, program) => {
      // A context of its own: nothing is in its cache.
      const context = await browser.newContext();
      try {
        const page = await context.newPage();
        const fetched = new Set<string>();
        page.on("request", (request) => {
          // Not blobs, which pages make of what they fetched.
          if (request.url().startsWith(`${base}/`)) {
            fetched.add(new URL(request.url()).pathname);
          }
        });
        await page.goto(`${base}/pages/${player}/?program=${program}`);
        await page.waitForFunction("globalThis.bench !== undefined");
        const first: Timed = await within(patience, page.evaluate("bench.first"));
        return {
          first,
          fetched: new Set(fetched),
          run: (k) => within(patience, page.evaluate(`bench.run(${k})`)),
          close: () => context.close(),
        };
      } catch (error) {
        await context.close();
        throw error;
      }
    },
  };
}

function inNode(base: string, patience: number): Environment {
  const ask = (child: ChildProcess, message?: number) =>
    new Promise<Timed>((done, fail) => {
      const leave = (code: number | null) => fail(new Error(`the process ended with ${code}`));
      child.once("exit", leave);
      child.once("message", (answer: Timed | { error: string }) => {
        child.off("exit", leave);
        if ("error" in answer) {
          fail(new Error(answer.error));
        } else {
          done(answer);
        }
      });
      if (message !== undefined) {
        child.send(message);
      }
    });
  return {
    name: "Node",
    open: async (player, program) => {
      const address = `${base}/?program=${program}`;
      // As a page's: with no shaders that a driver compiled in a process before.
      const env = {
        ...process.env,
        MESA_SHADER_CACHE_DISABLE: "true",
        __GL_SHADER_DISK_CACHE: "0",
      };
      const child = fork(join(DIST, "node", "node.mjs"), [address, player], { silent: true, env });
      const close = async () => {
        child.kill();
      };
      try {
        const first = await within(patience, ask(child));
        return { first, fetched: new Set(), run: (k) => within(patience, ask(child, k)), close };
      } catch (error) {
        await close();
        throw error;
      }
    },
  };
}

const versionOf = (player: string): string =>
  (JSON.parse(readFileSync(join(WEB, PACKAGES[player]!), "utf8")) as { version: string }).version;

const sizes = new Map<string, Bytes>();

function sizeOf(path: string): Bytes {
  let size = sizes.get(path);
  if (size === undefined) {
    const bytes = readFileSync(join(DIST, path.endsWith("/") ? `${path}index.html` : path));
    size = { raw: bytes.length, gzip: gzipSync(bytes).length };
    sizes.set(path, size);
  }
  return size;
}

/** The inputs are no part of it. */
function downloadOf(fetched: ReadonlySet<string>): { code: Bytes; model: Bytes } {
  const add = (a: Bytes, b: Bytes) => ({ raw: a.raw + b.raw, gzip: a.gzip + b.gzip });
  const total = { code: { raw: 0, gzip: 0 }, model: { raw: 0, gzip: 0 } };
  for (const path of fetched) {
    if (!path.endsWith(".inputs.safetensors") && path !== "/favicon.ico") {
      const kind = path.startsWith("/files/") ? "model" : "code";
      total[kind] = add(total[kind], sizeOf(path));
    }
  }
  return total;
}

/** All players of one program: pages are opened anew in turns, then runs are timed in turns. */
async function measure(
  environment: Environment,
  program: string,
  players: readonly string[],
  limits: { firsts: number; seconds: number },
): Promise<Row[]> {
  const { warm, runs } = PROGRAMS[program]!;
  const firsts = Math.min(PROGRAMS[program]!.firsts, limits.firsts);
  const record = JSON.parse(readFileSync(join(DIST, "files", `${program}.json`), "utf8")) as {
    unit: string;
    results: number[][];
  };
  const states = players.map((player) => ({
    player,
    session: null as Session | null,
    firsts: [] as number[],
    runs: [] as number[],
    difference: 0,
    lost: null as string | null,
  }));
  const attempt = async (state: (typeof states)[number], work: () => Promise<void>) => {
    if (state.lost === null) {
      await work().catch(async (error: unknown) => {
        state.lost = messageOf(error);
        await state.session?.close().catch(() => undefined);
      });
    }
  };
  const check = (state: (typeof states)[number], k: number, { result }: Timed) => {
    state.difference = Math.max(state.difference, checkRun(k, result, record.results));
  };
  for (let round = 0; round < firsts; ++round) {
    for (const state of states) {
      await attempt(state, async () => {
        await state.session?.close();
        state.session = null;
        state.session = await environment.open(state.player, program);
        check(state, 0, state.session.first);
        state.firsts.push(state.session.first.ms);
      });
    }
  }
  const begin = performance.now();
  for (let k = 1; k <= runs + warm; ++k) {
    if (k > warm + LEAST && performance.now() - begin > 1000 * limits.seconds) {
      break;
    }
    // Who comes first changes: what runs after a large peer finds other caches of the processor.
    const order = states.map((_, n) => states[(n + k) % states.length]!);
    for (const state of order) {
      await attempt(state, async () => {
        const timed = await state.session!.run(k);
        check(state, k, timed);
        if (k > warm) {
          state.runs.push(timed.ms);
        }
      });
    }
  }
  return Promise.all(
    states.map(async ({ player, session, lost, ...measured }): Promise<Row> => {
      if (lost === null) {
        await session!.close();
      }
      const fetched = session?.fetched ?? new Set<string>();
      return {
        program,
        player,
        unit: record.unit,
        environment: environment.name,
        version: versionOf(player),
        outcome:
          lost === null
            ? { ...measured, ...(fetched.size > 0 && { download: downloadOf(fetched) }) }
            : { lost },
      };
    }),
  );
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    options: {
      seconds: { type: "string", default: "60" },
      json: { type: "string" },
      in: { type: "string" },
      firsts: { type: "string", default: "3" },
      patience: { type: "string", default: "180" },
    },
    allowPositionals: true,
  });
  const pick = (all: readonly string[]) => {
    const chosen = all.filter((name) => positionals.includes(name));
    return chosen.length > 0 ? chosen : all;
  };
  const unknown = positionals.filter((name) => !(name in PROGRAMS) && !(name in PACKAGES));
  if (unknown.length > 0) {
    throw new Error(`unknown: ${unknown.join(", ")}`);
  }
  const limits = { firsts: Number(values.firsts), seconds: Number(values.seconds) };
  const patience = Number(values.patience);
  const programs = pick(Object.keys(PROGRAMS));
  const players = pick(PLAYERS);
  const server = await serve(DIST);
  const base = `http://localhost:${(server.address() as AddressInfo).port}`;
  const rows: Row[] = [];
  const show = async (environment: Environment, machine: string, players: readonly string[]) => {
    const here: Row[] = [];
    for (const program of programs) {
      console.error(`${environment.name}: ${program}`);
      const measured = await measure(environment, program, players, limits);
      // At once, so that a run that is broken off leaves what it has.
      console.error(`${figures(measured)}\n`);
      here.push(...measured);
      rows.push(...measured);
      if (values.json !== undefined) {
        writeFileSync(values.json, JSON.stringify(rows, null, 1));
      }
    }
    console.log(`## ${environment.name}\n\n${machine}\n\n${figures(here)}\n`);
    console.log(`The best of the others over ${OURS}:\n\n${ratios(here)}\n\n${losses(here)}\n`);
  };
  const versions = players.map((player) => `${player} ${versionOf(player)}`).join(", ");
  const path = findChromium();
  const wanted = (name: string) => values.in === undefined || values.in === name;
  if (path === null) {
    console.log("There is no Chromium: only Node is measured.\n");
  } else if (wanted("Chromium")) {
    const browser = await launch(path);
    try {
      // The first page of a browser starts its GPU process, which is no player's time.
      const page = await browser.newPage();
      await page.goto(`${base}/pages/`);
      const adapter = await page.evaluate(async () => {
        const adapter = await navigator.gpu.requestAdapter();
        await adapter?.requestDevice();
        return `${adapter?.info.vendor} ${adapter?.info.architecture}`;
      });
      await page.close();
      await show(
        inChromium(browser, base, patience),
        `Chromium ${browser.version()}, ${adapter}`,
        players,
      );
    } finally {
      await browser.close();
    }
  }
  if (wanted("Node")) {
    const here = players.filter((player) => IN_NODE.includes(player));
    await show(inNode(base, patience), `Node ${process.version}, Dawn`, here);
  }
  console.log(`${versions}; ${cpus().length} x ${cpus()[0]?.model}`);
  server.closeAllConnections();
  server.close();
}

await main();
