// Element types as kernels see them (csrc/wgsl/dtype.h): how they are stored, and in which type they are computed.
import type { Kind, KindName } from "./data";

export type ShaderDType =
  "f32" | "f16" | "i64" | "i32" | "bool" | "bits8" | "bits16" | "bits32" | "bits64";

export interface DTypeInfo {
  bytes: number;
  kind: Kind;
  /** The type in registers. */
  wgsl: string;
  /** Library functions between the low bits of a word and the register type; empty where a bitcast does. */
  load: string;
  store: string;
}

const infos: Record<ShaderDType, DTypeInfo> = {
  f32: { bytes: 4, kind: "f", wgsl: "f32", load: "", store: "" },
  f16: { bytes: 2, kind: "f", wgsl: "f32", load: "f_from_f16", store: "f16_from_f" },
  i64: { bytes: 8, kind: "l", wgsl: "vec2<u32>", load: "", store: "" },
  i32: { bytes: 4, kind: "i", wgsl: "i32", load: "", store: "" },
  bool: { bytes: 1, kind: "i", wgsl: "i32", load: "i_from_bool", store: "" },
  bits8: { bytes: 1, kind: "r", wgsl: "u32", load: "u32", store: "u32" },
  bits16: { bytes: 2, kind: "r", wgsl: "u32", load: "u32", store: "u32" },
  bits32: { bytes: 4, kind: "r", wgsl: "u32", load: "", store: "" },
  bits64: { bytes: 8, kind: "r", wgsl: "vec2<u32>", load: "", store: "" },
};

export const info = (dtype: ShaderDType): DTypeInfo => infos[dtype];

const registerTypes: Record<Kind, string> = {
  f: "f32",
  i: "i32",
  l: "vec2<u32>",
  b: "bool",
  r: "u32",
};

export const registerType = (kind: Kind): string => registerTypes[kind];

/** The name under which rows have their texts for a kind. */
export function kindName(kind: Kind): KindName {
  const names: Record<Kind, KindName> = { f: "f32", i: "i32", l: "i64", b: "i32", r: "raw" };
  return names[kind];
}

/** The raw-bits type of a dtype's width. */
export const bitsOf = (dtype: ShaderDType): ShaderDType =>
  `bits${(info(dtype).bytes * 8) as 8 | 16 | 32 | 64}`;

/** The expression `value` of one kind as a value of another. */
export const convert = (from: Kind, to: Kind, value: string): string =>
  from === to ? value : `${to}_from_${from}(${value})`;

export const wordIndex = (bytes: number, i = "i"): string =>
  i + (bytes === 1 ? " >> 2u" : " >> 1u");
export const bitShift = (bytes: number, i = "i"): string =>
  `(${i}${bytes === 1 ? " & 3u) << 3u" : " & 1u) << 4u"}`;
export const bitMask = (bytes: number): string => (bytes === 1 ? "0xffu" : "0xffffu");

/** The register value of the bits `word`. */
export function fromWord(dtype: ShaderDType, word: string): string {
  const type = info(dtype);
  if (type.load !== "") {
    return `${type.load}(${word})`;
  }
  return type.kind === "r" || type.kind === "l" ? word : `bitcast<${type.wgsl}>(${word})`;
}

/** The bits of a register value, masked for types smaller than a word. */
export function toWord(dtype: ShaderDType, value: string): string {
  const type = info(dtype);
  if (dtype === "bool") {
    return `select(0u, 1u, (${value}) != 0)`;
  }
  if (type.bytes < 4) {
    return `(${type.store}(${value}) & ${bitMask(type.bytes)})`;
  }
  return type.kind === "r" || type.kind === "l" ? value : `bitcast<u32>(${value})`;
}
