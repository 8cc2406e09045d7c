/** A program on a device: its buffers, pipelines and commands. It lives as long as the device. */

import { checkVariant, gridOf, type Plan } from "./check";
import { KernelError, quote, refuse } from "./errors";
import { type Values, word } from "./expressions";
import type { Dispatch, Program, Shader, Variant } from "./format";
import { finished } from "./waiting";

// Of WebGPU, whose globals Node has not.
const STORAGE = 0x80;
const COPY_SRC = 0x04;
const COPY_DST = 0x08;
const UNIFORM = 0x40;
const MAP_READ = 0x01;
const COMPUTE = 0x4;
const READ = 0x1;

const PARAMETERS_BINDING = 31;
const PARAMETERS_BYTES = 1024;
/** Offsets of uniform bindings are multiples of it on every device. */
const PARAMETERS_ALIGNMENT = 256;
const ERRORS_BINDING = 30;
const ERRORS_BYTES = 32;
// Dispatches of the first and of the later parts in which an awaited call is submitted. A first
// part is short, because the device waits for it.
const FIRST_PART = 8;
const PART = 32;
/** Bytes that are read back through one buffer; a larger part has a buffer of its own. Devices limit
 * a buffer's size, and there may be more states than that. */
const MOST_STAGED = 64 << 20;

const EXCEPTIONS = new Set(["IndexError", "NotImplementedError", "RuntimeError"]);

export const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

interface Step {
  readonly kind: "dispatch";
  readonly pipeline: GPUComputePipeline;
  readonly group: GPUBindGroup;
  grid: number[];
}

interface Movement {
  readonly kind: "move";
  readonly encode: (encoder: GPUCommandEncoder) => void;
}

/** A dispatch whose parameters or grid depend on numbers or dimensions. */
interface Varying {
  readonly step: Step;
  readonly dispatch: Dispatch;
  /** Where its words begin, counted in words. */
  readonly at: number;
}

/** Where what is read back goes. */
interface Target {
  readonly parts: readonly Part[];
  /** Where the parts begin in the staging buffer. */
  readonly starts: readonly number[];
  readonly size: number;
  /** Whether the error words come first. */
  readonly checks: boolean;
  readonly staging: GPUBuffer;
  /** Whether it was mapped before. Of a new buffer nobody knows yet whether there is memory. */
  readonly isProven: boolean;
}

/** The commands of a function. */
interface Commands {
  readonly steps: (Step | Movement)[];
  readonly varying: Varying[];
  readonly parameters: GPUBuffer;
  readonly words: Uint32Array<ArrayBuffer>;
  readonly reports: boolean;
  /** The values that the words and grids were made with. */
  made: string;
}

/** A part of a buffer of the program that is read back. */
export interface Part {
  readonly buffer: number;
  readonly offset: number;
  readonly bytes: number;
}

export interface RunRequest {
  readonly name: string;
  /** Of the call: numbers and dimensions. */
  readonly values: Values;
  /** Bytes for buffers, and GPU buffers to copy from. */
  readonly writes: readonly { buffer: number; offset: number; bytes: Uint8Array }[];
  readonly copies: readonly {
    from: GPUBuffer;
    fromOffset: number;
    buffer: number;
    offset: number;
    bytes: number;
  }[];
  /** What to read back. With null, errors of shaders are left for a later call, and nothing waits. */
  readonly read: readonly Part[] | null;
}

/** Has WebGPU's errors of `work` become exceptions. */
async function scoped<T>(device: GPUDevice, what: string, work: () => T): Promise<T> {
  device.pushErrorScope("validation");
  device.pushErrorScope("out-of-memory");
  let result: T;
  let memory: Promise<GPUError | null>;
  let validation: Promise<GPUError | null>;
  try {
    result = work();
  } finally {
    memory = device.popErrorScope();
    validation = device.popErrorScope();
    // Awaited below, unless `work` threw or the first of them fails.
    memory.catch(() => undefined);
    validation.catch(() => undefined);
  }
  const [full, invalid] = await Promise.all([memory, validation]);
  if (full !== null) {
    throw new Error(`${what}: the device has not enough memory (${full.message})`);
  }
  if (invalid !== null) {
    refuse(`${what}: ${invalid.message}`);
  }
  return result;
}

