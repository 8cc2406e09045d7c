/** The numbers of a program, as the integers that expressions compute with. */

import { quote } from "./errors";
import type { NumberType } from "./format";

const float = new DataView(new ArrayBuffer(4));

const RANGES: Record<Exclude<NumberType, "f32">, readonly [bigint, bigint]> = {
  u32: [0n, (1n << 32n) - 1n],
  i32: [-(1n << 31n), (1n << 31n) - 1n],
  u64: [0n, (1n << 64n) - 1n],
};

/** A number's value in expressions: its bits for i32 and f32, the number itself otherwise. Throws
 * TypeError for a value of another type, RangeError for one that the type does not have. */
export function bitsOf(type: NumberType, value: unknown, what: string): bigint {
  if (type === "f32") {
    if (typeof value !== "number") {
      throw new TypeError(`${what} takes a number, not ${quote(value)}`);
    }
    float.setFloat32(0, value);
    if (!Number.isFinite(float.getFloat32(0)) && Number.isFinite(value)) {
      throw new RangeError(`${what} is f32, which has no value ${quote(value)}`);
    }
    return BigInt(float.getUint32(0));
  }
  if (typeof value !== "bigint" && !Number.isSafeInteger(value)) {
    throw new TypeError(`${what} takes an integer, not ${quote(value)}`);
  }
  const integer = BigInt(value as number | bigint);
  const [least, most] = RANGES[type];
  if (integer < least || integer > most) {
    throw new RangeError(`${what} is ${type}, which has no value ${integer}`);
  }
  return type === "i32" ? BigInt.asUintN(32, integer) : integer;
}
