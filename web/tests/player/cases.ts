/** What the player does, in Node and in Chromium alike. */

import { chooseVariants, type Has } from "../../player/device";
import type { Program as Checked, Requirements } from "../../player/format";
import { DeviceLostError, type GpuTensor, type Input, load, type Output } from "../../player";
import { writeSafetensors } from "../../player/safetensors";
import { check, close, type Environment, equal, rejects } from "./environment";
import {
  bytesOf,
  fileOf,
  jsonOf,
  type Listed,
  parseTensors,
  programOf,
  withProgram,
} from "./files";

type Case = (environment: Environment) => Promise<void>;
type Program = Record<string, unknown>;
export const cases: Record<string, Case> = {};

const example = (environment: Environment) => jsonOf<Program>(environment, "example.json");

// ---- Results

async function play(
  environment: Environment,
  name: string,
  address: boolean,
  change?: (file: ArrayBuffer) => Uint8Array<ArrayBuffer>,
): Promise<void> {
  const listed = (await jsonOf<Listed[]>(environment, "index.json")).find((l) => l.name === name)!;
  const expected = parseTensors(await bytesOf(environment, `${name}.expected`));
  const { gpu } = environment;
  const bytes = address ? null : await bytesOf(environment, name);
  const file = bytes === null ? environment.url(name) : (change?.(bytes) ?? bytes);
  const player = await load(file, { gpu });
  for (const [k, call] of listed.calls.entries()) {
    const inputs: Record<string, Input> = {};
    for (const label of call.inputs) {
      const { dtype, data, bytes, shape } = expected.get(`${k}.in.${label}`)!;
      const given = dtype === "F16" ? new Uint16Array(bytes) : data;
      inputs[label] = listed.placed ? { data: given, shape } : given;
    }
    const results = await player.run(call.function, inputs);
    equal(Object.keys(results).sort(), [...call.outputs].sort(), "the outputs");
    for (const label of call.outputs) {
      const wanted = expected.get(`${k}.out.${label}`)!;
      const result = results[label] as Output;
      const what = `${name}: ${label} of call ${k}`;
      equal(result.constructor.name, wanted.data.constructor.name, what);
      equal(result.shape, wanted.shape, `the shape of ${what}`);
      close(result, wanted.data, listed.rtol, listed.atol, what);
    }
  }
  player.dispose();
}

for (const name of ["mlp", "conv", "attention", "dtypes", "random", "captured", "wide"]) {
  cases[`equals PyTorch: ${name}`] = (environment) => play(environment, name, true);
}
for (const name of ["sized", "sized_images", "sized_attention", "sized_training"]) {
  cases[`equals PyTorch at sizes of a call: ${name}`] = (environment) =>
    play(environment, name, false);
}
for (const name of ["training", "dropout"]) {
  cases[`equals PyTorch: ${name}`] = (environment) => play(environment, name, false);
}

cases["equals PyTorch: training, on a software adapter as on any other"] = (environment) =>
  play(environment, "training", false, (file) => {
    const program = programOf(file);
    for (const f of Object.values<{ variants: { requires: Requirements }[] }>(program.functions)) {
      f.variants = f.variants.filter(({ requires }) => requires.software !== true);
    }
    return withProgram(file, program);
  });

cases["a variant for software adapters is taken on these only"] = async (environment) => {
  const program = programOf(await bytesOf(environment, "training"));
  const { variants } = program.functions.step;
  equal(variants[0].requires.software, true);
  const chosen = (isFallbackAdapter: boolean) => {
    const has = { features: new Set(), limits: {}, info: { isFallbackAdapter } };
    const f = { variants: [{ requires: { software: true } }, { requires: {} }] };
    const checked = { functions: new Map([["f", f]]) } as unknown as Checked;
    return chooseVariants(checked, has as unknown as Has).get("f")!.requires;
  };
  equal(chosen(true), { software: true });
  equal(chosen(false), {});
};