export class Machine {
  readonly written = new Set<number>();
  private readonly buffers: GPUBuffer[] = [];
  private readonly functions = new Map<string, Commands>();
  private readonly owned: GPUBuffer[] = [];
  private readonly staging: GPUBuffer[] = [];
  private errors: GPUBuffer | null = null;
  private destroyed = false;

  private constructor(
    readonly device: GPUDevice,
    private readonly program: Program,
  ) {}

  /** Checks the variants for the device and makes what they need. Buffers of `loose` bytes, which no
   * command uses, follow those of the program. `onPipeline` is called for each pipeline that is
   * ready, `fill` to write to the buffers. */
  static async create(
    device: GPUDevice,
    program: Program,
    variants: ReadonlyMap<string, Variant>,
    values: Values,
    loose: readonly number[],
    onPipeline: (ready: number, all: number) => void,
    fill: (machine: Machine, signal: AbortSignal) => Promise<void>,
    signal: AbortSignal | undefined,
  ): Promise<Machine> {
    const machine = new Machine(device, program);
    try {
      const plans = new Map<string, Plan>();
      for (const [name, variant] of variants) {
        const plan = checkVariant(program, name, variant, values, device.limits);
        plans.set(name, plan);
        plan.written.forEach((buffer) => machine.written.add(buffer));
      }
      const scratch = await machine.makeBuffers([...plans.values()], loose);
      signal?.throwIfAborted();
      // Both take long, and neither needs the other.
      const stop = new AbortController();
      const abort = () => stop.abort(signal!.reason);
      signal?.addEventListener("abort", abort, { once: true });
      const filling = fill(machine, stop.signal);
      const making = machine.makePipelines(plans, onPipeline);
      making.catch(() => stop.abort());
      const [filled, made] = await Promise.allSettled([filling, making]);
      signal?.removeEventListener("abort", abort);
      signal?.throwIfAborted();
      for (const result of [made, filled]) {
        if (result.status === "rejected") {
          throw result.reason;
        }
      }
      const pipelines = (made as PromiseFulfilledResult<Pipelines>).value;
      for (const [name, plan] of plans) {
        await scoped(device, `the commands of ${quote(name)} are not valid`, () => {
          const commands = machine.prepare(plan, scratch, pipelines, values);
          machine.functions.set(name, commands);
          // Encoded once and not submitted: WebGPU checks them.
          const encoder = device.createCommandEncoder();
          machine.encode(commands, encoder, false);
          encoder.finish();
        });
      }
      return machine;
    } catch (error) {
      machine.destroy();
      throw error;
    }
  }

  // ---- Preparation

  private buffer(bytes: number, usage: number, label: string): GPUBuffer {
    const size = Math.max(roundUp(bytes, 4), 4);
    const buffer = this.device.createBuffer({ size, usage, label });
    this.owned.push(buffer);
    return buffer;
  }

  /** Makes the buffers of the program. Returns those for scratch, which functions share. */
  private async makeBuffers(plans: Plan[], loose: readonly number[]): Promise<GPUBuffer[]> {
    const usage = STORAGE | COPY_SRC | COPY_DST;
    const sizes: number[] = [];
    for (const plan of plans) {
      [...plan.scratch]
        .sort((a, b) => b - a)
        .forEach((bytes, k) => {
          sizes[k] = Math.max(sizes[k] ?? 0, bytes);
        });
    }
    return scoped(this.device, "its buffers", () => {
      this.program.buffers.forEach(({ bytes }, k) => {
        this.buffers.push(this.buffer(bytes, usage, `buffer ${k}`));
      });
      loose.forEach((bytes) => {
        this.buffers.push(this.buffer(bytes, COPY_SRC | COPY_DST, "state"));
      });
      if (this.program.shaders.some(({ reports }) => reports)) {
        this.errors = this.buffer(ERRORS_BYTES, usage, "errors");
      }
      return sizes.map((bytes) => this.buffer(bytes, usage, "scratch"));
    });
  }

