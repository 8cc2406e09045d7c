// PyTorch's own .pt files (torch.save of a dict of tensors), read without running anything of them.
import { dtypeInfo, type DType } from "../dtype";
import { NotImplementedError, RuntimeError } from "../errors";
import type { StateDict } from "../nn/module";
import { from_bytes } from "../ops/factory";
import { numelOf } from "../tensor";
import { unpickle, type TensorPlace } from "./pickle";
import { readZip } from "./zip";

const DTYPES: Record<string, DType | undefined> = {
  Float: "float32",
  Half: "float16",
  Int: "int32",
  Long: "int64",
  Bool: "bool",
};

const isPlace = (value: unknown): value is TensorPlace =>
  typeof value === "object" && value !== null && "storageType" in value && "shape" in value;

/** The tensors of a file; dicts in dicts get names with dots. Raises for other things than tensors and numbers. */
export function load(bytes: Uint8Array): StateDict {
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
  const state: StateDict = new Map();
  const visit = (name: string, value: unknown): void => {
    if (isPlace(value)) {
      state.set(name, tensorAt(name, value, entries.get(`${folder}data/${value.key}`)));
    } else if (value instanceof Map) {
      for (const [key, member] of value as Map<unknown, unknown>) {
        visit(name === "" ? String(key) : `${name}.${String(key)}`, member);
      }
    } else {
      throw new NotImplementedError(
        `${name === "" ? "the file" : name} is no tensor and no dict of tensors`,
      );
    }
  };
  visit("", unpickle(entries.get(data)!));
  return state;
}

function tensorAt(name: string, place: TensorPlace, bytes: Uint8Array | undefined) {
  const dtype = DTYPES[place.storageType];
  if (dtype === undefined) {
    throw new NotImplementedError(`tensor ${name} has elements of type ${place.storageType}`);
  }
  const { bytes: size } = dtypeInfo(dtype);
  const count = numelOf(place.shape);
  const last = place.shape.reduce((at, n, d) => at + (n - 1) * place.strides[d]!, place.offset);
  const elements = (bytes?.byteLength ?? 0) / size;
  if (bytes === undefined || (count > 0 && last >= elements) || elements < place.storageElements) {
    throw new RuntimeError(`tensor ${name} reaches beyond its storage`);
  }
  if (count === 0) {
    return from_bytes(new Uint8Array(), place.shape, dtype);
  }
  // Only the part of a shared storage that the tensor touches.
  const part = bytes.slice(place.offset * size, (last + 1) * size);
  const memory = from_bytes(part, [part.byteLength / size], dtype);
  const view = memory.viewed(place.shape, place.strides, 0);
  return view.is_contiguous() ? view : view.contiguous();
}
