// Writes PyTorch's own .pt files: a zip of stored entries, of which one is a pickle that names the others.
import type { DType } from "../dtype";
import { NotImplementedError } from "../errors";
import type { OptimizerStateDict } from "../optim";
import { contiguousStrides, Tensor } from "../tensor";

/** Keys of a Map, which keep their type. */
type Key = string | number | bigint | boolean | null | undefined;

/** What a file may have, as `load` gives it. Maps and objects are dicts, arrays lists, null is None. */
export type Saved =
  | Tensor
  | OptimizerStateDict
  | number
  | bigint
  | string
  | boolean
  | null
  | undefined
  | readonly Saved[]
  | ReadonlyMap<Key, Saved>
  | { readonly [name: string]: Saved };

const STORAGES: Record<DType, string> = {
  ...{ float32: "FloatStorage", float16: "HalfStorage", int32: "IntStorage" },
  ...{ int64: "LongStorage", bool: "BoolStorage" },
};
const MAX_DEPTH = 100;

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

// A longer one is an opcode that Python's torch.load refuses.
const MAX_INT_BYTES = 255;

const placeOf = (name: string, key: unknown): string =>
  name === "" ? String(key) : `${name}.${String(key)}`;
const title = (name: string): string => (name === "" ? "it" : name);
const isKey = (key: unknown): key is Key =>
  key === null || ["string", "number", "bigint", "boolean", "undefined"].includes(typeof key);

const shown = (key: unknown): string => (typeof key === "bigint" ? `${key}n` : String(key));

/** What keys that are equal in Python have in common: 1, True and 1.0 are one key. */
function inPython(key: Key): string {
  if (typeof key === "string") {
    return `"${key}`;
  }
  return typeof key === "bigint" || key === null || key === undefined
    ? String(key ?? null)
    : String(Number.isInteger(Number(key)) ? BigInt(key) : key);
}

/** The opcodes of pickle's protocol 2 for the values of a file. */
class Pickle {
  private readonly bytes: number[] = [0x80, 2];
  /** Tensors by the keys of their storages; equal views are one. */
  readonly storages = new Map<string, Tensor>();
  private readonly keys = new Map<string, string>();

  finish(): Uint8Array {
    return Uint8Array.from([...this.bytes, ...utf8(".")]);
  }

  private op(code: string): void {
    this.bytes.push(code.charCodeAt(0));
  }

  private global(module: string, name: string): void {
    this.bytes.push(...utf8(`c${module}\n${name}\n`));
  }

  private text(value: string): void {
    if (/\p{Surrogate}/u.test(value)) {
      throw new RangeError(`torch.save(): ${JSON.stringify(value)} is no text of Unicode`);
    }
    const bytes = utf8(value);
    const head = new DataView(new ArrayBuffer(4));
    head.setUint32(0, bytes.length, true);
    this.op("X");
    this.bytes.push(...new Uint8Array(head.buffer));
    for (const byte of bytes) {
      this.bytes.push(byte);
    }
  }

  private int(value: bigint): void {
    if (BigInt.asIntN(32, value) === value) {
      const view = new DataView(new ArrayBuffer(4));
      view.setInt32(0, Number(value), true);
      this.op("J");
      this.bytes.push(...new Uint8Array(view.buffer));
      return;
    }
    let length = 5;
    while (BigInt.asIntN(8 * length, value) !== value) {
      if (++length > MAX_INT_BYTES) {
        throw new RangeError(`torch.save(): an integer of more than ${MAX_INT_BYTES} bytes`);
      }
    }
    this.bytes.push(0x8a, length);
    for (let k = 0; k < length; k++) {
      this.bytes.push(Number((value >> BigInt(8 * k)) & 0xffn));
    }
  }

