// What tensors need of a GPUDevice: memory with reuse, pipelines, batched dispatches, reading back.
import { finished } from "../player/waiting";
import { RuntimeError } from "./errors";
import { ERRORS_BINDING, PARAMS_BINDING } from "./wgsl/accessors";

/** A buffer of the pool. */
export interface Block {
  readonly buffer: GPUBuffer;
  readonly bytes: number;
  readonly id: number;
}

/** A compiled shader and how its buffers are bound. */
export interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  readonly id: number;
  readonly paramsBytes: number;
  readonly reportsErrors: boolean;
}

const UNIFORM_BYTES = 1 << 18;
const MAX_DISPATCHES = 512; // of a submission: more would let the device idle while commands are encoded
const ERROR_WORDS = 8;
const MAX_BIND_GROUPS = 4096;

// Sizes of buffers: eight a power of two, so that few sizes serve all tensors and at most an eighth is wasted.
function sizeClass(bytes: number): number {
  const least = Math.max(bytes, 256);
  const step = 2 ** Math.max(Math.floor(Math.log2(least)) - 3, 2);
  return Math.ceil(least / step) * step;
}

const STORAGE = 0x80 | 0x4 | 0x8; // STORAGE | COPY_SRC | COPY_DST

export class Runtime {
  /** Bytes of buffers in use, and of free ones that wait for reuse. */
  readonly memory = { used: 0, free: 0, peak: 0 };
  /** Dispatches since the device was set. */
  dispatches = 0;

  private readonly pools = new Map<number, Block[]>();
  private readonly pipelines = new Map<string, Pipeline>();
  private readonly layouts = new Map<string, GPUBindGroupLayout>();
  private readonly bindGroups = new Map<string, GPUBindGroup>();
  private readonly uniforms: GPUBuffer;
  private readonly uniformBytes = new Uint8Array(UNIFORM_BYTES);
  private readonly errors: Block;
  private readonly alignment: number;
  private readonly storageBindings: number;
  private readonly bindingBytes: number;
  private readonly maxGroups: number;
  private uniformsUsed = 0;
  private encoder: GPUCommandEncoder | undefined;
  private pass: GPUComputePassEncoder | undefined;
  private waiting = 0;
  private lastId = 0;
  private failure: Error | undefined;
  /** Why the device was lost. Its tensors are gone, so all that follows raises. */
  private lost: string | undefined;
  private errorsUsed = false;
  // Of checks of values, by the codes that kernels write; code 1 is an index out of range.
  private readonly messages = ["", ""];

  constructor(readonly device: GPUDevice) {
    this.alignment = device.limits.minUniformBufferOffsetAlignment;
    this.storageBindings = device.limits.maxStorageBuffersPerShaderStage;
    this.bindingBytes = device.limits.maxStorageBufferBindingSize;
    this.maxGroups = device.limits.maxComputeWorkgroupsPerDimension;
    this.uniforms = device.createBuffer({ size: UNIFORM_BYTES, usage: 0x40 | 0x8 });
    this.errors = this.allocate(ERROR_WORDS * 4);
    device.addEventListener("uncapturederror", (event) => {
      this.failure ??= new Error(`WebGPU: ${event.error.message}`);
    });
    void device.lost.then(({ message }) => {
      this.lost = message || "for a reason that the browser does not tell";
    });
  }

  /** Storage buffers that a shader may bind. */
  get maxBindings(): number {
    return this.storageBindings;
  }

  allocate(bytes: number): Block {
    const size = sizeClass(bytes);
    if (size > this.bindingBytes || size > this.device.limits.maxBufferSize) {
      throw new RuntimeError(
        `a tensor of ${bytes} bytes: the device's buffers have ${this.bindingBytes}`,
      );
    }
    this.memory.used += size;
    this.memory.peak = Math.max(this.memory.peak, this.memory.used);
    const free = this.pools.get(size)?.pop();
    if (free !== undefined) {
      this.memory.free -= size;
      return free;
    }
    const buffer = this.device.createBuffer({ size, usage: STORAGE });
    return { buffer, bytes: size, id: ++this.lastId };
  }

  /** Gives a buffer back. Commands that use it may still wait: what reuses it comes behind them. */
  release(block: Block): void {
    this.memory.used -= block.bytes;
    this.memory.free += block.bytes;
    const pool = this.pools.get(block.bytes);
    if (pool === undefined) {
      this.pools.set(block.bytes, [block]);
    } else {
      pool.push(block);
    }
  }

