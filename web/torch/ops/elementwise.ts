// Runs a row of csrc/ops/pointwise/rows.yaml on tensors and numbers.
import { record, records, saved } from "../autograd";
import {
  dtypeInfo,
  isFloating,
  isIntegral,
  isTrue,
  resultType,
  roundHalf,
  toBigInt,
  type DType,
  type Scalar,
} from "../dtype";
import { check, NotImplementedError, RuntimeError } from "../errors";
import { formulas } from "../gradients";
import { shaderDType, Slots } from "../launch";
import { Tensor } from "../tensor";
import { writableSlots } from "../wgsl/accessors";
import { pointwiseRows, type PointwiseRow } from "../wgsl/data";
import { bitsOf, info, kindName, type ShaderDType } from "../wgsl/dtypes";
import {
  PointwiseParams,
  pointwiseOperands,
  pointwiseSource,
  WORKGROUP,
  type PointwiseForm,
} from "../wgsl/pointwise";
import { full } from "./factory";
import { broadcastShapes, collapse, expandedStrides } from "./collapse";
import { checkWritable, readBeside, readWhileWriting, sameView } from "./memory";

export type Operand = Tensor | Scalar;

export const isTensor = (operand: Operand): operand is Tensor => typeof operand === "object";

/** What a gradient formula reads. */
export interface Context {
  /** Inputs, as tensors or numbers; reading a tensor checks that it was not changed in place. */
  readonly a: Tensor;
  readonly b: Tensor;
  readonly c: Tensor;
  readonly out: Tensor;
  /** Input k as it was given: a tensor or a number. */
  input(k: number): Operand;
  /** Scalar arguments s0, s1, ... */
  readonly s: readonly number[];
}

export interface RunOptions {
  /** `float`: integers are computed in float32. */
  promotion?: "same" | "float";
  scalars?: readonly Scalar[];
  /** The result's dtype and the type computed in, where the op sets them. */
  compute?: DType;
  /** The operator, for errors. */
  label?: string;
  /** Whose gradients it has: a name of the row's grad_as; by default the row's own. */
  formula?: string;
  /** Written in place of a new tensor. */
  out?: Tensor;
}

// Ranks of shaders, so that few are made; the added dimensions have size 1.
const RANKS = [1, 2, 4, 8, 16, 32];

function writeValue(view: DataView, word: number, value: Scalar, type: ShaderDType): void {
  const at = word * 4;
  switch (info(type).kind) {
    case "f":
      view.setFloat32(at, Number(value), true);
      break;
    case "l":
      view.setBigInt64(at, toBigInt(value), true);
      break;
    case "r":
      // The bits of an element, as encode() gives them.
      if (info(type).bytes === 8) {
        view.setBigInt64(at, toBigInt(value), true);
      } else {
        view.setUint32(at, Number(value), true);
      }
      break;
    default:
      view.setInt32(at, Number(BigInt.asIntN(32, toBigInt(value))), true);
  }
}

/** Dispatches a row. `out` and inputs have the dtypes that the row shall see; shapes broadcast to `out`. */
export function dispatchRow(
  label: string,
  rowName: string,
  row: PointwiseRow,
  compute: ShaderDType,
  out: { tensor: Tensor; dtype?: ShaderDType },
  inputs: readonly { value: Operand; dtype?: ShaderDType }[],
  scalars: readonly Scalar[],
): void {
  const { shape } = out.tensor;
  const tensors = [out.tensor, ...inputs.map(({ value }) => value)];
  const strides = tensors.map((t) =>
    isTensor(t) ? expandedStrides(t, shape) : shape.map(() => 0),
  );
  const walk = collapse(shape, strides);
  const rank = RANKS.find((limit) => walk.sizes.length <= limit)!;
  const slots = new Slots();
  const outType = out.dtype ?? shaderDType(out.tensor);
  const form: PointwiseForm = {
    compute,
    dtypes: [
      outType,
      ...inputs.map(({ value, dtype }) =>
        isTensor(value) ? (dtype ?? shaderDType(value)) : compute,
      ),
    ],
    slots: tensors.map((t) => (isTensor(t) ? slots.of(t.storage.block) : -1)),
    numbers: tensors.map((t) => !isTensor(t)),
    rank,
    packs: info(outType).bytes < 4 && out.tensor.is_contiguous(),
  };
  const places = new PointwiseParams(tensors.length, row.scalars, rank);
  const params = new DataView(new ArrayBuffer(Math.ceil(places.words() / 4) * 16));
  const count = out.tensor.numel();
  params.setUint32(0, count, true);
  tensors.forEach((t, k) => {
    if (isTensor(t)) {
      params.setUint32(places.offset(k) * 4, t.storage_offset, true);
    } else {
      writeValue(params, places.number(k), t, compute);
    }
  });
  scalars.forEach((value, s) => {
    writeValue(params, places.scalar(s), value, compute);
  });
  for (let d = 0; d < rank; d++) {
    params.setUint32(places.size(d) * 4, walk.sizes[d] ?? 1, true);
    for (let k = 0; k < tensors.length; k++) {
      params.setUint32(places.stride(k, d) * 4, walk.strides[k]![d] ?? 0, true);
    }
  }
  const key = [
    "pointwise",
    rowName,
    compute,
    form.dtypes.join(),
    form.slots.join(),
    rank,
    form.packs,
  ].join(" ");
  const { runtime } = out.tensor.storage;
  const pipeline = runtime.pipeline(key, () => ({
    code: pointwiseSource(label, row, form),
    writable: writableSlots(pointwiseOperands(form)),
    paramsBytes: params.byteLength,
    reportsErrors: false,
  }));
  const each = form.packs ? 4 / info(outType).bytes : 1;
  const invocations = form.packs ? Math.ceil((count + each - 1) / each) : count;
  runtime.dispatch(
    pipeline,
    slots.blocks,
    params.buffer,
    count === 0 ? 0 : Math.ceil(invocations / WORKGROUP),
  );
}

