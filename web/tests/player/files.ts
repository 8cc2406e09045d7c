/** Graph files for tests: those that make_files.py wrote, and those made here. */

import { type DType, fromBytes, type TypedArray } from "../../player/dtypes";
import { headerLength, parseHeader } from "../../player/safetensors";
import type { Environment } from "./environment";

export interface Listed {
  readonly name: string;
  readonly rtol: number;
  readonly atol: number;
  readonly placed: boolean;
  readonly calls: readonly { function: string; inputs: string[]; outputs: string[] }[];
}

export interface Tensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: TypedArray;
  readonly bytes: ArrayBuffer;
}

export function parseTensors(file: ArrayBuffer): Map<string, Tensor> {
  const start = 8 + headerLength(new Uint8Array(file));
  const { entries } = parseHeader(new Uint8Array(file, 8, start - 8));
  return new Map(
    [...entries].map(([name, { dtype, shape, begin, end }]) => {
      const bytes = file.slice(start + begin, start + end);
      return [name, { dtype, shape, bytes, data: fromBytes(dtype, bytes) }];
    }),
  );
}

export async function bytesOf(environment: Environment, name: string): Promise<ArrayBuffer> {
  const response = await fetch(environment.url(name));
  if (!response.ok) {
    throw new Error(`no file ${name}: run make test-web, which makes it`);
  }
  return response.arrayBuffer();
}

export async function jsonOf<T>(environment: Environment, name: string): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await bytesOf(environment, name))) as T;
}

/** A file without tensors. */
export function fileOf(program: unknown, version = "1"): Uint8Array<ArrayBuffer> {
  const text = typeof program === "string" ? program : JSON.stringify(program);
  const metadata = { "torch_webgpu.graph": version, "torch_webgpu.program": text };
  const header = new TextEncoder().encode(JSON.stringify({ __metadata__: metadata }));
  const file = new Uint8Array(8 + header.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(header.length), true);
  file.set(header, 8);
  return file;
}

/* eslint-disable @typescript-eslint/no-explicit-any */
/** The program of a file as JSON, to be changed. */
export function programOf(file: ArrayBuffer): any {
  const length = headerLength(new Uint8Array(file));
  const { metadata } = parseHeader(new Uint8Array(file, 8, length));
  return JSON.parse(metadata.get("torch_webgpu.program")!);
}

/** The file with another program, which has the same tensors. */
export function withProgram(file: ArrayBuffer, program: unknown): Uint8Array<ArrayBuffer> {
  const start = 8 + headerLength(new Uint8Array(file));
  const header = JSON.parse(new TextDecoder().decode(file.slice(8, start))) as Record<string, any>;
  header["__metadata__"]["torch_webgpu.program"] = JSON.stringify(program);
  const text = new TextEncoder().encode(JSON.stringify(header));
  const changed = new Uint8Array(8 + text.length + file.byteLength - start);
  new DataView(changed.buffer).setBigUint64(0, BigInt(text.length), true);
  changed.set(text, 8);
  changed.set(new Uint8Array(file, start), 8 + text.length);
  return changed;
}