cases["the example of the page, with dimensions and numbers"] = async (environment) => {
  const { gpu } = environment;
  const player = await load(fileOf(await example(environment)), { gpu });
  const calls: [number, { a?: number }, number][] = [
    [5, {}, 2],
    [1024, { a: 0.5 }, 0.5],
    [1, {}, 0.5],
    [65, { a: -3 }, -3],
  ];
  for (const [k, [size, given, factor]] of calls.entries()) {
    const x = Float32Array.from({ length: size }, () => Math.random());
    const { y, count } = await player.run("run", { x, ...given });
    close(
      y as Output,
      x.map((value) => value * factor),
      1e-6,
      0,
      "y",
    );
    equal((y as Output).shape, [size]);
    equal(count, new Int32Array([k + 1]));
  }
  await rejects(player.run("run", { x: [] }), /1 to 1024/, "RangeError");
  await rejects(player.run("run", { x: new Float32Array(1025) }), /1 to 1024/, "RangeError");
  await rejects(player.run("run", { x: [1], replays: 2n }), /no input "replays"/, "TypeError");
  await rejects(player.run("run", { x: [1], a: "1" as unknown as number }), /number/, "TypeError");
  await rejects(player.run("run", { a: 1 }), /needs x/, "TypeError");
  await rejects(player.run("run", { x: new Int32Array(3) }), /Float32Array/, "TypeError");
  await rejects(player.run("walk", {}), /no function "walk"/, "TypeError");
  const { count } = await player.run("run", { x: { data: [1, 2], shape: [2] } });
  equal(count, new Int32Array([5]), "refused calls change nothing: count");
  player.dispose();
};

cases["quotients of sizes"] = async (environment) => {
  const text = JSON.stringify(await example(environment));
  const quotient = ["f32", ["+", "n", 1], ["-", "n", 3]];
  const words = `"words": ["n", ${JSON.stringify(quotient)}, "replays"]`;
  const program = JSON.parse(text.replace(/"words":\s*\["n","a","replays"\]/, words)) as Program;
  check(JSON.stringify(program).includes("f32"), "the program has a quotient");
  const player = await load(fileOf(program), environment);
  const { y } = await player.run("run", { x: [1, 2, 3, 4, 5, 6] });
  const factor = Math.fround(7 / 3);
  equal(
    [...(y as Float32Array)],
    [1, 2, 3, 4, 5, 6].map((x) => Math.fround(factor * x)),
  );
  await rejects(player.run("run", { x: [1, 2, 3] }), /no value/, "RangeError");
  player.dispose();
};

cases["sizes out of their range"] = async (environment) => {
  const one = await load(environment.url("sized"), environment);
  equal(one.functions["forward"]!.inputs["x"]!.shape, ["batch", 20]);
  const batch = /x takes 1 to 70 for batch/;
  await rejects(one.run("forward", { x: [] }), batch, "RangeError");
  await rejects(one.run("forward", { x: new Float32Array(71 * 20) }), batch, "RangeError");
  await rejects(one.run("forward", { x: new Float32Array(30) }), batch, "RangeError");
  const { output } = await one.run("forward", { x: new Float32Array(40) });
  equal((output as Output).shape, [2, 7]);
  one.dispose();
  const two = await load(environment.url("sized_attention"), environment);
  const data = new Float32Array(3 * 41 * 32);
  await rejects(two.run("forward", { x: data }), /batch,length,32.*\{data, shape\}/, "TypeError");
  const long = two.run("forward", { x: { data, shape: [3, 41, 32] } });
  await rejects(long, /1 to 40 for length, not 41/, "RangeError");
  two.dispose();
  const step = await load(environment.url("sized_training"), environment);
  const target = new BigInt64Array(3);
  await rejects(step.run("step", { x: new Float32Array(32), target }), /target/, "RangeError");
  step.dispose();
};

cases["inputs and outputs that stay on the device"] = async (environment) => {
  const adapter = await environment.gpu.requestAdapter();
  const device = await adapter!.requestDevice();
  const file = fileOf(await example(environment));
  const first = await load(file, { device });
  const second = await load(file, { device });
  const { y } = await first.run("run", { x: [1, 2, 3, 4] }, { read: [], gpu: ["y"] });
  const moved = await second.run("run", { x: { data: (y as GpuTensor).buffer, shape: [4] } });
  equal([...(moved["y"] as Float32Array)], [4, 8, 12, 16]);
  const again = await second.run("run", { x: y as GpuTensor }, { read: ["y"] });
  equal([...(again["y"] as Float32Array)], [4, 8, 12, 16]);
  equal(Object.keys(again), ["y"]);
  first.dispose();
  // The device is the caller's: it lives on.
  equal([...((await second.run("run", { x: [3] }))["y"] as Float32Array)], [6]);
  second.dispose();
  device.pushErrorScope("validation");
  device.createBuffer({ size: 4, usage: 8 }).destroy();
  check((await device.popErrorScope()) === null, "a device that works");
  device.destroy();
};

