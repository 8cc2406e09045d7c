/** A loaded program: what a page calls. */

import { bytesOf, checkPlace, checkProgram, looseEntries, visitTree } from "./check";
import { chooseVariants, descriptorOf, type Has } from "./device";
import {
  type ArrayOf,
  type ArraysOf,
  type DType,
  fromBytes,
  toBytes,
  type TypedArray,
  typeOf,
} from "./dtypes";
import { DeviceLostError, GraphFileError, quote, refuse } from "./errors";
import { type GraphFunction, parseProgram, type Program, type View } from "./format";
import { parseJson } from "./json";
import { Machine, type Part, type RunRequest } from "./machine";
import { bitsOf } from "./numbers";
import { type Header, headerLength, parseHeader, writeSafetensors } from "./safetensors";
import { openSource, PIECE, type Source } from "./source";
import {
  listKept,
  listTensors,
  NUMBERS_KEY,
  STATE_KEY,
  type StateTensor,
  statesToJson,
  withRates,
} from "./state";
import { readTensors } from "./weights";

/** How far `load` is. Bytes are those of tensors. */
export interface Progress {
  readonly bytes: number;
  readonly totalBytes: number;
  readonly pipelines: number;
  readonly totalPipelines: number;
}

export interface LoadOptions {
  /** The device to use, or a function that makes one, now and after a loss. Without it the player
   * asks for one that has what the file requires. A device that is given stays the caller's. */
  device?: GPUDevice | (() => Promise<GPUDevice>);
  /** What gives adapters, for Node: `create([])` of the package `webgpu`. */
  gpu?: GPU;
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
  /** Whether the pieces of a fetched file are kept in the browser's cache, for the next visit and
   * for a lost device. True if it is not given. */
  cache?: boolean;
  /** In place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Makes a checkpoint after each so many calls: what a lost device is rebuilt with. 0, which is
   * the default, makes none. */
  checkpointEvery?: number;
}

/** A tensor in GPU memory of the player. Later calls overwrite it, and it may not be written. */
export interface GpuTensor {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly bytes: number;
  readonly dtype: DType;
  readonly shape: readonly number[];
}

type Scalar = number | bigint | boolean;
type Data = TypedArray | Uint8ClampedArray | Scalar | readonly Scalar[];

/** Data with a shape, which only an input with several dimensions that a call decides needs, or a
 * buffer of the device. */
export interface Placed {
  readonly data: Data | GPUBuffer;
  readonly shape?: readonly number[];
  /** Of a GPUBuffer: where the tensor begins, in bytes, a multiple of 4. */
  readonly offset?: number;
}

/** Elements in row-major order. A GPUBuffer must be of the player's device, with COPY_SRC. */
export type Input = Data | GPUBuffer | GpuTensor | Placed;

export interface RunOptions {
  /** The outputs to read back; all of them if it is not given. A call that reads none resolves at
   * once, and what its shaders report is thrown by a later one, or by `sync`. */
  read?: readonly string[];
  /** The outputs to return as GpuTensor. */
  gpu?: readonly string[];
}

/** What a call reads back: elements in row-major order, and their shape. */
export type Output<A extends TypedArray = TypedArray> = A & { readonly shape: readonly number[] };
export type Outputs = Record<string, Output | GpuTensor>;

/** What an input of a dtype takes. */
export type InputOf<D extends DType> =
  | ArraysOf<D>
  | readonly Scalar[]
  | Scalar
  | GPUBuffer
  | GpuTensor
  | (Placed & { readonly data: ArraysOf<D> | readonly Scalar[] | Scalar | GPUBuffer });

/** What an output of a dtype is, unless it stays on the device (`RunOptions.gpu`). */
export type OutputOf<D extends DType> = Output<ArrayOf<D>>;

/** What a function takes or returns. A size that a call decides has the name of a dimension. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: readonly (number | string)[];
  readonly optional: boolean;
}

export interface FunctionType {
  readonly inputs: Readonly<Record<string, TensorType>>;
  readonly outputs: Readonly<Record<string, Pick<TensorType, "dtype">>>;
}

interface Parsed {
  readonly program: Program;
  readonly header: Header;
  readonly source: Source;
  /** Where the tensors begin. */
  readonly start: number;
  /** The first values: of numbers, and of dimensions the largest. */
  readonly values: ReadonlyMap<string, bigint>;
  /** Tensors of states that no command uses: where they lie, in buffers that follow the program's. */
  readonly loose: ReadonlyMap<string, readonly Part[]>;
}