// Numbers as an operand of that dtype; PyTorch refuses what the dtype does not hold.
function operandValue(value: Scalar, compute: DType, row: PointwiseRow): Scalar {
  const isInt = typeof value === "bigint" || (!isFloating(compute) && Number.isInteger(value));
  if (isInt && !isLong(BigInt(value))) {
    throw new RangeError(`int too big to convert: ${value} is beyond 64 bits`);
  }
  if (compute === "float16" && !row.keeps_numbers) {
    return roundHalf(Number(value));
  }
  return value;
}

// The least and the largest numbers of dtypes; PyTorch makes float16 of any number that float32 has.
const FLOAT = [-3.4028234663852886e38, 3.4028234663852886e38, "float"] as const;
const LIMITS: Record<DType, readonly [least: number, most: number, name: string]> = {
  float32: FLOAT,
  float16: FLOAT,
  int32: [-(2 ** 31), 2 ** 31 - 1, "int"],
  // The largest number of JavaScript below 2 ** 63.
  int64: [-(2 ** 63), 2 ** 63 - 1024, "int64_t"],
  bool: [-Infinity, Infinity, "bool"],
};

const isLong = (value: bigint): boolean => BigInt.asIntN(64, value) === value;

/** Raises for a number that `dtype` cannot hold. */
export function checkFits(value: Scalar, dtype: DType): void {
  const [least, most, name] = LIMITS[dtype];
  const number = Number(value);
  const fits =
    typeof value === "bigint" && dtype === "int64"
      ? isLong(value)
      : number >= least && number <= most;
  check(
    fits || dtype === "bool" || (isFloating(dtype) && !(Math.abs(number) < Infinity)),
    () => `value cannot be converted to type ${name} without overflow`,
  );
}

function rowOf(label: string, rowName: string, compute: DType, scalars: readonly Scalar[]): string {
  const row = pointwiseRows[rowName];
  if (row === undefined) {
    throw new NotImplementedError(`${label}(): the tables have no row ${rowName}`);
  }
  const kind = kindName(info(dtypeInfo(compute).shader).kind);
  const forArgument = scalars.length > 0 ? row.for_argument[String(Number(scalars[0]))] : undefined;
  const served =
    row.for_dtype[dtypeInfo(compute).shader] ??
    (forArgument !== undefined && pointwiseRows[forArgument]!.expressions[kind] !== undefined
      ? forArgument
      : rowName);
  if (pointwiseRows[served]!.expressions[kind] === undefined) {
    throw new NotImplementedError(`"${label}" not implemented for '${dtypeInfo(compute).name}'`);
  }
  return served;
}

