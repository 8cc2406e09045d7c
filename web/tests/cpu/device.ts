// A GPUDevice without a GPU: its shaders are compiled to JavaScript. It has what web/torch asks of a device.
import { compile, instantiate, type Compiled, type Module, type Type } from "./compile";

class Buffer {
  readonly bytes: ArrayBuffer;
  destroyed = false;

  constructor(readonly size: number) {
    this.bytes = new ArrayBuffer(Math.ceil(size / 4) * 4);
  }

  mapAsync(): Promise<void> {
    return Promise.resolve();
  }

  getMappedRange(): ArrayBuffer {
    return this.bytes;
  }

  destroy(): void {
    this.destroyed = true;
  }
}

interface Layout {
  bytes: number;
  alignment: number;
}

function layoutOf(type: Type): Layout {
  switch (type.is) {
    case "vec":
      return { bytes: 4 * type.count, alignment: type.count === 3 ? 16 : 4 * type.count };
    case "array": {
      const { bytes, alignment } = layoutOf(type.of);
      return { bytes: Math.ceil(bytes / alignment) * alignment * (type.count ?? 0), alignment };
    }
    case "struct": {
      const { end, alignment } = places(type.fields.map((field) => field.type));
      return { bytes: Math.ceil(end / alignment) * alignment, alignment };
    }
    default:
      return { bytes: 4, alignment: 4 };
  }
}

// Where the fields of a struct lie, by WGSL's rules of alignment.
function places(types: readonly Type[]): { at: number[]; end: number; alignment: number } {
  let [end, most] = [0, 4];
  const at = types.map((type) => {
    const { bytes, alignment } = layoutOf(type);
    const start = Math.ceil(end / alignment) * alignment;
    end = start + bytes;
    most = Math.max(most, alignment);
    return start;
  });
  return { at, end, alignment: most };
}

/** The value of a type that lies in memory. */
function decode(type: Type, memory: DataView, at: number): unknown {
  switch (type.is) {
    case "f32":
      return memory.getFloat32(at, true);
    case "i32":
      return memory.getInt32(at, true);
    case "u32":
      return memory.getUint32(at, true);
    case "vec":
    case "array": {
      const { bytes, alignment } = layoutOf(type.of);
      const step = Math.ceil(bytes / alignment) * alignment;
      return Array.from({ length: type.count! }, (_, k) => decode(type.of, memory, at + k * step));
    }
    case "struct": {
      const starts = places(type.fields.map((field) => field.type)).at;
      return Object.fromEntries(
        type.fields.map((field, k) => [field.name, decode(field.type, memory, at + starts[k]!)]),
      );
    }
    default:
      throw new TypeError(`${type.is} in a buffer`);
  }
}

// A storage buffer's elements: 4-byte scalars, or vectors of them.
function elements(type: Type, { bytes }: Buffer): Uint32Array | Int32Array | Float32Array {
  const of = type.is === "array" ? (type.of.is === "vec" ? type.of.of : type.of) : type;
  switch (of.is) {
    case "f32":
      return new Float32Array(bytes);
    case "i32":
      return new Int32Array(bytes);
    default:
      return new Uint32Array(bytes);
  }
}

interface Pipeline {
  compiled: Compiled;
  module: Module;
  label: string;
}

type Bindings = { binding: number; resource: { buffer: Buffer } }[];
type Sizes = [number, number, number];
type Builtins = Record<string, unknown>;

function bind({ compiled, module }: Pipeline, bindings: Bindings, offset: number): void {
  module.bind(
    Object.fromEntries(
      compiled.bindings.map(({ name, binding, type, uniform }) => {
        const { buffer } = bindings.find((one) => one.binding === binding)!.resource;
        const value = uniform
          ? decode(type, new DataView(buffer.bytes), offset)
          : elements(type, buffer);
        return [name, value];
      }),
    ),
  );
}

