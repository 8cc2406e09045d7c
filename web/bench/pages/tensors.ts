/** Tensors of a safetensors file, of float32 and int32. */

import { headerLength, parseHeader } from "../../player/safetensors";

export interface Tensor<T extends Float32Array | Int32Array = Float32Array | Int32Array> {
  readonly data: T;
  readonly shape: readonly number[];
}

export class Tensors {
  constructor(private readonly all: ReadonlyMap<string, Tensor>) {}

  /** Throws Error for a name that the file lacks, or a tensor of another type. */
  floats(name: string): Tensor<Float32Array> {
    const found = this.all.get(name);
    if (!(found?.data instanceof Float32Array)) {
      throw new Error(`there is no float32 tensor ${name}`);
    }
    return found as Tensor<Float32Array>;
  }

  /** Throws Error for a name that the file lacks, or a tensor of another type. */
  integers(name: string): Tensor<Int32Array> {
    const found = this.all.get(name);
    if (!(found?.data instanceof Int32Array)) {
      throw new Error(`there is no int32 tensor ${name}`);
    }
    return found as Tensor<Int32Array>;
  }
}

export async function readTensors(url: string): Promise<Tensors> {
  const response = await fetch(url);
  if (!response.ok) {
    throw new Error(`${url}: status ${response.status}`);
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  const start = 8 + headerLength(bytes);
  const all = new Map<string, Tensor>();
  for (const [name, { dtype, shape, begin, end }] of parseHeader(bytes.subarray(8, start))
    .entries) {
    // Headers are padded, so that tensors lie where typed arrays can.
    const place = [bytes.buffer, start + begin, (end - begin) / 4] as const;
    if (dtype !== "F32" && dtype !== "I32") {
      throw new Error(`${name} has the dtype ${dtype}`);
    }
    all.set(name, {
      shape,
      data: dtype === "F32" ? new Float32Array(...place) : new Int32Array(...place),
    });
  }
  return new Tensors(all);
}
