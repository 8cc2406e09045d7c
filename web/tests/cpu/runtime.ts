// What compiled WGSL calls: arithmetic as WGSL defines it, on JavaScript's numbers.
//
// An f32 is a number that Math.fround leaves as it is, i32 and u32 are whole numbers in their range, a vector or an
// array is an Array, a struct an object, a pointer to a scalar an object with get and set.

const { fround } = Math;
const words = new DataView(new ArrayBuffer(8));

type Scalar = number | boolean;
type Value = Scalar | Value[] | { [name: string]: Value };

export interface Pointer {
  get: () => number;
  set: (value: number) => void;
}

/** A storage buffer of 4-byte elements. */
export type Words = Uint32Array | Int32Array | Float32Array;

export const copy = (value: Value): Value => {
  if (typeof value !== "object") {
    return value;
  }
  return Array.isArray(value)
    ? value.map(copy)
    : Object.fromEntries(Object.entries(value).map(([name, one]) => [name, copy(one)]));
};

/** Gives a vector, array or struct another's values. */
export const assign = (to: object, from: object): void => {
  Object.assign(to, from);
};

export const filled = (count: number, make: () => Value): Value[] =>
  Array.from({ length: count }, make);

/** An index into `count` elements. Kernels must not reach beyond what they have. */
export function place(index: number, count: number): number {
  if (!(index >= 0 && index < count)) {
    throw new RangeError(`index ${index} of an array of ${count} elements`);
  }
  return index;
}

export function load(from: Words, index: number): number {
  return from[place(index, from.length)]!;
}
export function store(to: Words, index: number, value: number): void {
  to[place(index, to.length)] = value;
}
export const at = (of: Words, index: number): Pointer => {
  place(index, of.length);
  return {
    get: () => of[index]!,
    set: (value) => {
      of[index] = value;
    },
  };
};
export function loadVector(from: Words, index: number, count: number): number[] {
  place(index * count + count - 1, from.length);
  return Array.from(from.subarray(index * count, index * count + count));
}
export function storeVector(to: Words, index: number, value: readonly number[]): void {
  place(index * value.length + value.length - 1, to.length);
  to.set(value, index * value.length);
}

// ---- Vectors ----

export const map = <A, B>(v: readonly A[], f: (x: A) => B): B[] => v.map((x) => f(x));
export const zip = <A, B, C>(a: readonly A[], b: readonly B[], f: (x: A, y: B) => C): C[] =>
  a.map((x, k) => f(x, b[k]!));
export const zip3 = <A, B, C, D>(
  a: readonly A[],
  b: readonly B[],
  c: readonly C[],
  f: (x: A, y: B, z: C) => D,
): D[] => a.map((x, k) => f(x, b[k]!, c[k]!));
export const pick = <A>(v: readonly A[], places: readonly number[]): A[] =>
  places.map((k) => v[k]!);
export const splat = <A>(value: A, count: number): A[] => new Array<A>(count).fill(value);

// ---- Integers ----

// WGSL defines x / 0 as x, and the quotient that i32 does not hold as the dividend.
export const divI = (a: number, b: number): number =>
  b === 0 || (a === -2147483648 && b === -1) ? a : Math.trunc(a / b) | 0;
export const modI = (a: number, b: number): number =>
  b === 0 || (a === -2147483648 && b === -1) ? 0 : (a % b) | 0;
export const divU = (a: number, b: number): number => (b === 0 ? a : Math.trunc(a / b));
export const modU = (a: number, b: number): number => (b === 0 ? 0 : a % b);

export const countLeadingZeros = (x: number): number => Math.clz32(x);
export const countTrailingZeros = (x: number): number => (x === 0 ? 32 : 31 - Math.clz32(x & -x));
export function countOneBits(x: number): number {
  let count = 0;
  for (let rest = x >>> 0; rest !== 0; rest = (rest & (rest - 1)) >>> 0) {
    count++;
  }
  return count;
}
export const firstLeadingBitU = (x: number): number => (x === 0 ? 4294967295 : 31 - Math.clz32(x));
export function reverseBits(x: number): number {
  let made = 0;
  for (let k = 0; k < 32; k++) {
    made = (made << 1) | ((x >>> k) & 1);
  }
  return made >>> 0;
}

// ---- Floats ----

/** To the nearest whole number, ties to the even one; zeros keep their sign. */
export function round(x: number): number {
  if (!Number.isFinite(x) || Math.abs(x) >= 8388608) {
    return x;
  }
  const below = Math.floor(x);
  const rest = x - below;
  const made = rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
  return made === 0 && (x < 0 || Object.is(x, -0)) ? -0 : made;
}
export const exp2 = (x: number): number => fround(2 ** x);
export const log2 = (x: number): number => fround(Math.log2(x));
export const inverseSqrt = (x: number): number => fround(1 / Math.sqrt(x));
export const sign = (x: number): number => (x > 0 ? 1 : x < 0 ? -1 : 0);
export const min = (a: number, b: number): number => (b < a ? b : a);
export const max = (a: number, b: number): number => (a < b ? b : a);
export const clamp = (x: number, low: number, high: number): number => min(max(x, low), high);

// ---- Conversions ----

// A float out of range becomes the nearest integer. WGSL leaves open what becomes of NaN.
export const i32OfF32 = (x: number): number =>
  Number.isNaN(x) ? 0 : clamp(Math.trunc(x), -2147483648, 2147483647) | 0;
export const u32OfF32 = (x: number): number =>
  Number.isNaN(x) ? 0 : clamp(Math.trunc(x), 0, 4294967295) >>> 0;

// JavaScript has one NaN: payloads and signs of others are not kept.
export function bitsOfF32(x: number): number {
  words.setFloat32(0, x);
  return words.getUint32(0);
}
export function f32OfBits(x: number): number {
  words.setUint32(0, x);
  return words.getFloat32(0);
}

// ---- Atomics. Invocations run one after the other between barriers. ----

const swapped = (pointer: Pointer, value: number): number => {
  const old = pointer.get();
  pointer.set(value >>> 0);
  return old;
};
export const atomicLoad = (pointer: Pointer): number => pointer.get();
export const atomicStore = (pointer: Pointer, value: number): void => {
  pointer.set(value);
};
export const atomicAdd = (p: Pointer, v: number): number => swapped(p, p.get() + v);
export const atomicOr = (p: Pointer, v: number): number => swapped(p, p.get() | v);
export const atomicAnd = (p: Pointer, v: number): number => swapped(p, p.get() & v);
export const atomicMax = (p: Pointer, v: number): number => swapped(p, max(p.get(), v));
export const atomicMin = (p: Pointer, v: number): number => swapped(p, min(p.get(), v));
export function atomicCompareExchangeWeak(
  pointer: Pointer,
  expected: number,
  value: number,
): { old_value: number; exchanged: boolean } {
  const old_value = pointer.get();
  const exchanged = old_value === expected;
  if (exchanged) {
    pointer.set(value);
  }
  return { old_value, exchanged };
}
