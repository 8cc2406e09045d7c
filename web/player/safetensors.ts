/** The safetensors format: 8 bytes with the length of a JSON header, the header, the tensors. */

import { type DType, isDType, typeOf } from "./dtypes";
import { quote, refuse } from "./errors";
import { type Json, type JsonObject, parseJson } from "./json";

/** A tensor of a file. */
export interface Entry {
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Where its bytes are, counted from the end of the header. */
  readonly begin: number;
  readonly end: number;
}

export interface Header {
  readonly metadata: ReadonlyMap<string, string>;
  readonly entries: ReadonlyMap<string, Entry>;
  /** Bytes of all tensors. */
  readonly bytes: number;
}

/** What safetensors allows a header to have. */
const LONGEST_HEADER = 100_000_000;

/** The length of the header from the first 8 bytes. */
export function headerLength(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.byteLength < 8) {
    refuse("it is shorter than any safetensors file");
  }
  const length = view.getBigUint64(0, true);
  if (length < 2n || length > LONGEST_HEADER) {
    refuse(`its header would have ${length} bytes, so it is no safetensors file`);
  }
  return Number(length);
}

function isCount(value: Json | undefined): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parseEntry(name: string, value: Json): Entry {
  const fail = () => refuse(`the tensor ${quote(name)} is malformed`);
  if (!isObject(value) || Object.keys(value).length !== 3) {
    return fail();
  }
  const { dtype, shape, data_offsets: place } = value;
  if (typeof dtype !== "string" || !Array.isArray(shape) || !Array.isArray(place)) {
    return fail();
  }
  if (!isDType(dtype)) {
    return refuse(`the tensor ${quote(name)} has the unknown dtype ${quote(dtype)}`);
  }
  const [begin, end] = place;
  if (!shape.every(isCount) || place.length !== 2 || !isCount(begin) || !isCount(end)) {
    return fail();
  }
  const bytes = shape.reduce((product, size) => product * size, typeOf(dtype).bytes);
  if (!Number.isSafeInteger(bytes) || end - begin !== bytes) {
    return fail();
  }
  return { dtype, shape, begin, end };
}

/** Checks all that can be checked without the tensors. */
export function parseHeader(bytes: Uint8Array): Header {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return refuse("its header is not UTF-8");
  }
  if (!text.startsWith("{")) {
    refuse("its header is no JSON object, so it is no safetensors file");
  }
  const members = parseJson(text) as JsonObject;
  const metadata = new Map<string, string>();
  const given = members["__metadata__"];
  delete members["__metadata__"];
  if (given !== undefined) {
    if (!isObject(given)) {
      return refuse("its metadata is malformed");
    }
    for (const [key, value] of Object.entries(given)) {
      if (typeof value !== "string") {
        return refuse("its metadata is malformed");
      }
      metadata.set(key, value);
    }
  }
  const entries = new Map(
    Object.entries(members).map(([name, value]) => [name, parseEntry(name, value)]),
  );
  // The tensors follow each other without gaps.
  let end = 0;
  for (const entry of [...entries.values()].sort((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (entry.begin !== end) {
      refuse("its tensors overlap or leave gaps");
    }
    end = entry.end;
  }
  return { metadata, entries, bytes: end };
}

/** A file of these tensors, in the order in which they are given. */
export function writeSafetensors(
  tensors: Iterable<readonly [string, DType, readonly number[], Uint8Array]>,
  metadata: Readonly<Record<string, string>>,
): Uint8Array<ArrayBuffer> {
  // Large elements first, so that each tensor is aligned.
  const sorted = [...tensors].sort((a, b) => typeOf(b[1]).bytes - typeOf(a[1]).bytes);
  const members: [string, unknown][] = [["__metadata__", metadata]];
  let end = 0;
  for (const [name, dtype, shape, bytes] of sorted) {
    members.push([name, { dtype, shape, data_offsets: [end, end + bytes.length] }]);
    end += bytes.length;
  }
  const json = JSON.stringify(Object.fromEntries(members));
  const header = new TextEncoder().encode(json);
  const start = 8 + Math.ceil(header.length / 8) * 8;
  const file = new Uint8Array(start + end).fill(0x20, 8, start);
  new DataView(file.buffer).setBigUint64(0, BigInt(start - 8), true);
  file.set(header, 8);
  let at = start;
  for (const [, , , bytes] of sorted) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}
