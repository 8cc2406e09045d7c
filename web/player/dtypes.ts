/** Data types as safetensors names them, and the typed arrays that carry them.
 *
 * Halves (F16, BF16) come out as Float32Array, which holds all of their values. An 8-bit float is
 * its byte, a BOOL is a byte 0 or 1, a C64 is two floats. */

import { quote } from "./errors";

export type TypedArray =
  | Float64Array
  | Float32Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array;

interface Constructor {
  new (lengthOrBuffer: number | ArrayBuffer): TypedArray;
  readonly BYTES_PER_ELEMENT: number;
}

interface Type {
  readonly bytes: number;
  /** What the bytes are, without conversion. */
  readonly array: Constructor;
  /** Numbers of the array for each element. */
  readonly parts: number;
  /** From and to a half's bits. */
  readonly decode?: (bits: Uint16Array) => Float32Array;
  readonly encode?: (value: number) => number;
}

const scratch = new DataView(new ArrayBuffer(8));

function halfOf(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return sign | 0x7e00;
  }
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000) {
    return sign | 0x7c00;
  }
  if (magnitude < 0x38800000) {
    // Below 2^-14 a half counts multiples of 2^-24. Adding 2^52 rounds to a whole number.
    const multiples = Math.abs(scratch.getFloat32(0)) * 2 ** 24;
    return sign | (multiples + 2 ** 52 - 2 ** 52);
  }
  const odd = (magnitude >>> 13) & 1;
  return sign | ((magnitude - 0x38000000 + 0xfff + odd) >>> 13);
}

