// Views, and operators that only move elements.
import { record } from "../autograd";
import { promote, type DType } from "../dtype";
import { check, checkDistinct, NotImplementedError, RuntimeError } from "../errors";
import { launch, shaderDType } from "../launch";
import { contiguousStrides, numelOf, Tensor } from "../tensor";
import { bitsOf } from "../wgsl/dtypes";
import { broadcastShapes, expandedStrides } from "./collapse";
import { copyInto } from "./elementwise";
import { zeros } from "./factory";
import { index_add, index_get, index_select } from "./indexing";
import { arange, tensor } from "./factory";

// The shape with its -1 filled in.
function inferred(shape: readonly number[], count: number): number[] {
  const unknown = shape.indexOf(-1);
  const known = shape.reduce((product, size) => product * (size === -1 ? 1 : size), 1);
  const invalid = (): string =>
    `shape '[${shape.join(", ")}]' is invalid for input of size ${count}`;
  if (unknown < 0) {
    check(known === count, invalid);
    return [...shape];
  }
  check(shape.lastIndexOf(-1) === unknown, () => "only one dimension can be inferred");
  check(known !== 0 && count % known === 0, invalid);
  return shape.map((size) => (size === -1 ? count / known : size));
}

/** The strides with which the tensor's memory has another shape; undefined if there are none. */
function strideOfView(self: Tensor, shape: readonly number[]): number[] | undefined {
  if (self.numel() === 0) {
    return self.shape.join() === shape.join() ? [...self.strides] : contiguousStrides(shape);
  }
  const strides = new Array<number>(shape.length);
  let d = shape.length - 1;
  // Runs of the tensor's dimensions that lie in memory as one, from the last.
  let base = self.strides.at(-1) ?? 1;
  let run = 1;
  let made = 1;
  for (let own = self.dim() - 1; own >= 0; own--) {
    run *= self.shape[own]!;
    const ends = own === 0 || (self.shape[own - 1] !== 1 && self.strides[own - 1] !== run * base);
    if (!ends) {
      continue;
    }
    while (d >= 0 && (made < run || shape[d] === 1)) {
      strides[d] = made * base;
      made *= shape[d]!;
      d--;
    }
    if (made !== run) {
      return undefined;
    }
    if (own > 0) {
      base = self.strides[own - 1]!;
      run = 1;
      made = 1;
    }
  }
  while (d >= 0 && shape[d] === 1) {
    strides[d--] = base;
  }
  return d < 0 ? strides : undefined;
}

type Shape = readonly number[] | readonly [readonly number[]];

const flatShape = (shape: (number | readonly number[])[]): number[] => shape.flat() as number[];

/** The same memory with another shape: view(2, -1) or view([2, -1]). */
export function view(self: Tensor, ...shape: (number | readonly number[])[]): Tensor {
  const sizes = inferred(flatShape(shape), self.numel());
  const strides = strideOfView(self, sizes);
  if (strides === undefined) {
    throw new RuntimeError(
      "view size is not compatible with input tensor's size and stride (at least one dimension " +
        "spans across two contiguous subspaces). Use .reshape(...) instead.",
    );
  }
  const out = self.viewed(sizes, strides, self.storage_offset);
  const { shape: before } = self;
  return record(out, "ViewBackward0", [self], (g) => [reshape(g, before)]);
}

export function reshape(self: Tensor, ...shape: (number | readonly number[])[]): Tensor {
  const sizes = inferred(flatShape(shape), self.numel());
  return view(strideOfView(self, sizes) === undefined ? self.clone() : self, sizes);
}
export const view_as = (self: Tensor, other: Tensor): Tensor => view(self, other.shape);
export const reshape_as = (self: Tensor, other: Tensor): Tensor => reshape(self, other.shape);
/** Contiguous: a copy also where reshape() has a view with steps. */
export const ravel = (self: Tensor): Tensor => view(self.contiguous(), -1);

export function flatten(self: Tensor, start_dim = 0, end_dim = -1): Tensor {
  const start = self.wrapDim(start_dim);
  const end = self.wrapDim(end_dim);
  check(start <= end, () => "flatten() has invalid args: start_dim cannot come after end_dim");
  if (self.dim() === 0) {
    return reshape(self, 1);
  }
  const merged = numelOf(self.shape.slice(start, end + 1));
  return reshape(self, [...self.shape.slice(0, start), merged, ...self.shape.slice(end + 1)]);
}