interface Checkpoint {
  readonly parts: readonly Part[];
  readonly contents: readonly ArrayBuffer[];
  readonly numbers: ReadonlyMap<string, bigint>;
}

/** Reads and checks everything but the tensors. */
async function parse(source: Source, signal: AbortSignal | undefined): Promise<Parsed> {
  const read = async (begin: number, end: number) => {
    const bytes = new Uint8Array(end - begin);
    let at = 0;
    const take = (part: Uint8Array) => {
      bytes.set(part, at);
      at += part.length;
    };
    await source.read(begin, end, take, signal);
    return bytes;
  };
  const length = headerLength(await read(0, 8));
  const start = 8 + length;
  const header = parseHeader(await read(8, start));
  if (source.size !== undefined && source.size !== start + header.bytes) {
    refuse(source.size < start + header.bytes ? "it is truncated" : "bytes follow its tensors");
  }
  const program = parseProgram(header.metadata);
  const { values } = checkProgram(program, header);
  const loose = new Map<string, Part[]>();
  const unused = looseEntries(program, header);
  let buffer = program.buffers.length;
  visitStates(program, ({ entry }) => {
    if (entry !== undefined && unused.has(entry) && !loose.has(entry)) {
      const { begin, end } = header.entries.get(entry)!;
      // Files ask for no larger buffers because of these tensors, so they lie in pieces.
      const parts: Part[] = [];
      for (let at = begin; at < end; at += PIECE) {
        parts.push({ buffer: buffer++, offset: 0, bytes: Math.min(PIECE, end - at) });
      }
      loose.set(entry, parts);
    }
  });
  return { program, header, source, start, values, loose };
}

const NO_WEBGPU =
  "WebGPU is not available: use a browser that has it, or in Node give the option `gpu` " +
  "or `device`";

const globalGpu = (): GPU | undefined =>
  typeof navigator === "undefined" ? undefined : (navigator as { gpu?: GPU }).gpu;

async function makeMachine(
  parsed: Parsed,
  options: LoadOptions,
): Promise<{ machine: Machine; owned: boolean }> {
  const { program, values, header, source, start, loose } = parsed;
  const { signal } = options;
  const gpu = options.gpu ?? globalGpu();
  const language = (gpu?.wgslLanguageFeatures ?? new Set<string>()) as ReadonlySet<string>;
  let device: GPUDevice;
  let has: Has;
  if (options.device === undefined) {
    if (gpu === undefined) {
      throw new Error(NO_WEBGPU);
    }
    const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
    if (adapter === null) {
      throw new Error("WebGPU is not available: there is no adapter");
    }
    has = { features: adapter.features, limits: adapter.limits, info: adapter.info, language };
    const variants = chooseVariants(program, has);
    signal?.throwIfAborted();
    device = await adapter.requestDevice(descriptorOf(variants.values()));
  } else {
    device = typeof options.device === "function" ? await options.device() : options.device;
    has = {
      features: device.features,
      limits: device.limits,
      info: device.adapterInfo,
      language,
    };
  }
  const owned = options.device === undefined;
  const progress = { bytes: 0, totalBytes: 0, pipelines: 0, totalPipelines: 0 };
  const report = (change: Partial<Progress>) => {
    Object.assign(progress, change);
    options.onProgress?.({ ...progress });
  };
  try {
    const machine = await Machine.create(
      device,
      program,
      chooseVariants(program, has),
      values,
      [...loose.values()].flatMap((parts) => parts.map(({ bytes }) => bytes)),
      (pipelines, totalPipelines) => report({ pipelines, totalPipelines }),
      (machine, stop) =>
        readTensors(
          program,
          header,
          source,
          start,
          machine,
          loose,
          (bytes, totalBytes) => report({ bytes, totalBytes }),
          stop,
        ),
      signal,
    );
    return { machine, owned };
  } catch (error) {
    if (owned) {
      device.destroy();
    }
    throw error;
  } finally {
    source.close();
  }
}

const isGpuBuffer = (value: unknown): value is GPUBuffer =>
  typeof value === "object" && value !== null && "mapState" in value && "usage" in value;