  /** Destroys the buffers that wait for reuse. */
  emptyCache(): void {
    this.flush();
    for (const pool of this.pools.values()) {
      for (const block of pool) {
        block.buffer.destroy();
      }
    }
    this.pools.clear();
    this.bindGroups.clear();
    this.memory.free = 0;
  }

  /** The pipeline of a key; `source` makes the shader when it is first asked for. */
  pipeline(
    key: string,
    source: () => {
      code: string;
      writable: boolean[];
      paramsBytes: number;
      reportsErrors: boolean;
    },
  ): Pipeline {
    let made = this.pipelines.get(key);
    if (made === undefined) {
      const { code, writable, paramsBytes, reportsErrors } = source();
      const bindings = writable.length + (reportsErrors ? 1 : 0);
      if (bindings > this.storageBindings) {
        throw new Error(
          `${key}: ${bindings} storage buffers, where the device has ${this.storageBindings}`,
        );
      }
      const layout = this.layout(writable, reportsErrors);
      const pipeline = this.device.createComputePipeline({
        label: key,
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: this.device.createShaderModule({ label: key, code }) },
      });
      made = { pipeline, layout, id: ++this.lastId, paramsBytes, reportsErrors };
      this.pipelines.set(key, made);
    }
    return made;
  }

  private layout(writable: boolean[], reportsErrors: boolean): GPUBindGroupLayout {
    const key = writable.map((w) => (w ? "w" : "r")).join("") + (reportsErrors ? "e" : "");
    let made = this.layouts.get(key);
    if (made === undefined) {
      const storage = (binding: number, writes: boolean): GPUBindGroupLayoutEntry => ({
        ...{ binding, visibility: 0x4 },
        buffer: { type: writes ? "storage" : "read-only-storage" },
      });
      const uniform: GPUBindGroupLayoutEntry = {
        ...{ binding: PARAMS_BINDING, visibility: 0x4 },
        buffer: { type: "uniform", hasDynamicOffset: true },
      };
      made = this.device.createBindGroupLayout({
        entries: [
          ...writable.map((writes, binding) => storage(binding, writes)),
          ...(reportsErrors ? [storage(ERRORS_BINDING, true)] : []),
          uniform,
        ],
      });
      this.layouts.set(key, made);
    }
    return made;
  }

  private bindGroup(pipeline: Pipeline, blocks: readonly Block[]): GPUBindGroup {
    const key = `${pipeline.id}:${blocks.map((block) => block.id).join()}`;
    let made = this.bindGroups.get(key);
    if (made === undefined) {
      const entries: GPUBindGroupEntry[] = blocks.map((block, binding) => ({
        binding,
        resource: { buffer: block.buffer },
      }));
      if (pipeline.reportsErrors) {
        entries.push({ binding: ERRORS_BINDING, resource: { buffer: this.errors.buffer } });
      }
      const size = Math.ceil(pipeline.paramsBytes / 16) * 16;
      entries.push({ binding: PARAMS_BINDING, resource: { buffer: this.uniforms, size } });
      made = this.device.createBindGroup({ layout: pipeline.layout, entries });
      if (this.bindGroups.size >= MAX_BIND_GROUPS) {
        this.bindGroups.clear();
      }
      this.bindGroups.set(key, made);
    }
    return made;
  }

  /** Appends a dispatch of that many workgroups. `params` are the bytes of the kernel's Params. */
  dispatch(
    pipeline: Pipeline,
    blocks: readonly Block[],
    params: ArrayBuffer,
    workgroups: number,
  ): void {
    if (workgroups === 0) {
      return;
    }
    const room = Math.ceil(params.byteLength / this.alignment) * this.alignment;
    if (this.uniformsUsed + room > UNIFORM_BYTES || this.waiting >= MAX_DISPATCHES) {
      this.flush();
    }
    const at = this.uniformsUsed;
    this.uniformBytes.set(new Uint8Array(params), at);
    this.uniformsUsed += room;
    const x = Math.min(workgroups, this.maxGroups);
    const y = Math.ceil(workgroups / x);
    if (y > this.maxGroups) {
      throw new Error(`${workgroups} workgroups are more than the device takes`);
    }
    this.encoder ??= this.device.createCommandEncoder();
    this.pass ??= this.encoder.beginComputePass();
    this.pass.setPipeline(pipeline.pipeline);
    this.pass.setBindGroup(0, this.bindGroup(pipeline, blocks), [at]);
    this.pass.dispatchWorkgroups(x, y);
    this.waiting++;
    this.dispatches++;
    this.errorsUsed ||= pipeline.reportsErrors;
  }

  /** Submits the dispatches that wait. */
  flush(): void {
    if (this.encoder === undefined) {
      return;
    }
    this.pass?.end();
    this.device.queue.writeBuffer(this.uniforms, 0, this.uniformBytes, 0, this.uniformsUsed);
    this.device.queue.submit([this.encoder.finish()]);
    this.encoder = undefined;
    this.pass = undefined;
    this.uniformsUsed = 0;
    this.waiting = 0;
  }

  /** Copies bytes into a buffer, from its start. */
  upload(block: Block, given: Uint8Array): void {
    // The package `webgpu` ends the process over memory that is shared with workers, where pages take it.
    const bytes = given.buffer instanceof ArrayBuffer ? given : given.slice();
    // Commands that wait may read what the buffer held before.
    this.flush();
    const whole = bytes.byteLength & ~3;
    if (whole > 0) {
      this.device.queue.writeBuffer(block.buffer, 0, bytes as Uint8Array<ArrayBuffer>, 0, whole);
    }
    if (whole < bytes.byteLength) {
      const rest = new Uint8Array(4);
      rest.set(bytes.subarray(whole));
      this.device.queue.writeBuffer(block.buffer, whole, rest);
    }
  }

  /**
   * The bytes [begin, begin + length) of a buffer when all work so far is done. Raises for an index
   * out of range, for values that an operator refuses, and for anything that WebGPU reported.
   */
  async read(block: Block, begin: number, length: number): Promise<ArrayBuffer> {
    this.check();
    const first = begin & ~3;
    const size = ((begin + length + 3) & ~3) - first;
    const withErrors = this.errorsUsed;
    this.errorsUsed = false;
    const staging = this.device.createBuffer({ size: size + ERROR_WORDS * 4, usage: 0x1 | 0x8 });
    this.pass?.end();
    this.pass = undefined;
    this.encoder ??= this.device.createCommandEncoder();
    this.encoder.copyBufferToBuffer(block.buffer, first, staging, 0, size);
    if (withErrors) {
      this.encoder.copyBufferToBuffer(this.errors.buffer, 0, staging, size, ERROR_WORDS * 4);
      this.encoder.clearBuffer(this.errors.buffer);
    }
    this.flush();
    try {
      await finished(this.device, staging.mapAsync(0x1));
    } catch (error) {
      // The promise of the loss may come a little later than the failure.
      await Promise.race([this.device.lost, new Promise((done) => setTimeout(done, 500))]);
      this.check();
      throw error;
    }
    this.check();
    const mapped = staging.getMappedRange();
    const bytes = mapped.slice(begin - first, begin - first + length);
    const errors = new Uint32Array(mapped.slice(size));
    staging.destroy();
    if (withErrors && errors[0]! > 1) {
      throw new RuntimeError(this.messages[errors[0]!]!);
    }
    if (withErrors && errors[0] !== 0) {
      const index = (BigInt(errors[2]! | 0) << 32n) | BigInt(errors[1]!);
      throw new RangeError(
        `index ${index} is out of bounds for dimension ${errors[3]! | 0} with size ${errors[4]!}`,
      );
    }
    return bytes;
  }

  /** What a kernel writes for an error that the next read raises with this message. */
  errorCode(message: string): number {
    const found = this.messages.indexOf(message, 2);
    return found >= 0 ? found : this.messages.push(message) - 1;
  }

  /** Waits until all work so far is done. */
  async synchronize(): Promise<void> {
    await this.read(this.errors, 0, 4);
  }

  private check(): void {
    if (this.lost !== undefined) {
      throw new Error(
        `the WebGPU device was lost (${this.lost}), and all tensors with it: call \`await torch.init()\` ` +
          "and make them anew",
      );
    }
    if (this.failure !== undefined) {
      const failure = this.failure;
      this.failure = undefined;
      throw failure;
    }
  }
}
