// Elements of dtypes that WGSL does not have: read as the nearest dtype, if the caller asks for it.
import type { DType } from "../dtype";
import { NotImplementedError } from "../errors";
import { checkOptions } from "../signatures";

export interface LoadOptions {
  /**
   * Reads bfloat16 and float64 as float32, and integers that are missing here as int32 or int64. Only float64, and
   * uint64 above 2 ** 63, lose anything.
   */
  convert?: boolean;
}

interface Foreign {
  bytes: number;
  to: DType;
  /** Converts `count` elements to the bytes of the other dtype. */
  read: (view: DataView, count: number) => ArrayBufferView<ArrayBuffer>;
}

const ints =
  (bytes: number, at: (view: DataView, place: number) => number): Foreign["read"] =>
  (view, count) =>
    Int32Array.from({ length: count }, (_, k) => at(view, k * bytes));
const longs =
  (bytes: number, at: (view: DataView, place: number) => bigint): Foreign["read"] =>
  (view, count) =>
    BigInt64Array.from({ length: count }, (_, k) => at(view, k * bytes));

/** By PyTorch's names. */
const FOREIGN: Record<string, Foreign | undefined> = {
  bfloat16: {
    ...{ bytes: 2, to: "float32" },
    // The upper half of a float32.
    read: (view, count) =>
      Uint32Array.from({ length: count }, (_, k) => view.getUint16(2 * k, true) << 16),
  },
  float64: {
    ...{ bytes: 8, to: "float32" },
    read: (view, count) =>
      Float32Array.from({ length: count }, (_, k) => view.getFloat64(8 * k, true)),
  },
  uint8: { bytes: 1, to: "int32", read: ints(1, (view, k) => view.getUint8(k)) },
  int8: { bytes: 1, to: "int32", read: ints(1, (view, k) => view.getInt8(k)) },
  uint16: { bytes: 2, to: "int32", read: ints(2, (view, k) => view.getUint16(k, true)) },
  int16: { bytes: 2, to: "int32", read: ints(2, (view, k) => view.getInt16(k, true)) },
  uint32: { bytes: 4, to: "int64", read: longs(4, (view, k) => BigInt(view.getUint32(k, true))) },
  uint64: { bytes: 8, to: "int64", read: longs(8, (view, k) => view.getBigUint64(k, true)) },
};

/** Raises for what are no bytes of a file. */
export function checkBytes(owner: string, bytes: unknown): void {
  // Not by its class, which is another one in each frame of a page.
  if (Object.prototype.toString.call(bytes) !== "[object Uint8Array]") {
    throw new TypeError(
      `${owner}(): the bytes of the file must be Uint8Array, not ${String(bytes)}`,
    );
  }
}

/** Whether elements of a dtype by PyTorch's name may be converted. */
export function converts(owner: string, options: LoadOptions): boolean {
  checkOptions(owner, options, ["convert"]);
  return options.convert === true;
}

/** How elements of a dtype that is missing here are read. Raises if nobody asked for it. */
export function foreign(owner: string, tensor: string, dtype: string, convert: boolean): Foreign {
  const found = FOREIGN[dtype];
  if (found === undefined) {
    throw new NotImplementedError(`tensor ${tensor} has the dtype ${dtype}, which is not here`);
  }
  if (!convert) {
    throw new NotImplementedError(
      `tensor ${tensor} has the dtype ${dtype}, which WGSL does not have: ` +
        `${owner}(bytes, { convert: true }) makes ${found.to} of it`,
    );
  }
  return found;
}

/** The elements in the bytes of the dtype that they become. */
export function converted({ read, bytes: size }: Foreign, bytes: Uint8Array): Uint8Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const made = read(view, bytes.byteLength / size);
  return new Uint8Array(made.buffer, made.byteOffset, made.byteLength);
}