  private number(value: number): void {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
      this.int(BigInt(value));
      return;
    }
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, value);
    this.op("G");
    this.bytes.push(...new Uint8Array(view.buffer));
  }

  private tuple(values: readonly number[]): void {
    this.op("(");
    for (const value of values) {
      this.number(value);
    }
    this.op("t");
  }

  private orderedDict(): void {
    this.global("collections", "OrderedDict");
    this.op(")");
    this.op("R");
  }

  private tensor(value: Tensor): void {
    // What shares memory here shares it in Python, if it is the same view.
    const { storage, dtype, shape, strides } = value;
    const place = [storageNumber(storage), value.storage_offset, ...strides].join();
    const view = `${dtype} ${place} ${shape.join()}`;
    let key = this.keys.get(view);
    if (key === undefined) {
      key = String(this.keys.size);
      this.keys.set(view, key);
      this.storages.set(key, value);
    }
    this.global("torch._utils", "_rebuild_tensor_v2");
    this.op("(");
    this.op("(");
    this.text("storage");
    this.global("torch", STORAGES[dtype]);
    this.text(key);
    this.text("cpu");
    this.number(value.numel());
    this.op("t");
    this.op("Q");
    this.number(0);
    this.tuple(shape);
    this.tuple(contiguousStrides(shape));
    this.bytes.push(0x89);
    this.orderedDict();
    this.op("t");
    this.op("R");
  }

  private dict(name: string, entries: Iterable<[unknown, Saved]>, depth: number): void {
    this.op("(");
    const seen = new Map<string, Key>();
    for (const [key, one] of entries) {
      if (!isKey(key)) {
        throw new NotImplementedError(
          `torch.save(): ${title(name)} is a dict with a key that is no number or text`,
        );
      }
      const equal = inPython(key);
      if (seen.has(equal)) {
        throw new RangeError(
          `torch.save(): ${title(name)} is a dict with the keys ${shown(seen.get(equal))} and ${shown(key)}, ` +
            "which are one in Python",
        );
      }
      seen.set(equal, key);
      this.value("", key, depth);
      this.value(placeOf(name, key), one, depth + 1);
    }
    this.op("u");
  }

  value(name: string, value: Saved, depth: number): void {
    if (depth > MAX_DEPTH) {
      throw new RangeError(`torch.save(): dicts or lists in more than ${MAX_DEPTH} others`);
    }
    if (value === null || value === undefined) {
      this.op("N");
    } else if (typeof value === "boolean") {
      this.bytes.push(value ? 0x88 : 0x89);
    } else if (typeof value === "number") {
      this.number(value);
    } else if (typeof value === "bigint") {
      this.int(value);
    } else if (typeof value === "string") {
      this.text(value);
    } else if (value instanceof Tensor) {
      this.tensor(value);
    } else if (isList(value)) {
      this.op("]");
      this.op("(");
      for (let k = 0; k < value.length; k++) {
        if (!(k in value)) {
          throw new RangeError(`torch.save(): ${title(name)} is a list without an element ${k}`);
        }
        this.value(placeOf(name, k), value[k], depth + 1);
      }
      this.op("e");
    } else if (value instanceof Map) {
      this.orderedDict();
      this.dict(name, value as ReadonlyMap<unknown, Saved>, depth);
    } else if (isObject(value)) {
      if (Object.getOwnPropertySymbols(value).length > 0) {
        throw new NotImplementedError(
          `torch.save(): ${title(name)} is a dict with a key that is no number or text`,
        );
      }
      this.op("}");
      this.dict(name, Object.entries(isOptimizer(value) ? withNumbers(value) : value), depth);
    } else {
      throw new NotImplementedError(
        `torch.save(): ${title(name)} is no tensor, number or text, and no dict or ` +
          "list of them",
      );
    }
  }
}

const isList = (value: unknown): value is readonly Saved[] => Array.isArray(value);
const isObject = (value: object): value is Record<string, Saved> => {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
};

const isDict = (value: unknown): value is Record<string, Saved> =>
  typeof value === "object" && value !== null && isObject(value);

/**
 * An optimizer's state dict: states by the numbers that its groups have for their parameters. An object of JavaScript has
 * these as texts.
 */
function isOptimizer(value: Record<string, Saved>): boolean {
  const { state, param_groups: groups } = value;
  if (!isDict(state) || !isList(groups) || groups.length === 0) {
    return false;
  }
  const numbers = new Set<string>();
  const known = groups.every((group) => {
    const params = isDict(group) ? group["params"] : undefined;
    const right = isList(params) && params.every((one) => Number.isInteger(one));
    if (right) {
      params.forEach((one) => numbers.add(String(one)));
    }
    return right;
  });
  return known && Object.entries(state).every(([key, one]) => numbers.has(key) && isDict(one));
}
function withNumbers(value: Record<string, Saved>): Record<string, Saved> {
  const state = Object.entries(value["state"] as Record<string, Saved>);
  return { ...value, state: new Map(state.map(([key, one]) => [Number(key), one])) };
}