  private layoutOf(shader: Shader): GPUBindGroupLayout {
    const writes = new Set(shader.writes);
    const storage = (binding: number, type: GPUBufferBindingType) => ({
      binding,
      visibility: COMPUTE,
      buffer: { type },
    });
    const entries = Array.from({ length: shader.buffers }, (_, k) =>
      storage(k, writes.has(k) ? "storage" : "read-only-storage"),
    );
    if (shader.reports) {
      entries.push(storage(ERRORS_BINDING, "storage"));
    }
    entries.push(storage(PARAMETERS_BINDING, "uniform"));
    return this.device.createBindGroupLayout({ entries });
  }

  /** Compiles the shaders that the plans use, all at the same time. */
  private async makePipelines(
    plans: ReadonlyMap<string, Plan>,
    onPipeline: (ready: number, all: number) => void,
  ): Promise<Pipelines> {
    const used = new Set<number>();
    for (const { commands } of plans.values()) {
      for (const command of commands) {
        if (command.do === "dispatch") {
          used.add(command.shader);
        }
      }
    }
    let ready = 0;
    onPipeline(0, used.size);
    const layouts = new Map<string, GPUBindGroupLayout>();
    const modules = new Map<string, GPUShaderModule>();
    const made: Pipelines = new Map();
    const results = await Promise.allSettled(
      [...used].map(async (k) => {
        const shader = this.program.shaders[k]!;
        const { label, wgsl, entry, constants } = shader;
        const what = `the shader ${quote(label)}`;
        const form = `${shader.buffers} ${[...shader.writes].sort().join()} ${shader.reports}`;
        const { layout, module, pipeline } = await scoped(this.device, what, () => {
          const layout = layouts.get(form) ?? this.layoutOf(shader);
          layouts.set(form, layout);
          const module = modules.get(wgsl) ?? this.device.createShaderModule({ label, code: wgsl });
          modules.set(wgsl, module);
          const pipeline = this.device.createComputePipelineAsync({
            label,
            layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
            compute: {
              module,
              entryPoint: entry,
              constants: Object.fromEntries(constants ?? []),
            },
          });
          pipeline.catch(() => undefined); // awaited below, unless the scope has an error
          return { layout, module, pipeline };
        });
        try {
          made.set(k, { pipeline: await pipeline, layout });
        } catch (error) {
          const { messages } = await module.getCompilationInfo();
          const first = messages.find(({ type }) => type === "error");
          const text = first === undefined ? "" : ` (line ${first.lineNum}: ${first.message})`;
          const reason = error instanceof Error ? error.message : String(error);
          return refuse(`${what} cannot be compiled: ${reason}${text}`);
        }
        onPipeline(++ready, used.size);
      }),
    );
    for (const result of results) {
      if (result.status === "rejected") {
        throw result.reason;
      }
    }
    return made;
  }