/** The result of a row on operands that broadcast, recorded if a gradient is wanted. */
export function elementwise(
  rowName: string,
  operands: readonly Operand[],
  options: RunOptions = {},
): Tensor {
  const label = options.label ?? rowName;
  const scalars = options.scalars ?? [];
  const tensors = operands.filter(isTensor);
  const common = resultType(
    operands.map((t) => (isTensor(t) ? { dtype: t.dtype, dim: t.dim() } : t)),
  );
  const compute =
    options.compute ?? (options.promotion === "float" && !isFloating(common) ? "float32" : common);
  const served = rowOf(label, rowName, compute, scalars);
  const row = pointwiseRows[served]!;
  if (!pointwiseRows[rowName]!.any_argument || !isFloating(compute)) {
    scalars.forEach((value) => {
      checkFits(value, compute);
    });
  }
  const result = row.result === "bool" ? "bool" : compute;
  const shape = broadcastShapes(...tensors.map((t) => t.shape));
  const recorded = records(tensors) && isFloating(result);
  let out: Tensor;
  if (options.out === undefined) {
    out = Tensor.empty(shape, result);
  } else {
    out = options.out;
    checkInPlace(out, shape, result, label, records([...tensors, out]));
  }
  const inputs = operands.map((value) => {
    if (!isTensor(value)) {
      return { value: operandValue(value, compute, row) };
    }
    return { value: options.out === undefined ? value : readBeside(out, value, label) };
  });
  const numbers = scalars.map((value) => {
    if (compute === "bool") {
      return isTrue(value);
    }
    return row.converts_arguments && compute === "float16" ? roundHalf(Number(value)) : value;
  });
  dispatchRow(
    label,
    served,
    row,
    dtypeInfo(compute).shader,
    { tensor: out },
    inputs,
    numbers.slice(0, row.scalars),
  );
  if (options.out !== undefined) {
    out.storage.version++;
    return out;
  }
  if (!recorded) {
    return out;
  }
  return recordRow(out, options.formula ?? rowName, label, operands, scalars);
}

function checkInPlace(
  out: Tensor,
  shape: readonly number[],
  result: DType,
  label: string,
  recorded: boolean,
): void {
  check(
    shape.join() === out.shape.join(),
    () =>
      `output with shape [${out.shape.join(", ")}] doesn't match the broadcast shape ` +
      `[${shape.join(", ")}]`,
  );
  const fits = dtypeInfo(result).category <= dtypeInfo(out.dtype).category;
  check(
    fits,
    () =>
      `result type ${dtypeInfo(result).name} can't be cast to the desired output type ` +
      dtypeInfo(out.dtype).name,
  );
  checkWritable(out, label);
  if (recorded) {
    refuseInPlace(out, label);
  }
}

/** Changing tensors in place is not recorded on the tape. */
export function refuseInPlace(out: Tensor, label: string): never {
  if (out.is_leaf && out.requires_grad) {
    throw new RuntimeError(
      "a leaf Variable that requires grad is being used in an in-place operation.",
    );
  }
  throw new NotImplementedError(
    `${label}_(): changing a tensor in place while gradients are recorded is not implemented; use ` +
      `${label}() and its result`,
  );
}

/** Names of nodes look like PyTorch's: AddBackward0. */
export const nodeName = (op: string): string =>
  op.replace(/(?:^|_)([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()) + "Backward0";

function recordRow(
  out: Tensor,
  formulaName: string,
  label: string,
  operands: readonly Operand[],
  scalars: readonly Scalar[],
): Tensor {
  const formula = formulas()[formulaName];
  const inputs = operands.map((t) => (isTensor(t) ? t : undefined));
  if (formula === undefined) {
    return record(out, label, inputs, undefined);
  }
  const reads = operands.map((t) => (isTensor(t) ? saved(t) : (): Operand => t));
  const wanted = inputs.map((t) => t?.requires_grad === true);
  const readOut = saved(out);
  const input = (k: number): Tensor => {
    const value = reads[k]!();
    return isTensor(value) ? value : full([], value, { dtype: out.dtype });
  };
  const context: Context = {
    input: (k) => reads[k]!(),
    get a() {
      return input(0);
    },
    get b() {
      return input(1);
    },
    get c() {
      return input(2);
    },
    get out() {
      return readOut();
    },
    s: scalars.map(Number),
  };
  return record(out, nodeName(label), inputs, (grad) =>
    wanted.map((needed, k) => {
      if (!needed) {
        return undefined;
      }
      const one = formula[k];
      if (one === undefined) {
        throw new NotImplementedError(
          `the derivative for input ${k} of '${label}' is not implemented`,
        );
      }
      return one(grad, context);
    }),
  );
}

/** Copies `source`, which broadcasts, into `out`, and converts dtypes. Whether `out` may be written, callers check. */
export function copyInto(out: Tensor, source: Tensor, label = "copy_"): void {
  check(
    broadcastShapes(out.shape, source.shape).join() === out.shape.join(),
    () =>
      `output with shape [${out.shape.join(", ")}] doesn't match the broadcast shape ` +
      `[${broadcastShapes(out.shape, source.shape).join(", ")}]`,
  );
  if (sameView(source, out)) {
    return;
  }
  const from = readWhileWriting(out, source);
  const row = pointwiseRows.copy!;
  if (from.dtype === out.dtype) {
    const bits = bitsOf(shaderDType(out));
    const input = { value: from, dtype: bits };
    dispatchRow(label, "copy", row, bits, { tensor: out, dtype: bits }, [input], []);
  } else {
    dispatchRow(label, "copy", row, shaderDType(from), { tensor: out }, [{ value: from }], []);
  }
  out.storage.version++;
}

export const isIntegralOrBool = (dtype: DType): boolean => isIntegral(dtype) || dtype === "bool";