const numbers = new WeakMap<object, number>();
let next = 0;
function storageNumber(storage: object): number {
  const found = numbers.get(storage) ?? next++;
  numbers.set(storage, found);
  return found;
}

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let k = 0; k < 8; k++) {
    crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return crc;
});
function crcOf(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc = (crc >>> 8) ^ CRC[(crc ^ byte) & 0xff]!;
  }
  return ~crc >>> 0;
}

// torch.load maps files into memory, where data has to be aligned.
const ALIGNMENT = 64;

function zipOf(entries: readonly [string, Uint8Array][]): Uint8Array {
  const parts: Uint8Array[] = [];
  const directory: Uint8Array[] = [];
  let at = 0;
  const add = (part: Uint8Array): void => {
    parts.push(part);
    at += part.byteLength;
  };
  for (const [name, bytes] of entries) {
    const label = utf8(name);
    const start = at;
    // An extra field, as PyTorch writes it, moves the data to where it belongs.
    const padding = (ALIGNMENT - ((start + 30 + label.length + 4) % ALIGNMENT)) % ALIGNMENT;
    const common = new DataView(new ArrayBuffer(26));
    common.setUint16(0, 20, true); // the version that reads it
    common.setUint16(2, 0x800, true); // names are UTF-8
    common.setUint16(8, 0x21, true); // 1980-01-01
    common.setUint32(10, crcOf(bytes), true);
    common.setUint32(14, bytes.byteLength, true);
    common.setUint32(18, bytes.byteLength, true);
    common.setUint16(22, label.length, true);
    const shared = new Uint8Array(common.buffer);
    const extra = new Uint8Array(4 + padding).fill(0x5a, 4);
    extra.set([0x46, 0x42, padding & 0xff, padding >> 8]);
    const local = shared.slice();
    new DataView(local.buffer).setUint16(24, extra.length, true);
    for (const part of [Uint8Array.of(0x50, 0x4b, 3, 4), local, label, extra, bytes]) {
      add(part);
    }
    const tail = new DataView(new ArrayBuffer(14));
    tail.setUint32(10, start, true);
    const head = Uint8Array.of(0x50, 0x4b, 1, 2, 20, 0);
    directory.push(head, shared, new Uint8Array(tail.buffer), label);
  }
  const begin = at;
  directory.forEach(add);
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  end.setUint16(8, entries.length, true);
  end.setUint16(10, entries.length, true);
  end.setUint32(12, at - begin, true);
  end.setUint32(16, begin, true);
  add(new Uint8Array(end.buffer));
  if (at >= 0xffffffff || entries.length >= 0xffff) {
    throw new NotImplementedError("torch.save(): a file of 4 GiB or more");
  }
  const file = new Uint8Array(at);
  let offset = 0;
  for (const part of parts) {
    file.set(part, offset);
    offset += part.byteLength;
  }
  return file;
}

/** The .pt file of tensors, and of dicts and lists of tensors, numbers and texts, as Python's `torch.load` reads it. */
export function save(value: Saved, ...more: never[]): Promise<Uint8Array> {
  if (more.length > 0) {
    throw new TypeError(
      `save(value) takes at most 1 arguments, but ${1 + more.length} were given: it gives the bytes of the file`,
    );
  }
  return written(value);
}

async function written(value: Saved): Promise<Uint8Array> {
  const pickle = new Pickle();
  pickle.value("", value, 0);
  const entries: [string, Uint8Array][] = [
    ["archive/data.pkl", pickle.finish()],
    ["archive/byteorder", utf8("little")],
  ];
  // Read as they are now, whatever is computed until the last one is here.
  const read = [...pickle.storages].map(async ([key, tensor]): Promise<[string, Uint8Array]> => {
    const { buffer, byteOffset, byteLength } = await tensor.data();
    return [`archive/data/${key}`, new Uint8Array(buffer, byteOffset, byteLength)];
  });
  entries.push(...(await Promise.all(read)));
  entries.push(["archive/version", utf8("3\n")]);
  return zipOf(entries);
}
