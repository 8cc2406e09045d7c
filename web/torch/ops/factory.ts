// New tensors.
import {
  dtypeInfo,
  encode,
  isDType,
  isFloating,
  isIntegral,
  toBigInt,
  type DType,
  type Scalar,
} from "../dtype";
import { check, NotImplementedError } from "../errors";
import { shaderDType } from "../launch";
import { checkArgument } from "../signatures";
import { Tensor, type Nested } from "../tensor";
import { pointwiseRows } from "../wgsl/data";
import { bitsOf } from "../wgsl/dtypes";
import { checkRoom } from "./checks";
import { checkFits, dispatchRow } from "./elementwise";

export interface Options {
  dtype?: DType;
  requires_grad?: boolean;
}

const finished = (tensor: Tensor, options: Options): Tensor =>
  options.requires_grad === true ? tensor.requires_grad_() : tensor;

function fromValues(values: ArrayLike<Scalar>, shape: readonly number[], dtype: DType): Tensor {
  const tensor = Tensor.empty(shape, dtype);
  const encoded = encode(values, dtype);
  tensor.storage.runtime.upload(
    tensor.storage.block,
    new Uint8Array(encoded.buffer as ArrayBuffer, encoded.byteOffset, encoded.byteLength),
  );
  return tensor;
}

/** A tensor of that shape from the bytes of its elements. */
export function from_bytes(bytes: Uint8Array, shape: readonly number[], dtype: DType): Tensor {
  const tensor = Tensor.empty(shape, dtype);
  const expected = tensor.numel() * dtypeInfo(dtype).bytes;
  check(
    bytes.byteLength === expected,
    () =>
      `${expected} bytes are needed for a ${dtype} tensor of shape [${shape.join(", ")}], not ${bytes.byteLength}`,
  );
  if (expected > 0) {
    tensor.storage.runtime.upload(tensor.storage.block, bytes);
  }
  return tensor;
}

type TypedInput = Float32Array | Float64Array | Int32Array | BigInt64Array | Uint8Array;

/** A tensor of nested arrays, a number, or a typed array (of one dimension). */
export function tensor(data: Nested | TypedInput, options: Options = {}): Tensor {
  const shape: number[] = [];
  let values: ArrayLike<Scalar>;
  let natural: DType;
  if (ArrayBuffer.isView(data)) {
    values = data;
    shape.push(data.length);
    natural =
      data instanceof BigInt64Array ? "int64" : data instanceof Int32Array ? "int32" : "float32";
    check(
      !(data instanceof Uint8Array) || options.dtype !== undefined,
      () => "tensor(Uint8Array): say the dtype; there is no uint8 here",
    );
  } else {
    for (let level: Nested = data; Array.isArray(level); level = level[0]!) {
      shape.push(level.length);
    }
    const flat: Scalar[] = [];
    const visit = (level: Nested, d: number): void => {
      if (Array.isArray(level)) {
        check(
          level.length === shape[d],
          () => `expected sequence of length ${shape[d]!} at dim ${d} (got ${level.length})`,
        );
        // Holes too, which are refused as values.
        for (const part of level) {
          visit(part, d + 1);
        }
      } else {
        check(d === shape.length, () => `expected a sequence at dim ${d}`);
        if (!["number", "bigint", "boolean"].includes(typeof level)) {
          throw new TypeError(
            `tensor(): numbers and lists of them make a tensor, not ${String(level)}`,
          );
        }
        flat.push(level);
      }
    };
    visit(data, 0);
    values = flat;
    natural =
      flat.length === 0
        ? "float32"
        : flat.every((value) => typeof value === "boolean")
          ? "bool"
          : flat.every(
                (value) =>
                  typeof value === "boolean" ||
                  typeof value === "bigint" ||
                  Number.isInteger(value),
              )
            ? "int64"
            : "float32";
  }
  const dtype = dtypeOf(options, natural);
  if (isIntegral(dtype) && dtype !== natural) {
    checkAllFit(values, dtype);
  } else if (dtype === "int64" && !ArrayBuffer.isView(data)) {
    checkAllFit(values, dtype);
  }
  return finished(fromValues(values, shape, dtype), options);
}

// What is not finite is no integer, which encode() says.
function checkAllFit(values: ArrayLike<Scalar>, dtype: DType): void {
  for (let k = 0; k < values.length; k++) {
    const value = values[k]!;
    if (typeof value === "bigint" || Number.isFinite(value)) {
      checkFits(value, dtype);
    }
  }
}

export const empty = (shape: readonly number[], options: Options = {}): Tensor =>
  finished(Tensor.empty(shape, dtypeOf(options, "float32")), options);

function dtypeOf(options: Options, otherwise: DType): DType {
  const dtype = options.dtype ?? otherwise;
  if (!isDType(dtype)) {
    dtypeInfo(dtype); // raises
  }
  return dtype;
}