function dispatch(pipeline: Pipeline, bindings: Bindings, offset: number, groups: Sizes): void {
  const { module, compiled, label } = pipeline;
  const entry = compiled.entry!;
  const workgroup = entry.workgroup as Sizes;
  const call = module.functions[entry.name] as unknown as (...args: unknown[]) => unknown;
  bind(pipeline, bindings, offset);
  const count = workgroup[0] * workgroup[1] * workgroup[2];
  const at = (index: number, [x, y]: Sizes): Sizes => [
    index % x,
    Math.floor(index / x) % y,
    Math.floor(index / (x * y)),
  ];
  for (let group = 0; group < groups[0] * groups[1] * groups[2]; group++) {
    module.resetWorkgroup();
    const workgroup_id = at(group, groups);
    const waiting: Iterator<unknown>[] = [];
    for (let index = 0; index < count; index++) {
      const local = at(index, workgroup);
      const builtins: Builtins = {
        ...{ workgroup_id, num_workgroups: groups },
        ...{ local_invocation_index: index, local_invocation_id: local },
        global_invocation_id: local.map((x, d) => x + workgroup_id[d]! * workgroup[d]!),
      };
      module.resetInvocation();
      const result = call(...entry.builtins.map((name) => builtins[name]));
      if (entry.waits) {
        waiting.push(result as Iterator<unknown>);
      }
    }
    // From barrier to barrier.
    for (let running = waiting.length; running > 0;) {
      const ended = waiting.filter((one) => one.next().done === true).length;
      if (ended !== 0 && ended !== running) {
        throw new Error(`${label}: ${ended} of ${running} invocations do not reach a barrier`);
      }
      running -= ended;
    }
  }
}

class Encoder {
  readonly commands: (() => void)[] = [];

  beginComputePass(): object {
    let pipeline: Pipeline;
    let bindings: Bindings;
    let offset = 0;
    return {
      setPipeline: (one: Pipeline) => {
        pipeline = one;
      },
      setBindGroup: (_: number, group: Bindings, [at]: number[]) => {
        bindings = group;
        offset = at!;
      },
      dispatchWorkgroups: (x: number, y = 1, z = 1) => {
        const [own, given, at] = [pipeline, bindings, offset];
        this.commands.push(() => {
          dispatch(own, given, at, [x, y, z]);
        });
      },
      end: () => undefined,
    };
  }

  copyBufferToBuffer(from: Buffer, begin: number, to: Buffer, at: number, size: number): void {
    this.commands.push(() => {
      new Uint8Array(to.bytes).set(new Uint8Array(from.bytes, begin, size), at);
    });
  }

  clearBuffer(buffer: Buffer): void {
    this.commands.push(() => {
      new Uint8Array(buffer.bytes).fill(0);
    });
  }

  finish(): Encoder {
    return this;
  }
}

function write(
  buffer: Buffer,
  at: number,
  data: Uint8Array,
  from = 0,
  size = data.byteLength - from,
): void {
  new Uint8Array(buffer.bytes).set(data.subarray(from, from + size), at);
}

/**
 * A device with the limits that every browser grants, but for those that are given. Errors of shaders raise where they
 * are submitted.
 */
export function cpuDevice(limits: Partial<GPUSupportedLimits> = {}): GPUDevice {
  const compiled = new Map<string, Compiled>();
  const compiledOnce = (code: string): Compiled => {
    const made = compiled.get(code) ?? compile(code);
    compiled.set(code, made);
    return made;
  };
  const device = {
    limits: {
      minUniformBufferOffsetAlignment: 256,
      maxStorageBuffersPerShaderStage: 8,
      maxStorageBufferBindingSize: 134217728,
      maxBufferSize: 268435456,
      maxComputeWorkgroupsPerDimension: 65535,
      ...limits,
    },
    lost: new Promise(() => undefined),
    addEventListener: () => undefined,
    createBuffer: ({ size }: { size: number }) => new Buffer(size),
    createBindGroupLayout: () => ({}),
    createPipelineLayout: () => ({}),
    createShaderModule: ({ code }: { code: string }) => code,
    createComputePipeline: (made: { label: string; compute: { module: string } }): Pipeline => {
      const one = compiledOnce(made.compute.module);
      return { compiled: one, module: instantiate(one), label: made.label };
    },
    createBindGroup: ({ entries }: { entries: Bindings }) => entries,
    createCommandEncoder: () => new Encoder(),
    queue: {
      writeBuffer: write,
      submit: (encoders: Encoder[]) => {
        for (const command of encoders.flatMap((encoder) => encoder.commands)) {
          command();
        }
      },
    },
  };
  return device as unknown as GPUDevice;
}