cases["seeds that a call sets"] = async (environment) => {
  const player = await load(environment.url("random"), environment);
  const x = new Float32Array(1000);
  const draw = async (numbers: Record<string, bigint>) =>
    (await player.run("draw", { x, ...numbers }))["uniform"];
  const first = await draw({ seed0: 5n, offset0: 0n });
  const second = await draw({});
  check(String(first) !== String(second), "other numbers in the next call");
  equal(await draw({ seed0: 5n, offset0: 0n }), first);
  check(String(await draw({ seed0: 1n << 63n })) !== String(second), "numbers of another seed");
  await rejects(draw({ seed0: 1n << 64n }), /u64/, "RangeError");
  player.dispose();
};

cases["an index out of range"] = async (environment) => {
  const player = await load(environment.url("index"), environment);
  const i = (...values: bigint[]) => ({ i: new BigInt64Array(values) });
  const error = await rejects(player.run("call", i(1n, 10n, 2n)), /10/, "KernelError");
  equal((error as Error & { exception: string }).exception, "IndexError");
  await player.run("call", i(1n, 9n, 2n));
  await player.run("call", i(1n, -11n, 2n), { read: [] });
  await rejects(player.sync(), /-11/, "KernelError");
  await player.sync();
  player.dispose();
};

cases["states out and in"] = async (environment) => {
  const player = await load(await bytesOf(environment, "training"), environment);
  equal(player.stateNames, ["model", "optimizer"]);
  const wanted = parseTensors(await bytesOf(environment, "training.state"));
  const expected = parseTensors(await bytesOf(environment, "training.expected"));
  const batch = (k: number) => ({
    x: expected.get(`${k}.in.x`)!.data,
    target: expected.get(`${k}.in.target`)!.data,
  });
  const start = await player.state();
  const losses: number[] = [];
  // Calls 2, 5 and 8 are of classify; the learning rate changes at the fourth step.
  for (const k of [0, 1, 3, 4, 6, 7]) {
    const lr = k >= 4 ? { lr: 1e-3 } : {};
    const { loss } = await player.run("step", { ...batch(k), ...lr });
    losses.push((loss as Float32Array)[0]!);
  }
  const model = parseTensors((await player.state("model")).buffer);
  equal([...model.keys()].sort(), [...wanted.keys()].sort());
  for (const [name, { data }] of wanted) {
    close(model.get(name)!.data, data, 1e-3, 1e-4, name);
  }
  const all = parseTensors((await player.state()).buffer);
  for (const name of [
    "model.first.weight",
    "optimizer.state.0.exp_avg",
    "optimizer.state.3.step",
  ]) {
    check(all.has(name), `${name} in ${[...all.keys()]}`);
  }
  equal([...all.get("optimizer.state.0.step")!.data], [6]);
  // Back to the start: the same losses again.
  await player.loadState(start);
  const { loss } = await player.run("step", { ...batch(0), lr: 1e-2 });
  close([(loss as Float32Array)[0]!], [losses[0]!], 1e-5, 0, "the loss");
  const next = await player.run("step", batch(1));
  close([(next["loss"] as Float32Array)[0]!], [losses[1]!], 1e-5, 0, "the second loss");
  // The learning rate goes with the state, as a tensor of its own and in the optimizer's groups.
  await player.run("step", { ...batch(1), lr: 0.0001 });
  const withRate = await player.state();
  close([...parseTensors(withRate.buffer).get("inputs.lr")!.data], [1e-4], 1e-6, 0, "the rate");
  const length = Number(new DataView(withRate.buffer).getBigUint64(0, true));
  const header = new TextDecoder().decode(withRate.subarray(8, 8 + length));
  check(header.includes("0x1.a36e2eb1c432dp-14"), "the optimizer's rate is Python's 1e-4");
  const other = await load(await bytesOf(environment, "training"), environment);
  await other.loadState(withRate);
  for (const k of [3, 4]) {
    const [one, two] = [await player.run("step", batch(k)), await other.run("step", batch(k))];
    equal([...(two["loss"] as Float32Array)], [...(one["loss"] as Float32Array)]);
  }
  other.dispose();
  await player.loadState(await player.state("model"), "model");
  await rejects(player.loadState(await player.state("model")), /lacks/, "GraphFileError");
  await rejects(player.loadState(start, "model"), /unknown/, "GraphFileError");
  await rejects(player.loadState(start.subarray(0, 500)), /truncated|header/, "GraphFileError");
  await rejects(player.state("nothing"), /no state/, "RangeError");
  player.dispose();
};