export function unflatten(self: Tensor, dim: number, sizes: readonly number[]): Tensor {
  const d = self.wrapDim(dim);
  const parts = inferred(sizes, self.shape[d]!);
  return reshape(self, [...self.shape.slice(0, d), ...parts, ...self.shape.slice(d + 1)]);
}

export function permute(self: Tensor, ...dims: (number | readonly number[])[]): Tensor {
  const order = flatShape(dims).map((dim) => self.wrapDim(dim));
  check(
    order.length === self.dim(),
    () =>
      "permute(sparse_coo): number of dimensions in the tensor input does not match the length of " +
      `the desired ordering of dimensions i.e. input.dim() = ${self.dim()} is not equal to ` +
      `len(dims) = ${order.length}`,
  );
  check(new Set(order).size === order.length, () => "permute(): duplicate dims are not allowed.");
  const out = self.viewed(
    order.map((d) => self.shape[d]!),
    order.map((d) => self.strides[d]!),
    self.storage_offset,
  );
  const inverse = order.map((_, d) => order.indexOf(d));
  return record(out, "PermuteBackward0", [self], (g) => [permute(g, inverse)]);
}

export function transpose(self: Tensor, dim0: number, dim1: number): Tensor {
  const a = self.wrapDim(dim0);
  const b = self.wrapDim(dim1);
  const order = self.shape.map((_, d) => (d === a ? b : d === b ? a : d));
  return permute(self, order);
}
export const swapaxes = transpose;
export const swapdims = transpose;

export function t(self: Tensor): Tensor {
  check(
    self.dim() <= 2,
    () => `t() expects a tensor with <= 2 dimensions, but self is ${self.dim()}D`,
  );
  return self.dim() < 2
    ? permute(
        self,
        self.shape.map((_, d) => d),
      )
    : transpose(self, 0, 1);
}

export function movedim(
  self: Tensor,
  source: number | readonly number[],
  destination: number | readonly number[],
): Tensor {
  const from = [source].flat().map((dim) => self.wrapDim(dim));
  const to = [destination].flat().map((dim) => self.wrapDim(dim));
  check(from.length === to.length, () => "movedim: Invalid source or destination dims");
  check(
    new Set(from).size === from.length && new Set(to).size === to.length,
    () => "movedim: repeated dim",
  );
  const order = new Array<number>(self.dim()).fill(-1);
  to.forEach((d, k) => {
    order[d] = from[k]!;
  });
  const rest = self.shape.map((_, d) => d).filter((d) => !from.includes(d));
  return permute(
    self,
    order.map((d) => (d < 0 ? rest.shift()! : d)),
  );
}
export const moveaxis = movedim;

export function expand(self: Tensor, ...sizes: (number | readonly number[])[]): Tensor {
  const wanted = flatShape(sizes);
  const skipped = wanted.length - self.dim();
  check(
    skipped >= 0,
    () =>
      `expand(torch.FloatTensor{[${self.shape.join(", ")}]}, size=[${wanted.join(", ")}]): the number ` +
      `of sizes provided (${wanted.length}) must be greater or equal to the number of dimensions in the tensor (${self.dim()})`,
  );
  const shape = wanted.map((size, d) => {
    const own = d < skipped ? 1 : self.shape[d - skipped]!;
    const result = size === -1 && d >= skipped ? own : size;
    check(
      result >= 0 && (own === 1 || own === result),
      () =>
        `The expanded size of the tensor (${size}) must match the existing size (${own}) at ` +
        `non-singleton dimension ${d}.  Target sizes: [${wanted.join(", ")}].  Tensor sizes: [${self.shape.join(", ")}]`,
    );
    return result;
  });
  const out = self.viewed(shape, expandedStrides(self, shape), self.storage_offset);
  // The tape sums the gradient over expanded dimensions.
  return record(out, "ExpandBackward0", [self], (g) => [g]);
}
export const expand_as = (self: Tensor, other: Tensor): Tensor => expand(self, other.shape);
export const broadcast_to = (self: Tensor, size: readonly number[]): Tensor => expand(self, size);
export function broadcast_tensors(...tensors: Tensor[]): Tensor[] {
  const shape = broadcastShapes(...tensors.map((one) => one.shape));
  return tensors.map((one) => expand(one, shape));
}

