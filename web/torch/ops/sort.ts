// Sorting rows (csrc/ops/sort): blocks in workgroup memory, then merges.
import { record, saved } from "../autograd";
import { check } from "../errors";
import { launch, shaderDType } from "../launch";
import { Tensor } from "../tensor";
import { bitsOf } from "../wgsl/dtypes";
import { full, zeros } from "./factory";
import { gather, scatter_add } from "./indexing";
import { refuseBool, where } from "./pointwise";
import type { ValuesAndIndices } from "./reduce";

const BLOCK = 1024;

interface Items {
  keys: Tensor;
  indices: Tensor;
}

// Sorts the rows of a contiguous tensor of at least one dimension. Stable.
function sortRows(label: string, x: Tensor, descending: boolean): ValuesAndIndices {
  const row = x.shape.at(-1)!;
  const rows = x.numel() === 0 ? 0 : x.numel() / row;
  const values = Tensor.empty(x.shape, x.dtype);
  const positions = Tensor.empty(x.shape, "int64");
  if (rows === 0) {
    return { values, indices: positions };
  }
  const bits = bitsOf(shaderDType(x));
  const raw = (tensor: Tensor) => ({ tensor, dtype: bits });
  const words = (tensor: Tensor) => ({ tensor, dtype: "bits32" as const });
  const long = x.dtype === "int64";
  const newItems = (): Items => ({
    keys: Tensor.empty([rows * row * (long ? 2 : 1)], "int32"),
    indices: Tensor.empty([rows * row], "int32"),
  });
  const width = Math.min(BLOCK, 2 ** Math.ceil(Math.log2(row)));
  const blocks = Math.ceil(row / width);
  let items = newItems();
  const outputs = (to: Items | undefined) =>
    to === undefined
      ? { values: raw(values), positions }
      : { out_keys: words(to.keys), out_indices: words(to.indices) };
  const single = blocks === 1;
  launch({
    ...{ label, kernel: "sort_block" },
    operands: { ...outputs(single ? undefined : items), in: x, ...(single ? { raw: raw(x) } : {}) },
    params: {
      ...{ segments: rows * blocks, row, blocks, width, limit: width },
      ...{ out_row: row, descending: descending ? 1 : 0, in_row: row },
    },
    workgroups: Math.ceil((rows * blocks) / (BLOCK / width)),
  });
  if (!single) {
    let other = newItems();
    for (let run = BLOCK; run < row; run *= 2) {
      const last = 2 * run >= row;
      launch({
        ...{ label, kernel: "sort_merge" },
        operands: {
          ...outputs(last ? undefined : other),
          ...{ keys: words(items.keys), indices: words(items.indices) },
          ...(last ? { in: raw(x) } : {}),
        },
        consts: { long_keys: long },
        params: { count: rows * row, row, run },
        invocations: rows * row,
      });
      [items, other] = [other, items];
    }
  }
  return { values, indices: positions };
}

// The first k elements of sorted slices along a dimension.
function sorted(
  label: string,
  self: Tensor,
  dim: number,
  descending: boolean,
  k?: number,
): ValuesAndIndices {
  if (self.dim() === 0) {
    self.wrapDim(dim);
    check(k === undefined || (k >= 0 && k <= 1), () => "selected index k out of range");
    return { values: self.clone(), indices: zeros([], { dtype: "int64" }) };
  }
  const d = self.wrapDim(dim);
  const size = self.shape[d]!;
  check(k === undefined || (k >= 0 && k <= size), () => "selected index k out of range");
  const rows = sortRows(label, self.detach().transpose(d, -1).contiguous(), descending);
  const placed = (tensor: Tensor): Tensor =>
    tensor
      .narrow(-1, 0, k ?? size)
      .transpose(d, -1)
      .contiguous();
  const values = placed(rows.values);
  const indices = placed(rows.indices);
  const { shape } = self;
  const read = saved(indices);
  record(values, label === "topk" ? "TopkBackward0" : "SortBackward0", [self], (g) => [
    scatter_add(zeros(shape, { dtype: g.dtype }), d, read(), g),
  ]);
  return { values, indices };
}

/** Equal elements keep their order. */
export const sort = (self: Tensor, dim = -1, descending = false): ValuesAndIndices =>
  sorted("sort", self, dim, descending);
export const argsort = (self: Tensor, dim = -1, descending = false): Tensor =>
  sorted("argsort", self.detach(), dim, descending).indices;
export function topk(self: Tensor, k: number, dim = -1, largest = true): ValuesAndIndices {
  check(self.dtype !== "bool", () => "topk does not support bool dtypes");
  return sorted("topk", self, dim, largest, k);
}
export const msort = (self: Tensor): Tensor => sort(self, 0).values;

/** The k-th smallest element, counted from 1, and its place. */
export function kthvalue(self: Tensor, k: number, dim = -1, keepdim = false): ValuesAndIndices {
  const d = self.wrapDim(dim);
  check(
    k >= 1 && k <= (self.shape[d] ?? 1),
    () => "kthvalue(): selected number k out of range for dimension " + d,
  );
  const { values, indices } = sorted("kthvalue", self, d, false);
  const one = (tensor: Tensor): Tensor => {
    if (self.dim() === 0) {
      return tensor;
    }
    // A copy: the result does not hold the memory of all sorted elements.
    return keepdim ? tensor.narrow(d, k - 1, 1).clone() : tensor.select(d, k - 1).clone();
  };
  return { values: one(values), indices: one(indices) };
}

export interface Median {
  (self: Tensor): Tensor;
  (self: Tensor, dim: number, keepdim?: boolean): ValuesAndIndices;
}
/** Of two elements in the middle the lower one; NaN if there is one. */
export const median = ((self: Tensor, dim?: number, keepdim?: boolean) => {
  refuseBool(self, "median");
  if (dim !== undefined) {
    const d = self.wrapDim(dim);
    const size = self.shape[d] ?? 1;
    const { values, indices } = kthvalue(self, Math.floor((size - 1) / 2) + 1, d, keepdim);
    if (!self.is_floating_point() || self.dim() === 0) {
      return { values, indices };
    }
    const nans = self.detach().isnan();
    const any = nans.any(d, keepdim);
    const first = nans.int().argmax(d, keepdim);
    const places = where(any, first, indices);
    const wide = keepdim === true ? places : places.unsqueeze(d);
    const chosen = gather(self, d, wide);
    return { values: keepdim === true ? chosen : chosen.squeeze(d), indices: places };
  }
  const x = self.detach().reshape(-1);
  if (x.numel() === 0 && x.is_floating_point()) {
    return full([], NaN, { dtype: x.dtype });
  }
  check(x.numel() > 0, () => "median() does not support empty tensors");
  const { values } = kthvalue(x, Math.floor((x.numel() - 1) / 2) + 1, 0);
  const out = x.is_floating_point() ? values.masked_fill(x.isnan().any(), NaN) : values;
  const [read, readOut] = [saved(self), saved(out)];
  return record(out, "MedianBackward0", [self], (g) => {
    // Equal elements share the gradient.
    const mask = read().eq(readOut()).logical_or(read().isnan()).to(g.dtype);
    return [mask.mul(g).div(mask.sum())];
  });
}) as Median;