cases["states that no function uses"] = async (environment) => {
  const tree = { dict: [["w", { tensor: { dtype: "U8", shape: [5], entry: "w" } }]] };
  const program = {
    producer: "a test",
    buffers: [],
    shaders: [],
    variants: [{ requires: {}, scratch: [], commands: [] }],
    inputs: {},
    outputs: {},
    state: { s: tree, t: tree },
  };
  const file = (...values: number[]) => {
    const metadata = {
      "torch_webgpu.graph": "1",
      "torch_webgpu.program": JSON.stringify(program),
    };
    return writeSafetensors([["w", "U8", [5], Uint8Array.from(values)]], metadata);
  };
  const player = await load(file(1, 2, 3, 4, 5), environment);
  const content = async (name: string) => {
    const all = parseTensors((await player.state()).buffer);
    return [...all.get(`${name}.w`)!.data];
  };
  const lose = async () => {
    player.device.destroy();
    await player.device.lost;
  };
  equal([await content("s"), await content("t")], Array(2).fill([1, 2, 3, 4, 5]));
  await lose();
  equal(await content("s"), [1, 2, 3, 4, 5], "after a loss");
  await player.loadState(file(6, 7, 8, 9, 10), "s");
  equal(await content("s"), [6, 7, 8, 9, 10], "after loadState");
  await player.checkpoint();
  await player.loadState(file(0, 0, 0, 0, 0), "s");
  await lose();
  await rejects(player.state(), /last call, from the last checkpoint/, "DeviceLostError");
  equal(await content("s"), [6, 7, 8, 9, 10], "from the checkpoint");
  player.dispose();
};

// ---- Refusals

cases["malformed programs"] = async (environment) => {
  const programs = await jsonOf<Record<string, unknown>>(environment, "malformed.json");
  const accepted: string[] = [];
  for (const [name, program] of Object.entries(programs)) {
    // JSON.parse of the list rounds 2^70 to a number that is no exact integer.
    try {
      (await load(fileOf(program), environment)).dispose();
      accepted.push(name);
    } catch (error) {
      check(
        error instanceof Error && error.name === "GraphFileError",
        `GraphFileError for ${name}, not ${error}`,
      );
    }
  }
  equal(accepted, [], "the malformed programs that load");
};

cases["malformed files"] = async (environment) => {
  const whole = new Uint8Array(await bytesOf(environment, "mlp"));
  const refused = (file: Uint8Array, pattern: RegExp) =>
    rejects(load(file, environment), pattern, "GraphFileError");
  for (let size = 0; size < 64; size += 7) {
    await refused(whole.slice(0, size), /shorter|truncated|header|malformed/);
  }
  await refused(whole.slice(0, whole.length >> 1), /truncated/);
  await refused(whole.slice(0, whole.length - 1), /truncated/);
  const longer = new Uint8Array(whole.length + 1);
  longer.set(whole);
  await refused(longer, /bytes follow/);
  const large = whole.slice();
  new DataView(large.buffer).setBigUint64(0, 1n << 40n, true);
  await refused(large, /header/);
  const text = JSON.stringify(await example(environment));
  await refused(fileOf(text, "3"), /version "3"/);
  await refused(fileOf(text, "2"), /variants|functions|unknown member/);
  await refused(fileOf("{"), /JSON/);
  await refused(fileOf(text.replace("{", '{"producer": "a", ')), /two members "producer"/);
  await refused(fileOf("[".repeat(100000)), /nested/);
  await refused(fileOf(text.replace('"value":2', '"value":1e999')), /finite/);
  await refused(fileOf(text.replace('["ceil/","n",64]', "18446744073709551616")), /expression/);
  await rejects(load(3 as unknown as string, environment), /address/, "TypeError");
};

cases["changed bytes are refused or played"] = async (environment) => {
  const whole = new Uint8Array(await bytesOf(environment, "captured"));
  let seed = 1;
  const random = (most: number) => (seed = (seed * 48271) % 2147483647) % most;
  for (let k = 0; k < 40; ++k) {
    const changed = whole.slice();
    changed[random(whole.length)] = random(256);
    try {
      const player = await load(changed, environment);
      await player.run("run", { x: new Float32Array(24) });
      player.dispose();
    } catch (error) {
      const names = /GraphFileError|TypeError|RangeError|KernelError/;
      check(names.test((error as Error).name), `an error of the player's, not ${error}`);
    }
  }
};

cases["what a device lacks is named"] = async (environment) => {
  const program = (await example(environment)) as { variants: { requires: object }[] };
  const requires = (value: object) => {
    program.variants[0]!.requires = value;
    return load(fileOf(program), environment);
  };
  await rejects(requires({ features: ["teleport"] }), /the feature "teleport"/);
  await rejects(requires({ limits: { maxFun: 1 } }), /"maxFun", which is not known/);
  await rejects(
    requires({ limits: { maxStorageBuffersPerShaderStage: 1000 } }),
    /maxStorageBuffersPerShaderStage of 1000 \(the device has \d+\)/,
  );
  await rejects(requires({ subgroup_size: [200, 300] }), /subgroups of 200 to 300/);
  program.variants.unshift({ ...program.variants[0]!, requires: { features: ["teleport"] } });
  program.variants[1]!.requires = {};
  (await load(fileOf(program), environment)).dispose();
};