export function unsqueeze(self: Tensor, dim: number): Tensor {
  const d = self.wrapDim(dim, self.dim() + 1);
  const step = d < self.dim() ? self.shape[d]! * self.strides[d]! : 1;
  const out = self.viewed(
    self.shape.toSpliced(d, 0, 1),
    self.strides.toSpliced(d, 0, step),
    self.storage_offset,
  );
  return record(out, "UnsqueezeBackward0", [self], (g) => [squeeze(g, d)]);
}

/** Without the dimensions of size 1, or without those of `dim` that have size 1. */
export function squeeze(self: Tensor, dim?: number | readonly number[]): Tensor {
  const dims =
    dim === undefined ? self.shape.map((_, d) => d) : [dim].flat().map((d) => self.wrapDim(d));
  checkDistinct(dims);
  const kept = self.shape.map((_, d) => d).filter((d) => !dims.includes(d) || self.shape[d] !== 1);
  const out = self.viewed(
    kept.map((d) => self.shape[d]!),
    kept.map((d) => self.strides[d]!),
    self.storage_offset,
  );
  const { shape } = self;
  return record(out, "SqueezeBackward0", [self], (g) => [reshape(g, shape)]);
}

// The gradient of a view that selects part of a tensor: zeros with the part filled in. Its own gradient is the view.
function scattered(g: Tensor, shape: readonly number[], part: (whole: Tensor) => Tensor): Tensor {
  const out = zeros(shape, { dtype: g.dtype });
  copyInto(part(out.detach()), g, "slice_backward");
  return record(out, "SliceBackwardBackward0", [g], (gg) => [part(gg)]);
}

/** Elements start, start + step, ... below end along a dimension. */
export function slice(self: Tensor, dim = 0, start?: number, end?: number, step = 1): Tensor {
  check(self.dim() > 0, () => "slice() cannot be applied to a 0-dim tensor.");
  check(step > 0, () => "slice step must be positive");
  const d = self.wrapDim(dim);
  const size = self.shape[d]!;
  const inside = (place: number): number =>
    Math.min(Math.max(place < 0 ? place + size : place, 0), size);
  const first = inside(start ?? 0);
  const last = Math.max(inside(end ?? size), first);
  const out = self.viewed(
    self.shape.with(d, Math.ceil((last - first) / step)),
    self.strides.with(d, self.strides[d]! * step),
    self.storage_offset + first * self.strides[d]!,
  );
  const { shape } = self;
  return record(out, "SliceBackward0", [self], (g) => [
    scattered(g, shape, (whole) => slice(whole, d, first, last, step)),
  ]);
}

export function narrow(self: Tensor, dim: number, start: number, length: number): Tensor {
  check(self.dim() > 0, () => "narrow() cannot be applied to a 0-dim tensor.");
  if (typeof start !== "number") {
    throw new NotImplementedError("narrow(): the start as a tensor");
  }
  const d = self.wrapDim(dim);
  const size = self.shape[d]!;
  const first = start < 0 ? start + size : start;
  check(length >= 0, () => "narrow(): length must be non-negative.");
  check(
    first >= 0 && first + length <= size,
    () => `start (${start}) + length (${length}) exceeds dimension size (${size}).`,
  );
  return slice(self, d, first, first + length);
}

export function select(self: Tensor, dim: number, index: number): Tensor {
  check(self.dim() > 0, () => "select() cannot be applied to a 0-dim tensor.");
  const d = self.wrapDim(dim);
  const size = self.shape[d]!;
  if (!Number.isInteger(index) || index < -size || index >= size) {
    throw new RangeError(
      `select(): index ${index} out of range for tensor of size [${self.shape.join(", ")}] at dimension ${d}`,
    );
  }
  const at = index < 0 ? index + size : index;
  const out = self.viewed(
    self.shape.toSpliced(d, 1),
    self.strides.toSpliced(d, 1),
    self.storage_offset + at * self.strides[d]!,
  );
  const { shape } = self;
  return record(out, "SelectBackward0", [self], (g) => [
    scattered(g, shape, (whole) => select(whole, d, at)),
  ]);
}