  private prepare(
    plan: Plan,
    scratch: readonly GPUBuffer[],
    pipelines: Pipelines,
    values: Values,
  ): Commands {
    const base = this.program.buffers.length;
    // The largest scratch of a function goes to the first of the shared buffers, and so on.
    const order = plan.scratch.map((bytes, k) => [bytes, k] as const).sort((a, b) => b[0] - a[0]);
    const homes = new Map(order.map(([, k], at) => [k, scratch[at]!]));
    const at = (buffer: number) => {
      const place = plan.place[buffer]!;
      return place < base ? this.buffers[place]! : homes.get(place - base)!;
    };
    // Those that vary come first, so that one write renews them. Equal ones share a place.
    const places: number[] = [];
    const all: number[] = [];
    const known = new Map<string, number>();
    const add = (words: number[]) => {
      const place = all.length;
      all.push(...words);
      while (all.length % (PARAMETERS_ALIGNMENT / 4) !== 0) {
        all.push(0);
      }
      return place;
    };
    let constant = 0;
    for (const wanted of [true, false]) {
      plan.commands.forEach((command, k) => {
        if (command.do === "dispatch" && plan.varies[k] === wanted) {
          const words = command.words.map((part) => word(part, values));
          const key = words.join();
          const place = wanted ? add(words) : (known.get(key) ?? add(words));
          if (!wanted) {
            known.set(key, place);
          }
          places[k] = place;
        }
      });
      constant = wanted ? all.length : constant;
    }
    const parameters = this.buffer(
      all.length * 4 + PARAMETERS_BYTES,
      UNIFORM | COPY_DST,
      "parameters",
    );
    const words = new Uint32Array(all);
    this.device.queue.writeBuffer(parameters, 0, words);
    const groups = new Map<string, GPUBindGroup>();
    const varying: Varying[] = [];
    let reports = false;
    const steps = plan.commands.map((command, k): Step | Movement => {
      if (command.do === "clear") {
        const [buffer, offset, bytes] = command.target;
        const target = at(buffer);
        return {
          kind: "move",
          encode: (encoder) => {
            if (bytes > 0) {
              encoder.clearBuffer(target, offset, bytes);
            }
          },
        };
      }
      if (command.do === "copy") {
        const [source, target] = [at(command.source[0]), at(command.target[0])];
        const { bytes } = command;
        return {
          kind: "move",
          encode: (encoder) => {
            if (bytes > 0) {
              encoder.copyBufferToBuffer(
                source,
                command.source[1],
                target,
                command.target[1],
                bytes,
              );
            }
          },
        };
      }
      const shader = this.program.shaders[command.shader]!;
      const { pipeline, layout } = pipelines.get(command.shader)!;
      reports ||= shader.reports ?? false;
      const key = `${command.shader} ${places[k]} ${command.bind.map(String).join(" ")}`;
      const group =
        groups.get(key) ??
        this.device.createBindGroup({
          layout,
          entries: [
            ...command.bind.map(([buffer, offset, size], binding) => ({
              binding,
              resource: { buffer: at(buffer), offset, size },
            })),
            ...(shader.reports
              ? [{ binding: ERRORS_BINDING, resource: { buffer: this.errors! } }]
              : []),
            {
              binding: PARAMETERS_BINDING,
              resource: { buffer: parameters, offset: places[k]! * 4, size: PARAMETERS_BYTES },
            },
          ],
        });
      groups.set(key, group);
      const most = this.device.limits.maxComputeWorkgroupsPerDimension;
      const step: Step = { kind: "dispatch", pipeline, group, grid: gridOf(command, values, most) };
      if (plan.varies[k]) {
        varying.push({ step, dispatch: command, at: places[k]! });
      }
      return step;
    });
    return { steps, varying, parameters, words: words.slice(0, constant), reports, made: "" };
  }

  // ---- Buffers

  /** Writes bytes to a buffer of the program; the last word is filled up with zeros. */
  write(buffer: number, offset: number, given: Uint8Array): void {
    // The package `webgpu` refuses memory that is shared with workers, where pages take it.
    const bytes = given.buffer instanceof ArrayBuffer ? given : given.slice();
    const whole = bytes.length - (bytes.length % 4);
    const { queue } = this.device;
    const target = this.buffers[buffer]!;
    const source = bytes.buffer as ArrayBuffer;
    if (whole > 0) {
      queue.writeBuffer(target, offset, source, bytes.byteOffset, whole);
    }
    if (whole < bytes.length) {
      const last = new Uint8Array(4);
      last.set(bytes.subarray(whole));
      queue.writeBuffer(target, offset + whole, last);
    }
  }

