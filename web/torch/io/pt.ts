// PyTorch's own .pt files (torch.save), read without running anything of them.
import { dtypeInfo, isDType, type DType } from "../dtype";
import { NotImplementedError, RuntimeError } from "../errors";
import { from_bytes } from "../ops/factory";
import { numelOf, type Tensor } from "../tensor";
import { checkBytes, converted, converts, foreign, type LoadOptions } from "./foreign";
import { unpickle, type Global, type TensorPlace } from "./pickle";
import { readZip } from "./zip";

/** PyTorch's names of the dtypes of storages. */
const DTYPES: Record<string, string | undefined> = {
  ...{ Float: "float32", Half: "float16", Int: "int32", Long: "int64", Bool: "bool" },
  ...{ BFloat16: "bfloat16", Double: "float64", Byte: "uint8", Char: "int8", Short: "int16" },
};

/** What a file may have: dicts are objects, tuples and lists arrays, None is null. */
export type Loaded =
  Tensor | number | bigint | string | boolean | null | Loaded[] | { [name: string]: Loaded };

// Files of people are not that deep; JavaScript's own error for one that is would name its stack.
const MAX_DEPTH = 100;

const isPlace = (value: unknown): value is TensorPlace =>
  typeof value === "object" && value !== null && "storageType" in value && "shape" in value;
const isGlobal = (value: unknown): value is Global =>
  typeof value === "object" && value !== null && "global" in value;

/**
 * What Python's torch.save wrote: the state dict of a module or an optimizer, a tensor, or dicts and lists of tensors,
 * numbers and strings. Raises for what asks for other classes.
 */
export function load<T = Record<string, Tensor>>(bytes: Uint8Array, options: LoadOptions = {}): T {
  checkBytes("torch.load", bytes);
  const convert = converts("torch.load", options);
  const entries = readZip(bytes);
  const data = [...entries.keys()].find(
    (name) => name === "data.pkl" || name.endsWith("/data.pkl"),
  );
  if (data === undefined) {
    throw new RuntimeError("the file has no data.pkl: it is not one of torch.save");
  }
  const folder = data.slice(0, -"data.pkl".length);
  const order = entries.get(`${folder}byteorder`);
  if (order !== undefined && new TextDecoder().decode(order) !== "little") {
    throw new NotImplementedError("a file with big-endian numbers");
  }
  // What is in several places is made once. Undefined is what is still being made, so that it contains itself.
  const made = new Map<unknown, Loaded | undefined>();
  const once = (name: string, value: object, make: () => Loaded): Loaded => {
    if (made.has(value)) {
      const before = made.get(value);
      if (before === undefined) {
        throw new RuntimeError(`${name === "" ? "the file" : name} contains itself`);
      }
      return before;
    }
    made.set(value, undefined);
    const result = make();
    made.set(value, result);
    return result;
  };
  const visit = (name: string, value: unknown, depth: number): Loaded => {
    if (depth > MAX_DEPTH) {
      throw new RuntimeError(`the file has dicts or lists in more than ${MAX_DEPTH} others`);
    }
    if (value === null || ["number", "bigint", "string", "boolean"].includes(typeof value)) {
      return value as Loaded;
    }
    if (isPlace(value)) {
      const storage = entries.get(`${folder}data/${value.key}`);
      return once(name, value, () => tensorAt(name, value, storage, convert));
    }
    const inner = (key: string): string => (name === "" ? key : `${name}.${key}`);
    if (Array.isArray(value)) {
      return once(name, value, () =>
        value.map((member, k) => visit(inner(String(k)), member, depth + 1)),
      );
    }
    if (value instanceof Map) {
      return once(name, value, () =>
        dictOf(name, value, (key, one) => visit(inner(key), one, depth + 1)),
      );
    }
    if (isGlobal(value) && /^torch [a-z]+[0-9]*$/.test(value.global)) {
      return value.global.replace(" ", ".");
    }
    throw new NotImplementedError(
      `${name === "" ? "the file" : name} is no tensor, number or text, and no dict or list of them`,
    );
  };
  return visit("", unpickle(entries.get(data)!), 0) as T;
}

function dictOf(
  name: string,
  dict: Map<unknown, unknown>,
  visit: (key: string, value: unknown) => Loaded,
): Record<string, Loaded> {
  // Without a prototype, no key has a meaning for JavaScript.
  const result = Object.create(null) as Record<string, Loaded>;
  for (const [key, value] of dict) {
    if (!["string", "number", "bigint", "boolean"].includes(typeof key)) {
      throw new NotImplementedError(
        `${name === "" ? "the file" : name} is a dict with a key that is no text and no number`,
      );
    }
    if (String(key) in result) {
      const text = String(key);
      throw new NotImplementedError(
        `${name === "" ? "the file" : name} is a dict with the keys ${text} and "${text}"`,
      );
    }
    result[String(key)] = visit(String(key), value);
  }
  return result;
}

function tensorAt(
  name: string,
  place: TensorPlace,
  bytes: Uint8Array | undefined,
  convert: boolean,
): Tensor {
  const dtype = DTYPES[place.storageType] ?? place.storageType;
  const other = isDType(dtype) ? undefined : foreign("torch.load", name, dtype, convert);
  const size = other?.bytes ?? dtypeInfo(dtype as DType).bytes;
  const target = other?.to ?? (dtype as DType);
  const count = numelOf(place.shape);
  const last = place.shape.reduce((at, n, d) => at + (n - 1) * place.strides[d]!, place.offset);
  const elements = (bytes?.byteLength ?? 0) / size;
  if (bytes === undefined || (count > 0 && last >= elements) || elements < place.storageElements) {
    throw new RuntimeError(`tensor ${name} reaches beyond its storage`);
  }
  if (count === 0) {
    return from_bytes(new Uint8Array(), place.shape, target);
  }
  // Only the part of a shared storage that the tensor touches.
  const part = bytes.slice(place.offset * size, (last + 1) * size);
  const memory = from_bytes(
    other === undefined ? part : converted(other, part),
    ...([[part.byteLength / size], target] as const),
  );
  const view = memory.viewed(place.shape, place.strides, 0);
  return view.is_contiguous() ? view : view.contiguous();
}