/** A program on a device. Its functions are methods of it, `p.step({x, y})`, and `run` calls them by
 * name. */
export class Player {
  readonly #parsed: Parsed;
  readonly #options: LoadOptions;
  #machine: Machine;
  #owned: boolean;
  #numbers: Map<string, bigint>;
  #sizes: Map<string, bigint>;
  #checkpointed: Checkpoint | null = null;
  /** Calls so far, and how many of them the last checkpoint has, or nobody can have back. */
  #calls = 0;
  #safeCalls = 0;
  #loaded = false;
  #rebuilding: Promise<void> | null = null;
  #lostMessage: string | null = null;
  #disposed = false;

  private constructor(parsed: Parsed, options: LoadOptions, machine: Machine, owned: boolean) {
    this.#parsed = parsed;
    this.#options = options;
    this.#machine = machine;
    this.#owned = owned;
    const { numbers, dimensions, functions } = parsed.program;
    const pick = (names: ReadonlyMap<string, unknown>) =>
      new Map([...parsed.values].filter(([name]) => names.has(name)));
    this.#numbers = pick(numbers);
    this.#sizes = pick(dimensions);
    this.#watch(machine);
    for (const name of functions.keys()) {
      // `then` would make the player a promise.
      if (!(name in this) && name !== "then") {
        const value = (inputs?: Record<string, Input>, given?: RunOptions) =>
          this.run(name, inputs, given);
        Object.defineProperty(this, name, { value });
      }
    }
  }

  /** @internal */
  static async load(file: File, options: LoadOptions): Promise<Player> {
    const { signal } = options;
    signal?.throwIfAborted();
    const source = openSource(file, options);
    try {
      const parsed = await parse(source, signal);
      const { machine, owned } = await makeMachine(parsed, options);
      return new Player(parsed, options, machine, owned);
    } catch (error) {
      source.close();
      signal?.throwIfAborted();
      if (error instanceof GraphFileError) {
        const name =
          typeof file === "string" || file instanceof URL ? ` ${quote(String(file))}` : "";
        throw new GraphFileError(`cannot load the graph file${name}: ${error.message}`);
      }
      throw error;
    }
  }

  /** The device in use. After a loss it is another one. */
  get device(): GPUDevice {
    return this.#machine.device;
  }

