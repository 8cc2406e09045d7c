// From tensors to a dispatch of a kernel of the build: slots, parameters, pipeline (csrc/launch/README.md).
import type { Block } from "./runtime";
import type { Tensor } from "./tensor";
import { writableSlots } from "./wgsl/accessors";
import { assemble, operandsOf, type Form, type FormOperand } from "./wgsl/assemble";
import { kernels, type ParamInfo } from "./wgsl/data";
import type { ShaderDType } from "./wgsl/dtypes";
import { dtypeInfo } from "./dtype";

export const shaderDType = (tensor: Tensor): ShaderDType => dtypeInfo(tensor.dtype).shader;

export interface KernelOperand {
  tensor: Tensor;
  /** As which dtype its bytes are read; its own by default. */
  dtype?: ShaderDType;
  ownsWords?: boolean;
}

export interface LaunchSpec {
  /** The operator, for errors. */
  label: string;
  kernel: string;
  /** By name; undefined ones are absent. */
  operands: Record<string, Tensor | KernelOperand | undefined>;
  consts?: Record<string, number | boolean | string>;
  /** By name: numbers, or lists of numbers for vectors and arrays. */
  params: Record<string, number | readonly number[]>;
  regions?: Record<string, string>;
  /** What tells the regions' texts apart; with the operands and constants it names the pipeline. */
  regionKey?: string;
  workgroups?: number;
  invocations?: number;
}

/** The slots of buffers: operands in one buffer share a binding. */
export class Slots {
  readonly blocks: Block[] = [];

  of(block: Block): number {
    const found = this.blocks.indexOf(block);
    return found >= 0 ? found : this.blocks.push(block) - 1;
  }
}

function writeParam(view: DataView, param: ParamInfo, value: number | readonly number[]): void {
  const values = typeof value === "number" ? [value] : value;
  const room = Math.max(param.count, 1) * (param.type.startsWith("vec4") ? 4 : 1);
  if (values.length > room) {
    throw new Error(`parameter ${param.name} has room for ${room} numbers, not ${values.length}`);
  }
  values.forEach((number, i) => {
    const at = param.offset + 4 * i;
    if (param.type.includes("f32")) {
      view.setFloat32(at, number, true);
    } else if (param.type.includes("i32")) {
      view.setInt32(at, number, true);
    } else {
      view.setUint32(at, number, true);
    }
  });
}

export function launch(spec: LaunchSpec): void {
  const kernel = kernels[spec.kernel]!;
  const slots = new Slots();
  const form: Form = { consts: spec.consts ?? {}, operands: {}, regions: spec.regions ?? {} };
  const operandKeys: string[] = [];
  const params = new DataView(new ArrayBuffer(Math.ceil(kernel.paramsBytes / 16) * 16));
  let first: Tensor | undefined;
  for (const { name } of kernel.operands) {
    const given = spec.operands[name];
    if (given === undefined) {
      continue;
    }
    const operand = "tensor" in given ? given : { tensor: given };
    first ??= operand.tensor;
    const made: FormOperand = {
      dtype: operand.dtype ?? shaderDType(operand.tensor),
      slot: slots.of(operand.tensor.storage.block),
      ownsWords: operand.ownsWords ?? false,
    };
    form.operands[name] = made;
    operandKeys.push(`${name}${made.dtype}${made.slot}${made.ownsWords ? "o" : ""}`);
    const at = kernel.params.find((param) => param.name === `${name}_at`);
    if (at !== undefined) {
      writeParam(params, at, operand.tensor.storage_offset);
    } else if (operand.tensor.storage_offset !== 0) {
      throw new Error(`${spec.label}: operand ${name} must start at its buffer`);
    }
  }
  for (const name of Object.keys(spec.params)) {
    const param = kernel.params.find((one) => one.name === name);
    if (param === undefined) {
      throw new Error(`${spec.label}: the kernel ${spec.kernel} has no parameter ${name}`);
    }
    writeParam(params, param, spec.params[name]!);
  }
  const consts = kernel.consts.map(({ name }) => String(form.consts[name]));
  const key = [spec.kernel, ...operandKeys, ...consts, spec.regionKey ?? ""].join(" ");
  const runtime = first!.storage.runtime;
  const pipeline = runtime.pipeline(key, () => ({
    code: assemble(spec.label, kernel, form),
    writable: writableSlots(operandsOf(kernel, form)),
    paramsBytes: params.byteLength,
    reportsErrors: kernel.reportsErrors,
  }));
  const workgroups =
    spec.workgroups ?? Math.ceil((spec.invocations ?? 0) / Math.max(kernel.workgroup, 1));
  runtime.dispatch(pipeline, slots.blocks, params.buffer as ArrayBuffer, workgroups);
}

/** How the invocations of a workgroup of 256 share rows (csrc/launch/row_lanes.h). */
export function rowLanes(
  length: number,
  inner: number,
  perLane = 4,
): { lanesLog2: number; lanesFirst: boolean; workgroups: (rows: number) => number; items: number } {
  let lanes = 1;
  while (lanes < 256 && lanes * perLane < length) {
    lanes *= 2;
  }
  if (inner > 1) {
    // Neighbouring invocations read neighbouring rows.
    let neighbours = 1;
    while (neighbours < 32 && neighbours < inner) {
      neighbours *= 2;
    }
    lanes = Math.min(lanes, 256 / neighbours);
  }
  let items = 1;
  while (items < 32 && items * lanes < length) {
    items *= 2;
  }
  return {
    lanesLog2: Math.log2(lanes),
    lanesFirst: inner === 1,
    workgroups: (rows) => Math.ceil((rows * lanes) / 256),
    items,
  };
}