export function diagonal(self: Tensor, offset = 0, dim1 = 0, dim2 = 1): Tensor {
  const a = self.wrapDim(dim1);
  const b = self.wrapDim(dim2);
  check(a !== b, () => "diagonal dimensions cannot be identical");
  const [rows, columns] = [self.shape[a]!, self.shape[b]!];
  const size = Math.max(
    0,
    offset >= 0 ? Math.min(rows, columns - offset) : Math.min(rows + offset, columns),
  );
  const skipped =
    size === 0 ? 0 : offset >= 0 ? offset * self.strides[b]! : -offset * self.strides[a]!;
  const keep = (_: number, d: number): boolean => d !== a && d !== b;
  const out = self.viewed(
    [...self.shape.filter(keep), size],
    [...self.strides.filter(keep), self.strides[a]! + self.strides[b]!],
    self.storage_offset + skipped,
  );
  const { shape } = self;
  return record(out, "DiagonalBackward0", [self], (g) => [
    scattered(g, shape, (whole) => diagonal(whole, offset, a, b)),
  ]);
}

export function diag(self: Tensor, offset = 0): Tensor {
  if (self.dim() === 2) {
    return diagonal(self, offset).clone();
  }
  check(self.dim() === 1, () => `diag(): Supports 1D or 2D tensors. Got ${self.dim()}D`);
  const size = self.shape[0]! + Math.abs(offset);
  return scattered(self, [size, size], (whole) => diagonal(whole, offset));
}

export function split(self: Tensor, size: number | readonly number[], dim = 0): Tensor[] {
  const d = self.wrapDim(dim);
  const total = self.shape[d]!;
  const sizes = typeof size === "number" ? evenly(total, size) : size;
  check(
    sizes.reduce((a, b) => a + b, 0) === total,
    () =>
      `split_with_sizes expects split_sizes to sum exactly to ${total} (input tensor's size at ` +
      `dimension ${d}), but got split_sizes=[${sizes.join(", ")}]`,
  );
  let at = 0;
  return sizes.map((length) => {
    at += length;
    return narrow(self, d, at - length, length);
  });
}

function evenly(total: number, size: number): number[] {
  check(size > 0 || total === 0, () => "split_size can only be 0 if dimension size is 0");
  if (total === 0) {
    return [0];
  }
  return Array.from({ length: Math.max(Math.ceil(total / size), 1) }, (_, k) =>
    Math.min(size, total - k * size),
  );
}

export function chunk(self: Tensor, chunks: number, dim = 0): Tensor[] {
  check(chunks > 0, () => "chunk expects `chunks` to be greater than 0");
  const total = self.shape[self.wrapDim(dim)]!;
  if (total === 0) {
    return Array.from({ length: chunks }, () => narrow(self, dim, 0, 0));
  }
  return split(self, Math.max(Math.ceil(total / chunks), 1), dim);
}

export function unbind(self: Tensor, dim = 0): Tensor[] {
  if (self.dim() === 0) {
    throw new RangeError(`Dimension specified as ${dim} but tensor has no dimensions`);
  }
  const d = self.wrapDim(dim);
  return Array.from({ length: self.shape[d]! }, (_, k) => select(self, d, k));
}

/** Windows of a dimension as a last dimension; a view. */
export function unfold(self: Tensor, dimension: number, size: number, step: number): Tensor {
  if (self.dim() === 0) {
    throw new NotImplementedError("unfold() of a tensor without dimensions");
  }
  const d = self.wrapDim(dimension);
  check(
    size <= self.shape[d]! && step > 0,
    () => `maximum size for tensor at dimension ${d} is ${self.shape[d]!} but size is ${size}`,
  );
  const out = self.viewed(
    [...self.shape.with(d, Math.floor((self.shape[d]! - size) / step) + 1), size],
    [...self.strides.with(d, self.strides[d]! * step), self.strides[d]!],
    self.storage_offset,
  );
  const { shape } = self;
  return record(out, "UnfoldBackward0", [self], (g) => {
    // Each element is the sum of its copies.
    const places = out.shape[d]!;
    const index = Array.from(
      { length: places * size },
      (_, k) => Math.floor(k / size) * step + (k % size),
    );
    return [
      index_add(
        ...([zeros(shape, { dtype: g.dtype }), d, tensor(index, { dtype: "int64" })] as const),
        g.movedim(-1, d + 1).flatten(d, d + 1),
      ),
    ];
  });
}