function floatsOfHalves(bits: Uint16Array): Float32Array {
  return Float32Array.from(bits, (half) => {
    const exponent = (half >>> 10) & 31;
    const fraction = half & 1023;
    const sign = half >>> 15 ? -1 : 1;
    if (exponent === 31) {
      return fraction ? NaN : sign * Infinity;
    }
    return exponent === 0
      ? sign * fraction * 2 ** -24
      : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}

function brainOf(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return (bits >>> 16) | 0x40;
  }
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

function floatsOfBrains(bits: Uint16Array): Float32Array {
  return new Float32Array(Uint32Array.from(bits, (brain) => brain << 16).buffer);
}

const CONSTRUCTORS = {
  F64: Float64Array,
  F32: Float32Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  F8_E4M3: Uint8Array,
  F8_E5M2: Uint8Array,
  I64: BigInt64Array,
  I32: Int32Array,
  I16: Int16Array,
  I8: Int8Array,
  U64: BigUint64Array,
  U32: Uint32Array,
  U16: Uint16Array,
  U8: Uint8Array,
  BOOL: Uint8Array,
  C64: Float32Array,
} as const satisfies Record<DType, unknown>;

export type DType = keyof Arrays;

function makeType(dtype: DType): Type {
  const array = CONSTRUCTORS[dtype] as unknown as Constructor;
  const parts = dtype === "C64" ? 2 : 1;
  const type = { array, parts, bytes: array.BYTES_PER_ELEMENT * parts };
  if (dtype === "F16") {
    return { ...type, decode: floatsOfHalves, encode: halfOf };
  }
  return dtype === "BF16" ? { ...type, decode: floatsOfBrains, encode: brainOf } : type;
}

const TYPES = new Map(
  Object.keys(CONSTRUCTORS).map((name) => [name as DType, makeType(name as DType)]),
);

interface Arrays {
  F64: Float64Array;
  F32: Float32Array;
  F16: Uint16Array;
  BF16: Uint16Array;
  F8_E4M3: Uint8Array;
  F8_E5M2: Uint8Array;
  I64: BigInt64Array;
  I32: Int32Array;
  I16: Int16Array;
  I8: Int8Array;
  U64: BigUint64Array;
  U32: Uint32Array;
  U16: Uint16Array;
  U8: Uint8Array;
  BOOL: Uint8Array;
  C64: Float32Array;
}

/** The typed array that an output of a dtype is. */
export type ArrayOf<D extends DType> = D extends "F16" | "BF16" ? Float32Array : Arrays[D];

/** The typed arrays that an input of a dtype takes. */
export type ArraysOf<D extends DType> =
  | Arrays[D]
  | (D extends "F16" | "BF16" ? Float32Array : never)
  | (D extends "U8" | "BOOL" ? Uint8ClampedArray : never);

export function isDType(name: string): name is DType {
  return Object.hasOwn(CONSTRUCTORS, name);
}

export function typeOf(dtype: DType): Type {
  return TYPES.get(dtype)!;
}

/** Bytes as the typed array of a dtype. `bytes` starts its buffer. */
export function fromBytes(dtype: DType, bytes: ArrayBuffer): TypedArray {
  const { array, decode } = typeOf(dtype);
  const raw = new array(bytes);
  return decode === undefined ? raw : decode(raw as Uint16Array);
}

const LARGEST: Partial<Record<DType, [bigint, bigint]>> = {
  I64: [-(1n << 63n), (1n << 63n) - 1n],
  U64: [0n, (1n << 64n) - 1n],
  I32: [-(1n << 31n), (1n << 31n) - 1n],
  U32: [0n, (1n << 32n) - 1n],
  I16: [-(1n << 15n), (1n << 15n) - 1n],
  U16: [0n, (1n << 16n) - 1n],
  I8: [-128n, 127n],
  U8: [0n, 255n],
  BOOL: [0n, 1n],
};

/** The bytes of what a caller gave: the dtype's own typed array, or numbers to convert. Halves take
 * their bits (Uint16Array) or floats. Throws TypeError for another typed array, RangeError for an
 * integer that the dtype does not have. */
export function toBytes(dtype: DType, given: unknown, what: string): Uint8Array {
  const { array, encode, parts } = typeOf(dtype);
  if (ArrayBuffer.isView(given)) {
    const name = given.constructor.name;
    if (encode !== undefined && given instanceof Float32Array) {
      return new Uint8Array(Uint16Array.from(given, encode).buffer);
    }
    const isHalf = dtype === "F16" && name === "Float16Array";
    const isByte = dtype !== "F8_E4M3" && dtype !== "F8_E5M2" && given instanceof Uint8ClampedArray;
    if (!(given instanceof array) && !isHalf && !(isByte && array.name === "Uint8Array")) {
      throw new TypeError(`${what} is ${dtype}, so it takes a ${array.name}, not a ${name}`);
    }
    if (dtype === "BOOL" && (given as Uint8Array).some((value) => value > 1)) {
      throw new RangeError(`${what} is BOOL, so its values are 0 and 1`);
    }
    return new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
  }
  const list = Array.isArray(given) ? (given as unknown[]) : [given];
  const result = new array(list.length);
  const range = LARGEST[dtype];
  list.forEach((value, k) => {
    if (dtype === "F8_E4M3" || dtype === "F8_E5M2") {
      throw new TypeError(`${what} is ${dtype}, so it takes a Uint8Array of its bytes`);
    }
    const plain = typeof value === "boolean" ? Number(value) : value;
    if (range !== undefined) {
      const isInteger = typeof plain === "bigint" || Number.isInteger(plain);
      const integer = isInteger ? BigInt(plain as number | bigint) : null;
      if (integer === null || integer < range[0] || integer > range[1]) {
        throw new RangeError(`${what} is ${dtype}, which has no value ${quote(value)}`);
      }
      const isBig = dtype === "I64" || dtype === "U64";
      (result as { [k: number]: number | bigint })[k] = isBig ? integer : Number(integer);
    } else if (typeof plain === "number") {
      result[k] = encode === undefined ? plain : encode(plain);
    } else {
      throw new TypeError(`${what} is ${dtype}, so it takes numbers, not ${quote(value)}`);
    }
  });
  if (list.length % parts !== 0) {
    throw new TypeError(`${what} is ${dtype}, so it takes ${parts} numbers for each element`);
  }
  return new Uint8Array(result.buffer as ArrayBuffer);
}
