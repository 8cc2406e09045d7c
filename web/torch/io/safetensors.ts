// State dicts as safetensors files: a length, a JSON header, the bytes of the tensors.
import { dtypeInfo, type DType } from "../dtype";
import { RuntimeError } from "../errors";
import type { StateDict } from "../nn/module";
import { from_bytes } from "../ops/factory";
import { numelOf, type Tensor } from "../tensor";
import { checkArgument } from "../signatures";
import { checkBytes, converted, converts, foreign, type LoadOptions } from "./foreign";

const NAMES: Record<DType, string> = {
  float32: "F32",
  float16: "F16",
  int32: "I32",
  int64: "I64",
  bool: "BOOL",
};
const DTYPES = new Map(Object.entries(NAMES).map(([dtype, name]) => [name, dtype as DType]));
/** What files call the dtypes that are missing here. */
const FOREIGN: Record<string, string | undefined> = {
  ...{ BF16: "bfloat16", F64: "float64", U8: "uint8", I8: "int8" },
  ...{ U16: "uint16", I16: "int16", U32: "uint32", U64: "uint64" },
};
const MAX_HEADER = 100_000_000;

function refuse(why: string): never {
  throw new RuntimeError(`not a safetensors file: ${why}`);
}

const isCount = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0;

/** The tensors of a file. Everything in it is checked before it is used. */
export function load(bytes: Uint8Array, options: LoadOptions = {}): StateDict {
  checkBytes("safetensors.load", bytes);
  const convert = converts("safetensors.load", options);
  if (bytes.byteLength < 8) {
    refuse("it is too short");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = Number(view.getBigUint64(0, true));
  if (length > MAX_HEADER || 8 + length > bytes.byteLength) {
    refuse(`a header of ${length} bytes`);
  }
  let header: unknown;
  try {
    header = JSON.parse(
      new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, 8 + length)),
    );
  } catch {
    refuse("the header is no JSON");
  }
  if (typeof header !== "object" || header === null || Array.isArray(header)) {
    refuse("the header is no object");
  }
  const data = bytes.subarray(8 + length);
  const places: [begin: number, end: number][] = [];
  const state: StateDict = new Map();
  for (const [name, entry] of Object.entries(
    header as Record<string, Record<string, unknown> | null>,
  )) {
    if (name === "__metadata__") {
      continue;
    }
    const { dtype, shape, data_offsets: offsets } = entry ?? {};
    const known = DTYPES.get(String(dtype));
    const other =
      known === undefined
        ? foreign("safetensors.load", name, FOREIGN[String(dtype)] ?? String(dtype), convert)
        : undefined;
    if (
      !Array.isArray(shape) ||
      !shape.every(isCount) ||
      !Array.isArray(offsets) ||
      offsets.length !== 2 ||
      !offsets.every(isCount)
    ) {
      refuse(`the entry of ${name}`);
    }
    const [begin, end] = offsets as [number, number];
    const size = other?.bytes ?? dtypeInfo(known!).bytes;
    if (end > data.byteLength || end - begin !== numelOf(shape) * size) {
      refuse(`the place of ${name}`);
    }
    places.push([begin, end]);
    const part = data.slice(begin, end);
    state.set(
      name,
      other === undefined
        ? from_bytes(part, shape, known!)
        : from_bytes(converted(other, part), shape, other.to),
    );
  }
  // Each byte is of one tensor, as the format has it: a file that goes on is another one, and none has gaps.
  let at = 0;
  for (const [begin, end] of places.sort(([a, b], [c, d]) => a - c || b - d)) {
    if (begin !== at) {
      refuse("its tensors overlap or have gaps between them");
    }
    at = end;
  }
  if (at !== data.byteLength) {
    refuse(`${data.byteLength - at} bytes behind its tensors`);
  }
  return state;
}

/** The file of a state dict, as `safetensors.torch.load` reads it. */
export async function save(state: StateDict | Record<string, Tensor>): Promise<Uint8Array> {
  checkArgument("safetensors.save", "state", "dict", (state as StateDict | undefined) ?? null);
  const entries = state instanceof Map ? [...state] : Object.entries(state);
  for (const [name, tensor] of entries as [unknown, unknown][]) {
    if (typeof name !== "string" || name === "__metadata__" || /\p{Surrogate}/u.test(name)) {
      throw new RangeError(`safetensors.save(): ${JSON.stringify(name)} is no name of a tensor`);
    }
    checkArgument("safetensors.save", name, "tensor", tensor ?? null);
  }
  // Without a prototype, no name has a meaning for JavaScript.
  const header = Object.create(null) as Record<string, object>;
  header["__metadata__"] = { format: "pt" };
  const parts: Uint8Array[] = [];
  let at = 0;
  // Read as they are now, whatever is computed until the last one is here.
  const read = await Promise.all(entries.map(([, tensor]) => tensor.data()));
  for (const [k, [name, tensor]] of entries.entries()) {
    const values = read[k]!;
    const part = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    header[name] = {
      ...{ dtype: NAMES[tensor.dtype], shape: tensor.shape },
      data_offsets: [at, at + part.byteLength],
    };
    parts.push(part);
    at += part.byteLength;
  }
  // The header is filled up with spaces, so that the data is aligned.
  const text = JSON.stringify(header);
  const json = new TextEncoder().encode(text);
  const padded = Math.ceil(json.byteLength / 8) * 8;
  const file = new Uint8Array(8 + padded + at).fill(0x20, 8, 8 + padded);
  new DataView(file.buffer).setBigUint64(0, BigInt(padded), true);
  file.set(json, 8);
  let place = 8 + padded;
  for (const part of parts) {
    file.set(part, place);
    place += part.byteLength;
  }
  return file;
}