/** A view with any shape and strides inside the tensor's memory. Its gradient is not implemented. */
export function as_strided(
  self: Tensor,
  size: readonly number[],
  stride: readonly number[],
  storage_offset = self.storage_offset,
): Tensor {
  check(
    size.every((n) => n >= 0),
    () => `Storage size calculation overflowed with sizes=[${size.join(", ")}]`,
  );
  const last = size.reduce((at, n, d) => at + (n - 1) * stride[d]!, storage_offset);
  const elementBytes = bitsOf(shaderDType(self)).slice(4);
  const room = (self.storage.bytes * 8) / Number(elementBytes);
  check(
    size.length === stride.length && stride.every((step) => step >= 0) && storage_offset >= 0,
    () => "as_strided: Negative strides are not supported",
  );
  check(
    numelOf(size) === 0 || last < room,
    () =>
      `setStorage: sizes [${size.join(", ")}], strides [${stride.join(", ")}], storage offset ` +
      `${storage_offset} are out of bounds for storage of ${room} elements`,
  );
  return record(
    self.viewed([...size], [...stride], storage_offset),
    "as_strided",
    [self],
    undefined,
  );
}

// ---- Operators that copy ----

const isEmptyLegacy = (tensor: Tensor): boolean => tensor.dim() === 1 && tensor.shape[0] === 0;

export function cat(tensors: readonly Tensor[], dim = 0): Tensor {
  check(tensors.length > 0, () => "torch.cat(): expected a non-empty list of Tensors");
  check(
    tensors.every((one) => one.dim() > 0),
    () => "zero-dimensional tensor (at position 0) cannot be concatenated",
  );
  const dtype = tensors.map((one) => one.dtype).reduce(promote);
  const parts = tensors.filter((one) => !isEmptyLegacy(one));
  const model = parts[0] ?? tensors[0]!;
  const d = model.wrapDim(dim);
  for (const part of parts) {
    check(
      part.dim() === model.dim() &&
        part.shape.every((size, k) => k === d || size === model.shape[k]),
      () =>
        `Sizes of tensors must match except in dimension ${d}. Expected [${model.shape.join(", ")}] ` +
        `but got [${part.shape.join(", ")}]`,
    );
  }
  const total = parts.reduce((sum, part) => sum + part.shape[d]!, 0);
  const out = Tensor.empty(model.shape.with(d, total), dtype);
  const starts: number[] = [];
  let at = 0;
  for (const part of parts) {
    starts.push(at);
    copyInto(out.viewed(part.shape, out.strides, at * out.strides[d]!), part, "cat");
    at += part.shape[d]!;
  }
  return record(out, "CatBackward0", parts, (g) =>
    parts.map((part, k) =>
      part.requires_grad ? narrow(g, d, starts[k]!, part.shape[d]!) : undefined,
    ),
  );
}
export const concat = cat;
export const concatenate = cat;

export function stack(tensors: readonly Tensor[], dim = 0): Tensor {
  check(tensors.length > 0, () => "stack expects a non-empty TensorList");
  const [first] = tensors as [Tensor];
  const d = first.wrapDim(dim, first.dim() + 1);
  tensors.forEach((one, k) => {
    check(
      one.shape.join() === first.shape.join(),
      () =>
        `stack expects each tensor to be equal size, but got [${first.shape.join(", ")}] at entry 0 ` +
        `and [${one.shape.join(", ")}] at entry ${k}`,
    );
  });
  return cat(
    tensors.map((one) => unsqueeze(one, d)),
    d,
  );
}
export const vstack = (tensors: readonly Tensor[]): Tensor => cat(tensors.map(atLeast2d), 0);
export const hstack = (tensors: readonly Tensor[]): Tensor =>
  cat(
    tensors.map((one) => (one.dim() === 0 ? one.reshape(1) : one)),
    tensors[0]!.dim() > 1 ? 1 : 0,
  );
const atLeast2d = (self: Tensor): Tensor => (self.dim() < 2 ? self.reshape(1, -1) : self);

export function repeat(self: Tensor, ...sizes: (number | readonly number[])[]): Tensor {
  const times = flatShape(sizes);
  check(
    times.length >= self.dim(),
    () =>
      "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
  );
  const shape = [...new Array<number>(times.length - self.dim()).fill(1), ...self.shape];
  check(
    times.every((count) => count >= 0),
    () =>
      `Trying to create tensor with negative dimension: [${times.map((n, d) => n * shape[d]!).join(", ")}]`,
  );
  const spread = reshape(
    self,
    shape.flatMap((size) => [1, size]),
  );
  const wide = expand(
    spread,
    shape.flatMap((size, d) => [times[d]!, size]),
  );
  return reshape(
    wide.clone(),
    shape.map((size, d) => size * times[d]!),
  );
}