  /** What the functions take and return. */
  get functions(): Readonly<Record<string, FunctionType>> {
    const describe = (views: ReadonlyMap<string, View>) =>
      Object.fromEntries(
        [...views].map(([name, view]) => [
          name,
          {
            dtype: view.dtype,
            shape: view.shape.map((size) => (typeof size === "string" ? size : Number(size))),
            optional: view.optional ?? false,
          },
        ]),
      );
    return Object.fromEntries(
      [...this.#parsed.program.functions].map(([name, { inputs, outputs }]) => [
        name,
        {
          inputs: describe(inputs),
          outputs: Object.fromEntries([...outputs].map(([k, { dtype }]) => [k, { dtype }])),
        },
      ]),
    );
  }

  /** The names of the numbers that a call may set. They keep their values until it does. */
  get numberNames(): string[] {
    return [...this.#parsed.program.numbers].filter(([, n]) => n.input).map(([name]) => name);
  }

  /** The names of the states that `state` returns. */
  get stateNames(): string[] {
    return [...this.#parsed.program.state.keys()];
  }

  /** Calls a function of the file. Inputs are copied before this returns.
   *
   * Throws TypeError for names and types that do not fit, RangeError for sizes and values, and
   * KernelError for what shaders report. Arguments that are refused change nothing. Throws
   * DeviceLostError once after a loss that undid calls. */
  run(
    name: string,
    inputs: Readonly<Record<string, Input | undefined>> = {},
    options: RunOptions = {},
  ): Promise<Outputs> {
    return this.#whenReady(() => this.#runNow(name, inputs, options));
  }

  /** The states as they are now, as the bytes of a safetensors file: of all, with names such as
   * `model.fc.weight` and with the inputs and numbers that keep their values, or of one, with the
   * names of its own state dict. Throws RangeError for a name that the file does not have. */
  state(name?: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.#whenReady(async () => {
      const tensors = this.#stateTensors(name);
      const parts = tensors.flatMap((one) => this.#partsOf(one));
      const numbers = JSON.stringify(
        Object.fromEntries([...this.#numbers].map(([key, value]) => [key, String(value)])),
      );
      const kept = name === undefined ? listKept(this.#parsed.program, this.#sizes, tensors) : [];
      const all = [...parts, ...kept.map(partOf)];
      const contents = await this.#guard(this.#machine, this.#machine.snapshot(all));
      let next = 0;
      const entries = tensors.map((one) => {
        const count = this.#partsOf(one).length;
        const bytes = joined(contents.slice(next, (next += count)));
        return [one.name, one.view.dtype, one.shape, bytes] as const;
      });
      const metadata: Record<string, string> = { format: "pt" };
      if (name === undefined) {
        const rates = new Map<string, number>();
        for (const { name: entry, label, view, shape } of kept) {
          const content = contents[next++]!;
          entries.push([entry, view.dtype, shape, new Uint8Array(content)]);
          if (view.dtype === "F32" && shape.length === 0) {
            rates.set(label, new Float32Array(content)[0]!);
          }
        }
        metadata[STATE_KEY] = statesToJson(withRates(this.#parsed.program.state, rates), tensors);
        metadata[NUMBERS_KEY] = numbers;
      }
      return writeSafetensors(entries, metadata);
    });
  }

  /** Replaces the states by those of a file that `state` wrote, or one of them by a safetensors
   * file with the names of its state dict. Throws GraphFileError, and changes nothing, if names,
   * dtypes or shapes differ. */
  loadState(file: ArrayBuffer | Uint8Array, name?: string): Promise<void> {
    return this.#whenReady(async () => {
      const bytes = new Uint8Array(
        ArrayBuffer.isView(file) ? file.buffer : file,
        ArrayBuffer.isView(file) ? file.byteOffset : 0,
        file.byteLength,
      ) as Uint8Array<ArrayBuffer>;
      const length = headerLength(bytes);
      const start = 8 + length;
      if (start > bytes.length) {
        refuse("the state is truncated");
      }
      const header = parseHeader(bytes.subarray(8, start));
      if (start + header.bytes !== bytes.length) {
        refuse("the state is truncated, or bytes follow it");
      }
      const tensors = this.#stateTensors(name);
      const kept = name === undefined ? listKept(this.#parsed.program, this.#sizes, tensors) : [];
      const unknown = new Set(header.entries.keys());
      const missing: string[] = [];
      // What keeps its value does so, too, if the state is of a time when states did not have it.
      const wanted = [...tensors, ...kept.filter((one) => unknown.has(one.name))];
      const found = wanted.map(({ name: label, view, shape }) => {
        const entry = header.entries.get(label);
        unknown.delete(label);
        if (entry === undefined) {
          missing.push(label);
        } else if (entry.dtype !== view.dtype || entry.shape.join() !== shape.join()) {
          refuse(
            `the state's ${quote(label)} is ${entry.dtype}[${entry.shape.join()}], ` +
              `not ${view.dtype}[${shape.join()}]`,
          );
        }
        return entry!;
      });
      if (missing.length > 0 || unknown.size > 0) {
        const lacks = missing.length > 0 ? `lacks ${quote(missing)}` : "";
        const has = unknown.size > 0 ? `has the unknown ${quote([...unknown])}` : "";
        refuse(`the state ${[lacks, has].filter(Boolean).join(" and ")}`);
      }
      const numbers = this.#numbersOf(header.metadata.get(NUMBERS_KEY));
      wanted.forEach((one, k) => {
        let at = start + found[k]!.begin;
        for (const part of this.#partsOf(one)) {
          this.#machine.write(part.buffer, part.offset, bytes.subarray(at, at + part.bytes));
          at += part.bytes;
        }
      });
      numbers.forEach((value, key) => this.#numbers.set(key, value));
      // What was loaded counts as calls, which a loss of the device would undo.
      this.#calls += 1;
      this.#loaded = true;
    });
  }

  /** Copies what the program keeps to the host's memory: a lost device goes on from it. */
  checkpoint(): Promise<void> {
    return this.#whenReady(() => this.#checkpointNow());
  }

  /** Waits for all calls so far, and throws what their shaders reported. */
  sync(): Promise<void> {
    return this.#whenReady(() => this.#guard(this.#machine, this.#machine.sync()));
  }

  /** Frees all memory. A device that was given stays as it is. */
  dispose(): void {
    if (!this.#disposed) {
      this.#disposed = true;
      this.#machine.destroy();
      this.#parsed.source.close();
      this.#checkpointed = null;
      if (this.#owned) {
        this.#machine.device.destroy();
      }
    }
  }

  // ---- Calls

  /** Does `work` at once, or after the device was rebuilt. */
  #whenReady<T>(work: () => Promise<T>): Promise<T> {
    try {
      if (this.#disposed) {
        throw new Error("the player was disposed");
      }
      if (this.#lostMessage !== null && this.#rebuilding === null) {
        this.#rebuild();
        if (this.#callsSince > 0) {
          const error = this.#lostError(this.#lostMessage, this.#callsSince);
          this.#safeCalls = this.#calls;
          throw error;
        }
      }
      return this.#rebuilding === null
        ? work()
        : this.#rebuilding.then(() => this.#whenReady(work));
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  #runNow(
    name: string,
    inputs: Readonly<Record<string, Input | undefined>>,
    options: RunOptions,
  ): Promise<Outputs> {
    const { program } = this.#parsed;
    const graph = program.functions.get(name);
    if (graph === undefined) {
      const names = [...program.functions.keys()].join(", ");
      throw new TypeError(`the file has no function ${quote(name)}; it has ${names}`);
    }
    const sizes = new Map(this.#sizes);
    const numbers = new Map(this.#numbers);
    const { writes, copies } = this.#arguments(name, graph, inputs, sizes, numbers);
    for (const wanted of [...(options.read ?? []), ...(options.gpu ?? [])]) {
      if (!graph.outputs.has(wanted)) {
        throw new TypeError(`${name} has no output ${quote(wanted)}`);
      }
    }
    const onDevice = new Set(options.gpu ?? []);
    const all = [...graph.outputs].map(([label, view]) => ({
      label,
      view,
      shape: checkPlace(program, view, sizes),
    }));
    const wanted = new Set(options.read ?? all.map(({ label }) => label));
    const read = all.filter(({ label }) => wanted.has(label) && !onDevice.has(label));
    const result: Outputs = {};
    const machine = this.#machine;
    for (const { label, view, shape } of all) {
      if (onDevice.has(label)) {
        result[label] = {
          buffer: machine.gpuBuffer(view.buffer!),
          offset: view.offset ?? 0,
          bytes: bytesOf(view, shape),
          dtype: view.dtype,
          shape,
        };
      }
    }
    const request: RunRequest = {
      name,
      values: new Map([...numbers, ...sizes]),
      writes,
      copies,
      read: read.length === 0 && wanted.size === 0 ? null : read.map(partOf),
    };
    const running = machine.run(request);
    this.#numbers = numbers;
    this.#sizes = sizes;
    for (const [number, step] of graph.steps) {
      numbers.set(number, BigInt.asUintN(64, numbers.get(number)! + BigInt(step)));
    }
    this.#calls += 1;
    const every = this.#options.checkpointEvery ?? 0;
    if (every > 0 && (this.#calls - this.#safeCalls) % every === 0) {
      this.#checkpointNow().catch(() => undefined); // a loss, which the next call notices
    }
    return this.#guard(machine, running).then((contents) => {
      read.forEach(({ label, view, shape }, k) => {
        const array = fromBytes(view.dtype, contents[k]!);
        Object.defineProperty(array, "shape", { value: shape });
        result[label] = array as Output;
      });
      return result;
    });
  }

  /** What a call writes. Fills `sizes` and `numbers` with what it says of them. */
  #arguments(
    name: string,
    graph: GraphFunction,
    given: Readonly<Record<string, Input | undefined>>,
    sizes: Map<string, bigint>,
    numbers: Map<string, bigint>,
  ): Pick<RunRequest, "writes" | "copies"> {
    const { program } = this.#parsed;
    const writes: RunRequest["writes"][number][] = [];
    const copies: RunRequest["copies"][number][] = [];
    const decided = new Set<string>();
    const left = new Set(
      [...graph.inputs].filter(([, view]) => !view.optional).map(([label]) => label),
    );
    for (const [label, value] of Object.entries(given)) {
      if (value === undefined) {
        continue;
      }
      const view = graph.inputs.get(label);
      const number = program.numbers.get(label);
      if (view === undefined && number?.input) {
        numbers.set(label, bitsOf(number.type, value, label));
        continue;
      }
      if (view === undefined) {
        const names = [...graph.inputs.keys(), ...this.numberNames].join(", ");
        throw new TypeError(`${name} has no input ${quote(label)}; it has ${names}`);
      }
      left.delete(label);
      const { data, shape: stated, offset: start } = placed(value);
      const buffer = view.buffer!;
      const offset = view.offset ?? 0;
      if (isGpuBuffer(data)) {
        const shape = this.#shapeFor(label, view, stated, undefined, sizes, decided);
        const bytes = bytesOf(view, shape);
        if (bytes % 4 !== 0 || start % 4 !== 0) {
          throw new RangeError(`${label}: offset and bytes in a GPUBuffer are multiples of 4`);
        }
        if (start + bytes > data.size) {
          throw new RangeError(
            `${label} has ${bytes} bytes, and the GPUBuffer ${data.size - start}`,
          );
        }
        if (data === this.#machine.gpuBuffer(buffer)) {
          throw new TypeError(`${label}: the GPUBuffer is the player's own for this input`);
        }
        copies.push({ from: data, fromOffset: start, buffer, offset, bytes });
      } else {
        const bytes = toBytes(view.dtype, data, label);
        const count = bytes.length / typeOf(view.dtype).bytes;
        const shape = this.#shapeFor(label, view, stated, count, sizes, decided);
        if (bytesOf(view, shape) !== bytes.length) {
          throw new RangeError(
            `${label} takes ${bytesOf(view, shape) / typeOf(view.dtype).bytes} elements ` +
              `(${view.dtype}[${shape.join()}]), not ${count}`,
          );
        }
        writes.push({ buffer, offset, bytes });
      }
    }
    if (left.size > 0) {
      throw new TypeError(`${name} needs ${[...left].join(", ")}`);
    }
    return { writes, copies };
  }

  /** The shape of an input of a call: stated, or inferred from the count of its elements if at most
   * one size is unknown. */
  #shapeFor(
    label: string,
    view: View,
    stated: readonly number[] | undefined,
    count: number | undefined,
    sizes: Map<string, bigint>,
    decided: Set<string>,
  ): number[] {
    const { dimensions } = this.#parsed.program;
    const wanted = view.shape.map(String).join();
    if (stated !== undefined && stated.length !== view.shape.length) {
      throw new RangeError(`${label} takes the shape [${wanted}], not [${stated.join()}]`);
    }
    const open = [...new Set(view.shape.filter((size) => typeof size === "string"))].filter(
      (size) => !decided.has(size),
    );
    let inferred: number | undefined;
    if (stated === undefined && open.length > 0) {
      const times = view.shape.filter((size) => size === open[0]).length;
      if (open.length > 1 || times > 1 || count === undefined) {
        throw new TypeError(
          `${label} takes the shape [${wanted}], so give {data, shape} in place of the data`,
        );
      }
      const rest = view.shape
        .filter((size) => size !== open[0])
        .reduce<number>(
          (a, size) => a * Number(typeof size === "string" ? sizes.get(size)! : size),
          1,
        );
      inferred = count / rest;
    }
    return view.shape.map((size, k) => {
      const given = stated?.[k];
      if (typeof size !== "string") {
        if (given !== undefined && BigInt(given) !== size) {
          throw new RangeError(`${label} takes the shape [${wanted}], not [${stated!.join()}]`);
        }
        return Number(size);
      }
      const { min, max } = dimensions.get(size)!;
      const value = decided.has(size) ? Number(sizes.get(size)!) : (given ?? inferred!);
      if (given !== undefined && given !== value) {
        throw new RangeError(`${label} has ${given} for ${size}, which is ${value} in this call`);
      }
      if (!Number.isInteger(value) || value < min || value > max) {
        throw new RangeError(`${label} takes ${min} to ${max} for ${size}, not ${value}`);
      }
      sizes.set(size, BigInt(value));
      decided.add(size);
      return value;
    });
  }

  // ---- States

  #stateTensors(name: string | undefined): StateTensor[] {
    const { state } = this.#parsed.program;
    if (name !== undefined && !state.has(name)) {
      throw new RangeError(
        `the file has no state ${quote(name)}; it has ${this.stateNames.join()}`,
      );
    }
    return listTensors(state, this.#sizes, name);
  }

  #partsOf(tensor: { view: View; shape: readonly number[] }): readonly Part[] {
    const { buffer, entry } = tensor.view;
    return buffer === undefined ? this.#parsed.loose.get(entry!)! : [partOf(tensor)];
  }

  /** The numbers that a state file has. */
  #numbersOf(text: string | undefined): Map<string, bigint> {
    const found = new Map<string, bigint>();
    const json = text === undefined ? {} : parseJson(text);
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      refuse("the state's numbers are malformed");
    }
    for (const [name, digits] of Object.entries(json)) {
      const number = this.#parsed.program.numbers.get(name);
      const isDigits = typeof digits === "string" && /^\d{1,20}$/.test(digits);
      const most = number?.type === "u64" ? 1n << 64n : 1n << 32n;
      if (number === undefined || !isDigits || BigInt(digits) >= most) {
        refuse(`the state's number ${quote(name)} is malformed`);
      }
      found.set(name, BigInt(digits));
    }
    return found;
  }

  /** Whether a call can depend on an earlier one: by a state that was loaded, a buffer that starts with a tensor of the
   * file, or an input or a number that it may leave out. */
  get #keepsSomething(): boolean {
    const { buffers, functions, numbers } = this.#parsed.program;
    return (
      this.#loaded ||
      numbers.size > 0 ||
      [...this.#machine.written].some((buffer) => buffers[buffer]!.entry !== undefined) ||
      [...functions.values()].some(({ inputs }) => [...inputs.values()].some((one) => one.optional))
    );
  }

  async #checkpointNow(): Promise<void> {
    const { program } = this.#parsed;
    const numbers = new Map(this.#numbers);
    const calls = this.#calls;
    const machine = this.#machine;
    // Optional inputs keep what a call wrote to them.
    const kept = new Set(machine.written);
    for (const { inputs } of program.functions.values()) {
      inputs.forEach(({ optional, buffer }) => optional && kept.add(buffer!));
    }
    visitStates(program, ({ buffer }) => buffer !== undefined && kept.add(buffer));
    const parts: Part[] = [...kept].map((buffer) => ({
      buffer,
      offset: 0,
      bytes: program.buffers[buffer]!.bytes,
    }));
    if (this.#loaded) {
      parts.push(...[...this.#parsed.loose.values()].flat()); // else they are as in the file
    }
    const contents = await this.#guard(machine, machine.snapshot(parts));
    if (calls >= this.#safeCalls) {
      this.#checkpointed = { parts, contents, numbers };
      this.#safeCalls = calls;
    }
  }

  /** Calls that a loss undoes. */
  get #callsSince(): number {
    return this.#keepsSomething ? this.#calls - this.#safeCalls : 0;
  }

  // ---- Lost devices

  #watch(machine: Machine): void {
    void machine.device.lost.then(({ message }) => {
      if (this.#machine === machine && !this.#disposed) {
        this.#lostMessage ??= message || "for a reason that the browser does not tell";
      }
    });
  }

  #lostError(message: string, calls: number): DeviceLostError {
    const canRebuild = typeof this.#options.device !== "object";
    const how =
      this.#options.device !== undefined && !canRebuild
        ? "It was given to the player, so load the file again with another one"
        : calls === 0
          ? "The next call runs on a new one, and nothing that the program keeps is lost"
          : `The next call goes on without the last ${calls === 1 ? "call" : `${calls} calls`}, from ` +
            (this.#checkpointed === null ? "what the file has" : "the last checkpoint");
    return new DeviceLostError(`the GPU device was lost (${message}). ${how}.`, calls);
  }

  /** Turns a failure that a lost device caused into DeviceLostError. */
  async #guard<T>(machine: Machine, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      if (this.#disposed) {
        throw new Error("the player was disposed", { cause: error });
      }
      const isOurs = error instanceof Error && /KernelError|GraphFileError/.test(error.name);
      if (isOurs) {
        throw error;
      }
      // The promise of the loss may come a little later than the failure.
      const later = new Promise<null>((done) => setTimeout(() => done(null), 500));
      const info = await Promise.race([machine.device.lost, later]);
      if (info === null || this.#disposed) {
        throw error;
      }
      const calls = this.#callsSince;
      if (this.#machine === machine && this.#rebuilding === null) {
        this.#lostMessage ??= info.message;
        this.#rebuild();
        this.#safeCalls = this.#calls;
        this.#callsUndone = calls;
      }
      throw this.#lostError(info.message, calls || this.#callsUndone);
    }
  }

  /** Calls that the last loss undid: calls that were under way then all name them. */
  #callsUndone = 0;

  #rebuild(): void {
    if (typeof this.#options.device === "object") {
      const error = this.#lostError(this.#lostMessage ?? "", this.#callsSince);
      this.#rebuilding = Promise.reject(error);
      this.#rebuilding.catch(() => undefined);
      return;
    }
    this.#machine.destroy();
    this.#rebuilding = (async () => {
      const options: LoadOptions = { ...this.#options };
      delete options.signal;
      delete options.onProgress;
      const { machine, owned } = await makeMachine(this.#parsed, options);
      if (this.#disposed) {
        machine.destroy();
        if (owned) {
          machine.device.destroy();
        }
        throw new Error("the player was disposed");
      }
      const { parts = [], contents = [], numbers } = this.#checkpointed ?? {};
      parts.forEach(({ buffer, offset }, k) => {
        machine.write(buffer, offset, new Uint8Array(contents[k]!));
      });
      for (const name of this.#numbers.keys()) {
        this.#numbers.set(name, (numbers ?? this.#parsed.values).get(name)!);
      }
      this.#machine = machine;
      this.#owned = owned;
      this.#lostMessage = null;
      this.#rebuilding = null;
      this.#watch(machine);
    })();
    // The calls that wait for it see the error; the next one tries again.
    this.#rebuilding.catch(() => {
      this.#rebuilding = null;
    });
  }
}