export function full(shape: readonly number[], value: Scalar, options: Options = {}): Tensor {
  const natural =
    typeof value === "boolean"
      ? "bool"
      : typeof value === "bigint" || Number.isInteger(value)
        ? "int64"
        : "float32";
  const out = Tensor.empty(shape, dtypeOf(options, natural));
  checkFits(value, out.dtype);
  const encoded = encode([value], out.dtype)[0]!;
  const bits =
    out.dtype === "float32"
      ? new Uint32Array(Float32Array.of(Number(value)).buffer)[0]!
      : out.dtype === "int32"
        ? Number(encoded) >>> 0
        : encoded;
  const raw = bitsOf(shaderDType(out));
  dispatchRow(
    "full",
    "fill_bits",
    pointwiseRows.fill_bits!,
    raw,
    { tensor: out, dtype: raw },
    [],
    [bits],
  );
  return finished(out, options);
}

export const zeros = (shape: readonly number[], options: Options = {}): Tensor =>
  full(shape, 0, { ...options, dtype: dtypeOf(options, "float32") });
export const ones = (shape: readonly number[], options: Options = {}): Tensor =>
  full(shape, 1, { ...options, dtype: dtypeOf(options, "float32") });

export const empty_like = (self: Tensor, options: Options = {}): Tensor =>
  empty(self.shape, { dtype: self.dtype, ...options });
export const zeros_like = (self: Tensor, options: Options = {}): Tensor =>
  zeros(self.shape, { dtype: self.dtype, ...options });
export const ones_like = (self: Tensor, options: Options = {}): Tensor =>
  ones(self.shape, { dtype: self.dtype, ...options });
export const full_like = (self: Tensor, value: Scalar, options: Options = {}): Tensor =>
  full(self.shape, value, { dtype: self.dtype, ...options });

/** arange(end), arange(start, end) or arange(start, end, step). */
export function arange(...args: (Scalar | Options)[]): Tensor {
  const last: unknown = args.at(-1);
  const takes = typeof last === "object" && last !== null && !Array.isArray(last);
  const options = takes ? (args.pop() as Options) : {};
  const scalars = (args as (Scalar | undefined)[]).filter((one) => one !== undefined);
  if (scalars.length === 0) {
    throw new TypeError("arange(start, end, step) is missing its argument end");
  }
  scalars.forEach((one) => {
    checkArgument("arange", "end", "number", one);
  });
  const given = scalars.map(Number); // true is 1, and an integer
  const dtype = dtypeOf(options, given.every(Number.isInteger) ? "int64" : "float32");
  if (dtype === "bool") {
    throw new NotImplementedError(`"arange" not implemented for 'Bool'`);
  }
  scalars.forEach((value) => {
    checkFits(value, dtype);
  });
  const numbers = isFloating(dtype) ? given : given.map(Math.trunc);
  const [start, end, step] =
    numbers.length === 1 ? [0, numbers[0]!, 1] : [numbers[0]!, numbers[1]!, numbers[2] ?? 1];
  check(step !== 0, () => "step must be nonzero");
  // Before they are cut to integers.
  const [from, to] = given.length === 1 ? [0, given[0]!] : [given[0]!, given[1]!];
  check(Number.isFinite(from) && Number.isFinite(to), () => `unsupported range: ${from} -> ${to}`);
  check(
    step > 0 ? to >= from : to <= from,
    () => "upper bound and lower bound inconsistent with step sign",
  );
  const count = Math.ceil((end - start) / step);
  checkRoom(count);
  if (dtype === "int64" && given.some((value) => Math.abs(value) > Number.MAX_SAFE_INTEGER)) {
    return finished(longRange(scalars), options);
  }
  const values = Float64Array.from({ length: count }, (_, i) => start + i * step);
  return finished(fromValues(values, [count], dtype), options);
}

// Of integers that are no numbers of JavaScript.
function longRange(scalars: readonly Scalar[]): Tensor {
  const given = scalars.map(toBigInt);
  const [start, end, step] =
    given.length === 1 ? [0n, given[0]!, 1n] : [given[0]!, given[1]!, given[2] ?? 1n];
  const distance = end - start;
  const count = Number(distance / step) + (distance % step === 0n ? 0 : 1);
  const values = BigInt64Array.from({ length: count }, (_, k) => start + BigInt(k) * step);
  return fromValues(values, [count], "int64");
}

/** Counts from both ends, as PyTorch does, so that the last value is exact. */
export function linspace(start: number, end: number, steps: number, options: Options = {}): Tensor {
  check(steps >= 0, () => "number of steps must be non-negative");
  checkRoom(steps);
  checkFits(start, dtypeOf(options, "float32"));
  checkFits(end, dtypeOf(options, "float32"));
  const step = steps > 1 ? (end - start) / (steps - 1) : 0;
  const values = Float64Array.from({ length: steps }, (_, i) =>
    i < steps / 2 ? start + step * i : end - step * (steps - 1 - i),
  );
  if (steps === 1) {
    values[0] = start;
  }
  return finished(fromValues(values, [steps], dtypeOf(options, "float32")), options);
}

export function eye(n: number, m = n, options: Options = {}): Tensor {
  for (const [name, size] of Object.entries({ n, m })) {
    check(size >= 0, () => `${name} must be greater or equal to 0, got ${size}`);
  }
  checkRoom(n * m);
  const values = new Float64Array(n * m);
  for (let i = 0; i < Math.min(n, m); i++) {
    values[i * m + i] = 1;
  }
  return finished(fromValues(values, [n, m], dtypeOf(options, "float32")), options);
}

export const is_floating_dtype = isFloating;