export function tile(self: Tensor, ...dims: (number | readonly number[])[]): Tensor {
  const times = flatShape(dims);
  return repeat(self, [
    ...new Array<number>(Math.max(self.dim() - times.length, 0)).fill(1),
    ...times,
  ]);
}

export function repeat_interleave(self: Tensor, repeats: number, dim?: number): Tensor {
  if (typeof repeats !== "number") {
    throw new NotImplementedError("repeat_interleave(): the repeats as a tensor");
  }
  const from = dim === undefined ? ravel(self) : self;
  const d = from.wrapDim(dim ?? 0);
  const wide = expand(unsqueeze(from, d + 1), from.shape.toSpliced(d + 1, 0, repeats));
  return reshape(wide.clone(), from.shape.with(d, from.shape[d]! * repeats));
}

export function flip(self: Tensor, ...dims: (number | readonly number[])[]): Tensor {
  const places = flatShape(dims).map((dim) => self.wrapDim(dim));
  check(
    new Set(places).size === places.length,
    () => "a dim appears multiple times in the list of dims",
  );
  return places.reduce((result, d) => {
    const size = result.shape[d] ?? 1;
    return self.dim() === 0 ? result : index_select(result, d, arange(size - 1, -1, -1));
  }, self.clone());
}

export function roll(
  self: Tensor,
  shifts: number | readonly number[],
  dims?: number | readonly number[],
): Tensor {
  if (dims === undefined || [dims].flat().length === 0) {
    return reshape(roll(ravel(self), shifts, 0), self.shape);
  }
  const by = [shifts].flat();
  const along = [dims].flat();
  check(
    by.length === along.length,
    () => `shifts and dimensions must align. shifts: ${by.length}, dims:${along.length}`,
  );
  return along.reduce((result, dim, k) => {
    const d = self.wrapDim(dim);
    const size = self.shape[d]!;
    if (size === 0) {
      return result;
    }
    const shift = ((by[k]! % size) + size) % size;
    return shift === 0
      ? result
      : cat([narrow(result, d, size - shift, shift), narrow(result, d, 0, size - shift)], d);
  }, self.clone());
}

function triangle(self: Tensor, upper: boolean, diagonal: number): Tensor {
  const label = upper ? "triu" : "tril";
  check(self.dim() >= 2, () => `${label}: input tensor must have at least 2 dimensions`);
  const out = Tensor.empty(self.shape, self.dtype);
  const dims = self.shape
    .map((size, d) => [size, out.strides[d]!, self.strides[d]!, 0])
    .reverse()
    .flat();
  const dtype = bitsOf(shaderDType(self));
  launch({
    ...{ label, kernel: "triangular" },
    operands: { out: { tensor: out, dtype }, in: { tensor: self, dtype } },
    consts: { upper },
    params: {
      ...{ count: out.numel(), rank: self.dim(), dims },
      // Beyond the matrix all diagonals are one.
      diagonal: Math.min(Math.max(diagonal, -self.shape.at(-2)! - 1), self.shape.at(-1)! + 1),
    },
    invocations: out.numel(),
  });
  return record(out, upper ? "TriuBackward0" : "TrilBackward0", [self], (g) => [
    triangle(g, upper, diagonal),
  ]);
}
export const tril = (self: Tensor, diagonal = 0): Tensor => triangle(self, false, diagonal);
export const triu = (self: Tensor, diagonal = 0): Tensor => triangle(self, true, diagonal);

/** Constant padding, from the last dimension: [left, right, top, bottom, ...]. Negative numbers cut. */
export function constant_pad(self: Tensor, pad: readonly number[], value = 0): Tensor {
  check(
    pad.length % 2 === 0 && pad.length <= 2 * self.dim(),
    () =>
      `Length of pad should be even and no more than twice the number of dimensions of the input. Pad length is ${pad.length} while the input has ${self.dim()} dimensions.`,
  );
  let inner = self;
  const shape = [...self.shape];
  const start = self.shape.map(() => 0);
  for (let k = 0; k < pad.length / 2; k++) {
    const d = self.dim() - 1 - k;
    const [before, after] = [pad[2 * k]!, pad[2 * k + 1]!];
    const size = self.shape[d]!;
    check(
      size + before + after >= 0,
      () =>
        `The input size ${size}, plus negative padding ${before} and ${after} resulted in a negative output size`,
    );
    inner = slice(inner, d, Math.max(-before, 0), size - Math.max(-after, 0));
    shape[d] = size + before + after;
    start[d] = Math.max(before, 0);
  }
  const part = (whole: Tensor): Tensor =>
    inner.shape.reduce((one, size, d) => narrow(one, d, start[d]!, size), whole);
  const out = zeros(shape, { dtype: self.dtype });
  if (value !== 0) {
    out.fill_(value);
  }
  copyInto(part(out), inner.detach(), "pad");
  return record(out, "ConstantPadNdBackward0", [inner], (g) => [part(g)]);
}