  gpuBuffer(buffer: number): GPUBuffer {
    return this.buffers[buffer]!;
  }

  // ---- Runs

  /** Makes the words and grids of a function for the values of a call. Throws RangeError, and
   * changes nothing, if one of them has no value. */
  private adapt(commands: Commands, values: Values): void {
    if (commands.varying.length === 0) {
      return;
    }
    const made = [...values].join();
    if (made === commands.made) {
      return;
    }
    const most = this.device.limits.maxComputeWorkgroupsPerDimension;
    const renewed = commands.varying.map(({ dispatch, step, at }) => ({
      step,
      at,
      grid: gridOf(dispatch, values, most),
      words: dispatch.words.map((part) => word(part, values)),
    }));
    for (const { step, at, grid, words } of renewed) {
      step.grid = grid;
      commands.words.set(words, at);
    }
    this.device.queue.writeBuffer(commands.parameters, 0, commands.words);
    commands.made = made;
  }

  private submit(encoder: GPUCommandEncoder): void {
    this.device.queue.submit([encoder.finish()]);
  }

  /** Encodes a function and returns the encoder that is open at its end. In parts, those before the
   * last are submitted here, so that the device computes while the rest is encoded. */
  private encode(
    commands: Commands,
    encoder: GPUCommandEncoder,
    inParts: boolean,
  ): GPUCommandEncoder {
    let pass: GPUComputePassEncoder | null = null;
    let pipeline: GPUComputePipeline | null = null;
    let left = inParts ? FIRST_PART : Infinity;
    for (const step of commands.steps) {
      if (step.kind === "move") {
        pass?.end();
        pass = null;
        step.encode(encoder);
        continue;
      }
      const [x, y, z] = step.grid as [number, number, number];
      if (x === 0 || y === 0 || z === 0) {
        continue;
      }
      if (left === 0) {
        pass?.end();
        pass = null;
        this.submit(encoder);
        encoder = this.device.createCommandEncoder();
        left = PART;
      }
      if (pass === null) {
        pass = encoder.beginComputePass();
        pipeline = null;
      }
      if (step.pipeline !== pipeline) {
        pipeline = step.pipeline;
        pass.setPipeline(pipeline);
      }
      pass.setBindGroup(0, step.group);
      pass.dispatchWorkgroups(x, y, z);
      left -= 1;
    }
    pass?.end();
    return encoder;
  }

  /** Submits a call before it returns; resolves to what is read back. Throws RangeError, before
   * anything is written, for values that the program does not take. */
  run(request: RunRequest): Promise<ArrayBuffer[]> {
    const commands = this.functions.get(request.name)!;
    this.adapt(commands, request.values);
    const { read } = request;
    const isAwaited = read !== null && (read.length > 0 || this.errors !== null);
    // Made first: where the results have no room, nothing of the call may have happened.
    const target = isAwaited ? this.targetOf(read, this.errors !== null) : null;
    for (const { buffer, offset, bytes } of request.writes) {
      this.write(buffer, offset, bytes);
    }
    const encoder = this.device.createCommandEncoder();
    for (const { from, fromOffset, buffer, offset, bytes } of request.copies) {
      encoder.copyBufferToBuffer(from, fromOffset, this.buffers[buffer]!, offset, bytes);
    }
    // Copies from a caller's buffer may be invalid, and so may a staging buffer for which there was
    // no memory. Then WebGPU drops what is submitted with them, and a call is dropped as a whole only
    // if it is submitted as a whole.
    const inParts = target !== null && target.isProven && request.copies.length === 0;
    const last = this.encode(commands, encoder, inParts);
    if (target === null) {
      this.submit(last);
      return Promise.resolve([]);
    }
    return this.readBack(last, target);
  }