const partOf = ({ view, shape }: { view: View; shape: readonly number[] }): Part => ({
  buffer: view.buffer!,
  offset: view.offset ?? 0,
  bytes: bytesOf(view, shape),
});

/** The bytes of a tensor that lies in several buffers. */
function joined(parts: readonly ArrayBuffer[]): Uint8Array {
  if (parts.length === 1) {
    return new Uint8Array(parts[0]!);
  }
  const all = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    all.set(new Uint8Array(part), at);
    at += part.byteLength;
  }
  return all;
}

function visitStates(program: Program, visit: (view: View) => void): void {
  for (const [name, tree] of program.state) {
    visitTree(tree, name, visit);
  }
}

/** An input as data with what is said of its place. */
function placed(value: Input): {
  data: Data | GPUBuffer;
  shape: readonly number[] | undefined;
  offset: number;
} {
  const isPlain = typeof value !== "object" || ArrayBuffer.isView(value) || Array.isArray(value);
  if (isPlain || isGpuBuffer(value)) {
    return { data: value as Data | GPUBuffer, shape: undefined, offset: 0 };
  }
  if ("buffer" in value && isGpuBuffer(value.buffer)) {
    return { data: value.buffer, shape: value.shape, offset: value.offset };
  }
  const { data, shape, offset } = value as Placed;
  return { data, shape, offset: offset ?? 0 };
}

export type File = string | URL | ArrayBuffer | Uint8Array | Blob;

/** The functions of a file as methods: `Functions` of the .d.ts that export writes beside it. */
export type PlayerOf<Functions> = Player & Functions;

/** Functions of a file that has no .d.ts. */
export type AnyFunctions = Record<
  string,
  (inputs?: Record<string, Input>, options?: RunOptions) => Promise<Record<string, Output>>
>;

/** Loads a graph file (docs/graph-format.md).
 *
 * Checks everything in it, fetches its tensors in pieces into buffers of the device, and compiles
 * its shaders, all before it resolves. Throws GraphFileError for a file that is malformed or that
 * the device cannot execute, and Error if it cannot be fetched, or if there is no WebGPU. */
export async function load<Functions = AnyFunctions>(
  file: File,
  options: LoadOptions = {},
): Promise<PlayerOf<Functions>> {
  return (await Player.load(file, options)) as PlayerOf<Functions>;
}