cases["scratch buffers that share memory, and copies"] = async (environment) => {
  const program = (await example(environment)) as Record<string, any>; // eslint-disable-line
  const variant = program["variants"][0];
  const [command] = variant.commands;
  variant.scratch = [
    { bytes: 4096, first: 0, last: 1, slot: 0 },
    { bytes: 4096, first: 1, last: 2, slot: 1 },
    { bytes: 4096, first: 2, last: 3, slot: 0 },
  ];
  const copy = (from: number, to: number) => ({
    do: "copy",
    source: [from, 0],
    target: [to, 0],
    bytes: 4096,
  });
  command.bind[1] = [5, 0, 4096];
  variant.commands = [copy(0, 3), copy(3, 4), copy(4, 5), command];
  const player = await load(fileOf(program), environment);
  const { y } = await player.run("run", { x: [1, 2, 3] });
  equal([...(y as Float32Array)], [2, 4, 6]);
  player.dispose();
  variant.scratch[2].slot = 1;
  await rejects(load(fileOf(program), environment), /share memory/);
  variant.scratch[2].slot = 0;
  variant.scratch[1].last = 1;
  await rejects(load(fileOf(program), environment), /lifetime/);
  variant.scratch[1].last = 2;
  variant.commands[1] = copy(3, 3);
  await rejects(load(fileOf(program), environment), /within one buffer/);
};

// ---- Fetching

type Fetch = typeof fetch;