  /** Copies of parts of buffers, as they are after all calls so far. */
  async snapshot(parts: readonly Part[]): Promise<ArrayBuffer[]> {
    const groups: Part[][] = [[]];
    let size = 0;
    for (const part of parts) {
      if (size > 0 && size + part.bytes > MOST_STAGED) {
        groups.push([]);
        size = 0;
      }
      groups.at(-1)!.push(part);
      size += part.bytes;
    }
    // All are submitted here, so that no later call comes between them.
    const read = (group: Part[]) =>
      this.readBack(this.device.createCommandEncoder(), this.targetOf(group, false));
    return (await Promise.all(groups.map(read))).flat();
  }

  /** Waits for all calls so far and throws what shaders reported. */
  async sync(): Promise<void> {
    if (this.errors === null) {
      await finished(this.device, this.device.queue.onSubmittedWorkDone());
    } else {
      await this.readBack(this.device.createCommandEncoder(), this.targetOf([], true));
    }
  }

  private targetOf(parts: readonly Part[], checks: boolean): Target {
    let size = checks ? ERRORS_BYTES : 0;
    const starts = parts.map(({ bytes }) => {
      const start = size;
      size += roundUp(bytes, 4);
      return start;
    });
    const found = this.staging.findIndex(
      (buffer) => buffer.size >= size && buffer.size < 2 * size + 256,
    );
    const isProven = found >= 0;
    const usage = MAP_READ | COPY_DST;
    const staging = isProven
      ? this.staging.splice(found, 1)[0]!
      : this.device.createBuffer({ size: Math.max(size, 4), usage, label: "staging" });
    return { parts, starts, size, checks, staging, isProven };
  }

  private async readBack(encoder: GPUCommandEncoder, target: Target): Promise<ArrayBuffer[]> {
    const { parts, starts, size, checks, staging } = target;
    if (checks) {
      encoder.copyBufferToBuffer(this.errors!, 0, staging, 0, ERRORS_BYTES);
      encoder.clearBuffer(this.errors!, 0, ERRORS_BYTES);
    }
    parts.forEach(({ buffer, offset, bytes }, k) => {
      if (bytes > 0) {
        const length = roundUp(bytes, 4);
        encoder.copyBufferToBuffer(this.buffers[buffer]!, offset, staging, starts[k]!, length);
      }
    });
    this.submit(encoder);
    await finished(this.device, staging.mapAsync(READ, 0, size));
    const mapped = staging.getMappedRange(0, size);
    const words = checks ? new Uint32Array(mapped.slice(0, ERRORS_BYTES)) : null;
    const results = parts.map(({ bytes }, k) => mapped.slice(starts[k]!, starts[k]! + bytes));
    staging.unmap();
    this.keep(staging);
    if (words !== null && words[0] !== 0) {
      this.raise(words);
    }
    return results;
  }

  /** Keeps a few buffers for the next calls. Those of states and checkpoints are large. */
  private keep(staging: GPUBuffer): void {
    if (this.destroyed || this.staging.length >= 4 || staging.size > 16 << 20) {
      staging.destroy();
    } else {
      this.staging.push(staging);
    }
  }

  private raise(words: Uint32Array): never {
    const [code, low, high, dimension, size] = words as unknown as number[];
    const [name, text] = this.program.messages.get(String(code)) ?? [
      "RuntimeError",
      "a check failed",
    ];
    const index = BigInt.asIntN(64, (BigInt(high!) << 32n) | BigInt(low!));
    let message = text;
    for (const [key, value] of Object.entries({ index, dim: dimension, size })) {
      message = message.replace(`{${key}}`, String(value));
    }
    throw new KernelError(EXCEPTIONS.has(name) ? name : "RuntimeError", message);
  }

  /** Frees what was made on the device. */
  destroy(): void {
    this.destroyed = true;
    for (const buffer of [...this.owned, ...this.staging]) {
      buffer.destroy();
    }
    this.owned.length = this.staging.length = 0;
  }
}

type Pipelines = Map<number, { pipeline: GPUComputePipeline; layout: GPUBindGroupLayout }>;
