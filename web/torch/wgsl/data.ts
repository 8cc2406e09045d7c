// What the build knows of the shaders, typed. tools/tables.mjs writes the module behind it.
import * as generated from "../generated/wgsl.mjs";

/** The WGSL type of a value in registers; the letter is the suffix of library functions. */
export type Kind = "f" | "i" | "l" | "b" | "r";
export type KindName = "f32" | "i32" | "i64" | "raw";

export interface OperandInfo {
  name: string;
  access: "in" | "out" | "sum" | "update" | "words" | "vectors" | "numbers";
  dtypes: string[];
  optional: boolean;
  /** The operand whose dtype this one has; empty for none. */
  like: string;
  /** The operand whose register type this one has; empty for none. */
  akin: string;
  /** The kernel's own type of the elements; empty where `dtypes` says it. */
  element: string;
}

export interface ConstInfo {
  name: string;
  kind: "bool" | "u32" | "enum";
  values: (number | string)[];
}

export interface ParamInfo {
  name: string;
  type: "u32" | "i32" | "f32" | "vec4<u32>" | "vec4<i32>" | "vec4<f32>";
  /** Elements of an array; 0 for a single value. */
  count: number;
  /** In bytes. */
  offset: number;
}

export interface KernelInfo {
  operands: OperandInfo[];
  consts: ConstInfo[];
  requirements: string[];
  regions: string[];
  regionDefaults: Record<string, string>;
  params: ParamInfo[];
  paramsBytes: number;
  /** Invocations of a workgroup; 0 where constants decide. */
  workgroup: number;
  reportsErrors: boolean;
  text: string;
}

export interface PointwiseRow {
  inputs: string[];
  scalars: number;
  result: "same" | "bool" | "real";
  expressions: Partial<Record<KindName, string>>;
  keeps_numbers: boolean;
  converts_arguments: boolean;
  any_argument: boolean;
  is_cast: boolean;
  bool_inputs: string[];
  for_dtype: Record<string, string>;
  for_argument: Record<string, string>;
}

export interface ReduceTexts {
  accumulator: string;
  accumulator_bytes: number;
  identity: string;
  lift: string;
  combine: string;
  finish: string;
  second: string;
}

export interface ReduceRow {
  results: ("same" | "real" | "index")[];
  indexed: boolean;
  by_type: Partial<Record<KindName, ReduceTexts>>;
}

export interface ScanRow {
  indexed: boolean;
  by_type: Partial<Record<KindName, { identity: string; combine: string }>>;
}

export interface RandomRow {
  source: "bits" | "bits64" | "normal" | "tensor" | "draws";
  value: string;
}

export interface FactoryRow {
  kind: KindName;
  value: string;
}

export const kernels: Record<string, KernelInfo> = generated.kernels;
export const library: Record<string, string> = generated.library;
export const pointwiseRows: Record<string, PointwiseRow> = generated.pointwise;
export const reduceRows: Record<string, ReduceRow> = generated.reduce;
export const scanRows: Record<string, ScanRow> = generated.scan;
export const randomRows: Record<string, RandomRow> = generated.random;
export const factoryRows: Record<string, FactoryRow> = generated.factory;