cases["a fetch that breaks off goes on where it stopped"] = async (environment) => {
  const asked: string[] = [];
  let breaks = 3;
  const breaking: Fetch = async (url, options) => {
    const range = new Headers(options?.headers).get("range")!;
    asked.push(range);
    const response = await fetch(url, options);
    if (breaks === 0 || asked.length === 1) {
      return response;
    }
    --breaks;
    const reader = response.body!.getReader();
    let left = 100_000;
    const body = new ReadableStream({
      async pull(controller) {
        const { value, done } = await reader.read();
        if (done || left <= 0) {
          await reader.cancel();
          controller.error(new TypeError("network error"));
          return;
        }
        controller.enqueue(value.subarray(0, left));
        left -= value.length;
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  const options = { ...environment, fetch: breaking, cache: false };
  const player = await load(environment.url("wide"), options);
  equal(breaks, 0, "the breaks left");
  const begins = asked.slice(1).map((range) => Number(/=(\d+)/.exec(range)![1]));
  check(
    begins.every((begin, k) => k === 0 || begin > begins[k - 1]!),
    `each request to begin later than the one before: ${begins}`,
  );
  const whole = await load(await bytesOf(environment, "wide"), environment);
  const x0 = Float32Array.from({ length: 1400 }, (_, k) => Math.sin(k));
  equal(
    (await player.run("forward", { x0 }))["output"],
    (await whole.run("forward", { x0 }))["output"],
  );
  player.dispose();
  whole.dispose();
};

cases["servers: without ranges, with a changed file, with errors"] = async (environment) => {
  const x0 = new Float32Array(1400).fill(0.5);
  const outputs: unknown[] = [];
  const through = async (change: Fetch) => {
    const options = { ...environment, fetch: change, cache: false };
    const player = await load(environment.url("wide"), options);
    outputs.push((await player.run("forward", { x0 }))["output"]);
    player.dispose();
  };
  await through(fetch);
  let requests = 0;
  await through((url) => {
    ++requests;
    return fetch(url); // without the Range header
  });
  equal(requests, 1, "the requests to a server that ignores ranges");
  // Headers that another origin does not show.
  await through(async (url, options) => {
    const response = await fetch(url, options);
    return new Response(response.body, { status: response.status });
  });
  let busy = 2;
  await through((url, options) =>
    busy-- > 0 ? Promise.resolve(new Response("", { status: 503 })) : fetch(url, options),
  );
  outputs.forEach((output) => equal(output, outputs[0]));
  let version = 0;
  const changing: Fetch = async (url, options) => {
    const { body, status, headers } = await fetch(url, options);
    const changed = new Headers(headers);
    changed.set("etag", `"${version++}"`);
    return new Response(body, { status, headers: changed });
  };
  await rejects(through(changing), /changed while it was fetched/);
  await rejects(load(environment.url("missing"), environment), /status 404/);
  await rejects(
    through(async (url) => new Response((await (await fetch(url)).arrayBuffer()).slice(0, 9000))),
    /truncated/,
  );
};

cases["pieces are kept for the next visit"] = async (environment) => {
  let bytes = 0;
  const counting: Fetch = async (url, options) => {
    const response = await fetch(url, options);
    const range = new Headers(options?.headers).get("range")!;
    const [, begin, end] = /(\d+)-(\d+)/.exec(range)!;
    bytes += Number(end) + 1 - Number(begin);
    return response;
  };
  const visit = async (cache: boolean) => {
    bytes = 0;
    const player = await load(environment.url("wide"), { ...environment, fetch: counting, cache });
    const { output } = await player.run("forward", { x0: new Float32Array(1400).fill(1) });
    player.dispose();
    return { output, bytes };
  };
  const first = await visit(false);
  const isBrowser = typeof caches !== "undefined";
  // As a player left it that had pieces of another size: of this file, and of another one.
  const left = await Promise.all(
    ["wide", "mlp"].map(async (name) => {
      const { headers } = await fetch(environment.url(name), { method: "HEAD" });
      const version = encodeURIComponent(headers.get("etag") ?? headers.get("last-modified")!);
      return `${environment.url(name)}%23twg-${version}-524288-67108864`;
    }),
  );
  const cache = isBrowser ? await caches.open("torch-webgpu") : null;
  for (const address of left) {
    await cache?.put(address, new Response("bytes"));
  }
  check(first.bytes > 1_680_000, `the whole file to be fetched, not ${first.bytes} bytes`);
  await visit(true);
  const again = await visit(true);
  equal(again.output, first.output);
  // Node has no such cache.
  const isKept = again.bytes < 300_000;
  equal(isKept, isBrowser, "whether the pieces were kept");
  const kept = await Promise.all(left.map(async (one) => (await cache?.match(one)) !== undefined));
  equal(kept, [false, isBrowser], "whether pieces of another size were kept");
  equal((await visit(false)).bytes, first.bytes, "the bytes fetched without the cache");
};

cases["progress, a Blob, and a load that is aborted"] = async (environment) => {
  const seen: { bytes: number; pipelines: number }[] = [];
  let last = { bytes: 0, totalBytes: 1, pipelines: 0, totalPipelines: 1 };
  const player = await load(new Blob([await bytesOf(environment, "wide")]), {
    ...environment,
    onProgress: (progress) => {
      seen.push(progress);
      last = progress;
    },
  });
  check(
    last.bytes === last.totalBytes && last.totalBytes === 1_680_000,
    `all bytes: ${last.bytes}`,
  );
  check(last.pipelines === last.totalPipelines && last.pipelines > 0, "all pipelines");
  check(
    seen.every(
      (now, k) =>
        k === 0 || (now.bytes >= seen[k - 1]!.bytes && now.pipelines >= seen[k - 1]!.pipelines),
    ),
    "progress that never goes back",
  );
  player.dispose();
  await rejects(player.run("forward", { x0: new Float32Array(1400) }), /disposed/);
  const controller = new AbortController();
  const slow: Fetch = async (url, options) => {
    const response = await fetch(url, options);
    setTimeout(() => controller.abort(new Error("enough")), 20);
    await new Promise((done) => setTimeout(done, 60));
    return response;
  };
  const { signal } = controller;
  await rejects(load(environment.url("wide"), { ...environment, fetch: slow, signal }), /enough/);
};

// ---- Devices

cases["inputs in memory that is shared with workers"] = async (environment) => {
  // A page has it only where it is isolated from others.
  if (typeof SharedArrayBuffer !== "undefined") {
    const player = await load(environment.url("mlp"), environment);
    const x0 = new Float32Array(100).fill(0.1);
    const shared = new Float32Array(new SharedArrayBuffer(400)).fill(0.1);
    const wanted = (await player.run("forward", { x0 }))["output"];
    equal((await player.run("forward", { x0: shared }))["output"], wanted);
    player.dispose();
  }
};

cases["a device that is lost in the middle of training"] = async (environment) => {
  const player = await load(environment.url("training"), environment);
  const expected = parseTensors(await bytesOf(environment, "training.expected"));
  const batch = { x: expected.get("0.in.x")!.data, target: expected.get("0.in.target")!.data };
  const step = async () => ((await player.run("step", batch))["loss"] as Float32Array)[0]!;
  const losses = [await step(), await step(), await step()];
  await player.checkpoint();
  const fourth = await step();
  const before = player.device;
  const late = step();
  player.device.destroy();
  const error = await rejects(late, /lost/, "DeviceLostError");
  equal((error as DeviceLostError).callsLost, 2);
  // It goes on from the checkpoint.
  close([await step()], [fourth], 1e-5, 0, "the loss after the checkpoint");
  check(player.device !== before, "another device");
  check(losses[2]! > fourth, "a loss that falls");
  player.dispose();
};

cases["a device that is lost between calls"] = async (environment) => {
  const player = await load(environment.url("captured"), environment);
  const x = new Float32Array(24);
  const count = async () => ((await player.run("run", { x }))["count"] as Float32Array)[0]!;
  const lose = async () => {
    const { device } = player;
    device.destroy();
    await device.lost;
  };
  equal([await count(), await count()], [1, 2]);
  await player.checkpoint();
  await lose();
  equal(await count(), 3, "the count after a loss that undid nothing");
  await lose();
  await rejects(count(), /without the last call,/, "DeviceLostError");
  equal(await count(), 3, "the count from the checkpoint");
  check((await player.state()).length > 100, "a state");
  player.dispose();
  const every = await load(environment.url("captured"), { ...environment, checkpointEvery: 2 });
  for (let k = 0; k < 5; ++k) {
    await every.run("run", { x });
  }
  every.device.destroy();
  await rejects(every.run("run", { x }), /without the last 2 calls/, "DeviceLostError");
  equal([...((await every.run("run", { x }))["count"] as Float32Array)], [5]);
  every.dispose();
  const adapter = await environment.gpu.requestAdapter();
  const device = await adapter!.requestDevice();
  const borrowed = await load(fileOf(await example(environment)), { device });
  device.destroy();
  await device.lost;
  await rejects(borrowed.run("run", { x: [1] }), /load the file again/, "DeviceLostError");
  await rejects(borrowed.run("run", { x: [1] }), /load the file again/, "DeviceLostError");
};

cases["a device that is lost under a program that keeps nothing"] = async (environment) => {
  const player = await load(environment.url("mlp"), environment);
  const x0 = new Float32Array(100).fill(0.1);
  const run = async () => (await player.run("forward", { x0 }))["output"];
  const first = await run();
  await run();
  player.device.destroy();
  await player.device.lost;
  // No call was under way, and none of those before matters to the next one.
  equal(await run(), first, "the result on the new device");
  const late = run();
  player.device.destroy();
  const error = await rejects(
    late,
    /The next call runs on a new one, and nothing/,
    "DeviceLostError",
  );
  equal((error as DeviceLostError).callsLost, 0);
  equal(await run(), first, "the result on the third device");
  player.dispose();
};

cases["two players at once"] = async (environment) => {
  const [one, two] = await Promise.all([
    load(environment.url("captured"), environment),
    load(environment.url("captured"), environment),
  ]);
  const x = new Float32Array(24).fill(1);
  const run = async (player: typeof one, calls: number) => {
    // Not awaited one by one: calls run in their order.
    const results = Array.from({ length: calls }, () => player.run("run", { x }));
    return (await Promise.all(results)).map(({ count }) => (count as Float32Array)[0]!);
  };
  const [a, b] = await Promise.all([run(one, 5), run(two, 7)]);
  equal(
    [a, b],
    [
      [1, 2, 3, 4, 5],
      [1, 2, 3, 4, 5, 6, 7],
    ],
  );
  one.dispose();
  equal(await run(two, 1), [8]);
  two.dispose();
};

cases["1,000 steps without growth"] = async (environment) => {
  const adapter = await environment.gpu.requestAdapter();
  const device = await adapter!.requestDevice();
  let buffers = 0;
  let groups = 0;
  const { createBuffer, createBindGroup } = device;
  device.createBuffer = (descriptor) => {
    ++buffers;
    return createBuffer.call(device, descriptor);
  };
  device.createBindGroup = (descriptor) => {
    ++groups;
    return createBindGroup.call(device, descriptor);
  };
  const trained = await load(await bytesOf(environment, "training"), { ...environment, device });
  const recorded = parseTensors(await bytesOf(environment, "training.expected"));
  const batch = { x: recorded.get("0.in.x")!.data, target: recorded.get("0.in.target")!.data };
  const before = await trained.run("step", batch);
  const made = [buffers, groups];
  for (let k = 0; k < 999; ++k) {
    await trained.run("step", batch, k % 2 ? {} : { read: [] });
  }
  const after = await trained.run("step", batch);
  const loss = (of: typeof before) => (of["loss"] as Float32Array)[0]!;
  check(loss(after) < loss(before) / 100, `the loss fell from ${loss(before)} to ${loss(after)}`);
  equal([buffers, groups], made, "buffers and bind groups after 1,000 training steps");
  trained.dispose();
  const player = await load(await bytesOf(environment, "mlp"), { ...environment, device });
  const x0 = new Float32Array(100).fill(0.1);
  const first = await player.run("forward", { x0 });
  const warm = [buffers, groups];
  for (let k = 0; k < 1000; ++k) {
    const { output } = await player.run("forward", { x0 }, k % 2 ? {} : { read: [] });
    if (output !== undefined) {
      equal(output, first["output"]);
    }
  }
  equal([buffers, groups], warm, "buffers and bind groups after 1,000 steps");
  player.dispose();
  device.destroy();
};

cases["a call whose results have no room changes nothing"] = async (environment) => {
  const adapter = await environment.gpu.requestAdapter();
  const device = await adapter!.requestDevice();
  const { createBuffer } = device;
  let make: ((size: number) => GPUBuffer) | null = null;
  device.createBuffer = (descriptor) =>
    make !== null && descriptor.label === "staging"
      ? make(descriptor.size)
      : createBuffer.call(device, descriptor);
  device.addEventListener("uncapturederror", (event) => event.preventDefault());
  const program = {
    producer: "a test",
    buffers: [{ bytes: 4 }],
    inputs: {},
    outputs: { count: { dtype: "U32", shape: [1], buffer: 0 } },
    shaders: [
      {
        ...{ label: "add 1", entry: "main", buffers: 1, writes: [0] },
        wgsl:
          "@group(0) @binding(0) var<storage, read_write> count: array<u32>;" +
          "@compute @workgroup_size(1) fn main() { count[0] += 1u; }",
      },
    ],
    variants: [
      {
        ...{ requires: {}, scratch: [] },
        // So many are submitted in parts.
        commands: Array(20).fill({
          ...{ do: "dispatch", shader: 0, bind: [[0, 0, 4]], grid: [1, 1, 1], words: [] },
        }),
      },
    ],
  };
  const player = await load(fileOf(program), { ...environment, device });
  const refuse = (): GPUBuffer => {
    throw new RangeError("no memory");
  };
  // What WebGPU gives for a buffer that it cannot make: what is submitted with it is dropped.
  const invalid = (size: number) => createBuffer.call(device, { size, usage: 1 | 128 });
  for (const one of [refuse, invalid]) {
    make = one;
    await rejects(player.run("run", {}), /^/);
  }
  make = null;
  for (const count of [20, 40, 60]) {
    equal((await player.run("run", {}))["count"], new Uint32Array([count]));
  }
  player.dispose();
  device.destroy();
};

cases["nothing of a file has a meaning for JavaScript"] = async (environment) => {
  const text = JSON.stringify(await example(environment));
  const renamed = text.replaceAll('"x"', '"__proto__"').replaceAll('"y"', '"constructor"');
  const player = await load(fileOf(renamed), environment);
  const inputs = JSON.parse('{"__proto__": [1, 2]}') as Record<string, Input>;
  const result = await player.run("run", inputs);
  equal([...(result["constructor"] as Float32Array)], [2, 4]);
  player.dispose();
  const program = JSON.parse(text);
  const { inputs: i, outputs, variants, ...rest } = program;
  delete rest.numbers.replays.step;
  const functions = { then: { inputs: i, outputs, variants, steps: { replays: "1" } } };
  const thenable = await load(fileOf({ ...rest, functions }, "2"), environment);
  const { count } = await thenable.run("then", { x: [1] });
  equal(count, new Int32Array([1]));
  thenable.dispose();
};

cases["files of version 2"] = async (environment) => {
  const program = programOf(await bytesOf(environment, "training"));
  equal(Object.keys(program.functions), ["step", "classify"]);
  // Without the commands, whose shaders take long to compile.
  for (const name of ["step", "classify"]) {
    program.functions[name].variants = [{ requires: {}, scratch: [], commands: [] }];
  }
  program.state = {};
  program.buffers.forEach((buffer: { entry?: string }) => delete buffer.entry);
  const player = await load(fileOf(program, "2"), environment);
  equal(player.functions["step"]!.inputs["lr"], { dtype: "F32", shape: [], optional: true });
  equal(player.functions["classify"]!.outputs["scores"], { dtype: "F32" });
  await rejects(player.run("step", {}), /needs x, target/, "TypeError");
  player.dispose();
};