/** Vectors as grids of all their combinations. "xy" exchanges the first two dimensions. */
export function meshgrid(
  ...args: (Tensor | readonly Tensor[] | { indexing?: "ij" | "xy" })[]
): Tensor[] {
  const last = args.at(-1);
  const isOptions = last !== undefined && !(last instanceof Tensor) && !Array.isArray(last);
  const { indexing = "ij" } = isOptions ? (last as { indexing?: "ij" | "xy" }) : {};
  const tensors = (isOptions ? args.slice(0, -1) : args).flat() as Tensor[];
  check(tensors.length > 0, () => "meshgrid expects a non-empty TensorList");
  check(
    ["ij", "xy"].includes(indexing),
    () => `torch.meshgrid: indexing must be one of "xy" or "ij", but received: ${String(indexing)}`,
  );
  tensors.forEach((one) => {
    check(
      one.dim() <= 1,
      () =>
        `torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: [${one.shape.join(", ")}]`,
    );
  });
  check(
    tensors.every((one) => one.dtype === tensors[0]!.dtype),
    () => "meshgrid expects all tensors to have the same dtype",
  );
  const swaps = indexing === "xy" && tensors.length > 1;
  const order = tensors.map((_, d) => (swaps && d < 2 ? 1 - d : d));
  const shape = order.map((k) => tensors[k]!.numel());
  return tensors.map((one, k) => one.reshape(order.map((d) => (d === k ? -1 : 1))).expand(shape));
}

// ---- Indexing ----

/** A slice as an index: start, end and step, each optional. */
export class Slice {
  constructor(
    readonly start?: number,
    readonly end?: number,
    readonly step = 1,
  ) {}
}

export type Index =
  | (number | null | "..." | Slice | Tensor)
  | (readonly number[] | Int8Array | Int16Array | Int32Array | Uint16Array | Uint32Array)
  | BigInt64Array;

// An array of floating-point numbers selects nothing, and one of bytes would be a mask in PyTorch.
const isListOfIntegers = (value: unknown): value is readonly number[] =>
  Array.isArray(value) ||
  [Int8Array, Int16Array, Int32Array, Uint16Array, Uint32Array, BigInt64Array].some(
    (kind) => value instanceof kind,
  );

/** x.at(0, new Slice(1, 3), "...", null) is x[0, 1:3, ..., None]; tensors and lists select elements. */
export function at(self: Tensor, ...indices: Index[]): Tensor {
  const taken = indices.filter((index) => index !== null && index !== "...");
  const used = taken.reduce<number>(
    (n, index) => n + (index instanceof Tensor && index.dtype === "bool" ? index.dim() : 1),
    0,
  );
  check(used <= self.dim(), () => `too many indices for tensor of dimension ${self.dim()}`);
  let result = self;
  let d = 0;
  const advanced: (Tensor | undefined)[] = [];
  for (const index of indices) {
    if (index === null) {
      result = unsqueeze(result, d++);
    } else if (index === "...") {
      d += self.dim() - used;
    } else if (typeof index === "number") {
      result = select(result, d, index);
    } else if (index instanceof Slice) {
      result = slice(result, d++, index.start, index.end, index.step);
    } else {
      if (!(index instanceof Tensor || isListOfIntegers(index))) {
        throw new TypeError(
          `only integers, slices, "...", null, tensors and lists of integers are valid indices, not ${String(index)}`,
        );
      }
      // A list of booleans is a mask, as in PyTorch.
      const chosen =
        index instanceof Tensor
          ? index
          : tensor([...index], index.length > 0 ? {} : { dtype: "int64" });
      advanced[d] = chosen;
      d += chosen.dtype === "bool" ? chosen.dim() : 1;
    }
  }
  return advanced.length === 0 ? result : index_get(result, Array.from(advanced));
}

export const cast = (self: Tensor, dtype: DType): Tensor => self.to(dtype);
export type { Shape };
