// The dtypes of tensors, how they promote, and their values in typed arrays.
import type { ShaderDType } from "./wgsl/dtypes";

export type DType = "float32" | "float16" | "int32" | "int64" | "bool";

/** A number as an operand. Whole JavaScript numbers count as ints, others as floats: there is no 2.0 here. */
export type Scalar = number | bigint | boolean;

export type TypedArray = Float32Array | Uint16Array | Int32Array | BigInt64Array | Uint8Array;

interface Info {
  shader: ShaderDType;
  bytes: number;
  category: 0 | 1 | 2;
  /** In the order of promotion. */
  rank: number;
  /** PyTorch's name in messages. */
  name: string;
}

const infos: Record<DType, Info> = {
  bool: { shader: "bool", bytes: 1, category: 0, rank: 0, name: "Bool" },
  int32: { shader: "i32", bytes: 4, category: 1, rank: 1, name: "Int" },
  int64: { shader: "i64", bytes: 8, category: 1, rank: 2, name: "Long" },
  float16: { shader: "f16", bytes: 2, category: 2, rank: 3, name: "Half" },
  float32: { shader: "f32", bytes: 4, category: 2, rank: 4, name: "Float" },
};

export const isDType = (name: string): name is DType => Object.hasOwn(infos, name);

export function dtypeInfo(dtype: DType): Info {
  const found = infos[dtype] as Info | undefined;
  if (found === undefined) {
    throw new TypeError(
      `the dtype ${String(dtype)} does not exist here; there are ${Object.keys(infos).join(", ")}`,
    );
  }
  return found;
}

export const isFloating = (dtype: DType): boolean => infos[dtype].category === 2;
export const isIntegral = (dtype: DType): boolean => infos[dtype].category === 1;

const scalarDType = (value: Scalar): DType =>
  typeof value === "boolean"
    ? "bool"
    : typeof value === "bigint" || Number.isInteger(value)
      ? "int64"
      : "float32";

export const promote = (a: DType, b: DType): DType => (infos[a].rank >= infos[b].rank ? a : b);

/**
 * torch.result_type: tensors with dimensions decide, unless a tensor without or a number is of a
 * higher category.
 */
export function resultType(operands: readonly ({ dtype: DType; dim: number } | Scalar)[]): DType {
  const groups: (DType | undefined)[] = [undefined, undefined, undefined];
  for (const operand of operands) {
    const [group, dtype] =
      typeof operand === "object"
        ? ([operand.dim > 0 ? 0 : 1, operand.dtype] as const)
        : ([2, scalarDType(operand)] as const);
    const so_far = groups[group];
    groups[group] = so_far === undefined ? dtype : promote(so_far, dtype);
  }
  let result: DType | undefined;
  for (const dtype of groups) {
    if (dtype === undefined) {
      continue;
    }
    if (result === undefined) {
      result = dtype;
    } else if (infos[dtype].category > infos[result].category) {
      result = result === "bool" || isFloating(dtype) ? dtype : promote(result, dtype);
    }
  }
  return result ?? "float32";
}

const scratch = new DataView(new ArrayBuffer(8));

/** The float16 bits of a number, rounded to nearest even. */
export function halfBits(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = Math.abs(value);
  if (Number.isNaN(value)) {
    return 0x7e00;
  }
  if (magnitude >= 65520) {
    return sign | 0x7c00;
  }
  // Halves are multiples of 2^-24 where they have no normal form, and of 2^(exponent - 10) elsewhere.
  const exponent = Math.max(Math.floor(Math.log2(magnitude || 2 ** -30)), -14);
  const unit = 2 ** (exponent - 10);
  const steps = magnitude / unit;
  const below = Math.floor(steps);
  const rest = steps - below;
  const rounded = below + (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? 1 : 0);
  return sign | ((exponent + 14) * 1024 + rounded);
}

/** The number that float16 bits stand for. */
export function halfValue(bits: number): number {
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  const exponent = (bits >> 10) & 0x1f;
  const mantissa = bits & 0x3ff;
  if (exponent === 31) {
    return mantissa === 0 ? sign * Infinity : NaN;
  }
  return exponent === 0
    ? sign * mantissa * 2 ** -24
    : sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

export const roundHalf = (value: number): number => halfValue(halfBits(value));

/** Any number as an int64, as PyTorch truncates floats. */
export function toBigInt(value: Scalar): bigint {
  if (typeof value === "number") {
    if (!Number.isFinite(value)) {
      throw new RangeError(`cannot convert ${value} to an integer`);
    }
    return BigInt.asIntN(64, BigInt(Math.trunc(value)));
  }
  return BigInt.asIntN(64, BigInt(value));
}

// As Python has it: NaN is true.
export const isTrue = (value: Scalar): boolean => Number.isNaN(value) || Boolean(value);

/** Values as the bytes of a tensor of that dtype. */
export function encode(values: ArrayLike<Scalar>, dtype: DType): TypedArray {
  const count = values.length;
  switch (dtype) {
    case "float32":
      return Float32Array.from({ length: count }, (_, i) => Number(values[i]));
    case "float16":
      return Uint16Array.from({ length: count }, (_, i) => halfBits(Number(values[i])));
    case "int32":
      return Int32Array.from({ length: count }, (_, i) =>
        Number(BigInt.asIntN(32, toBigInt(values[i]!))),
      );
    case "int64":
      return BigInt64Array.from({ length: count }, (_, i) => toBigInt(values[i]!));
    case "bool":
      return Uint8Array.from({ length: count }, (_, i) => (isTrue(values[i]!) ? 1 : 0));
  }
}

/** The bytes of a tensor as an array of its dtype; float16 as its bits. */
export function view(bytes: ArrayBuffer, dtype: DType): TypedArray {
  switch (dtype) {
    case "float32":
      return new Float32Array(bytes);
    case "float16":
      return new Uint16Array(bytes);
    case "int32":
      return new Int32Array(bytes);
    case "int64":
      return new BigInt64Array(bytes);
    case "bool":
      return new Uint8Array(bytes);
  }
}

/** Element i of such an array: a boolean, or a number; a bigint where a number would not be exact. */
export function valueAt(values: TypedArray, i: number, dtype: DType): number | bigint | boolean {
  const value = values[i]!;
  if (dtype === "bool") {
    return value !== 0;
  }
  if (dtype === "float16") {
    return halfValue(value as number);
  }
  if (typeof value === "bigint") {
    return BigInt(Number(value)) === value && Number.isSafeInteger(Number(value))
      ? Number(value)
      : value;
  }
  return value;
}
