// Reductions on the rows of csrc/ops/reduce/rows.yaml, and scans on those of csrc/ops/scan/rows.yaml.
import { record, saved } from "../autograd";
import { dtypeInfo, isFloating, type DType, type Scalar } from "../dtype";
import { check, checkDistinct, NotImplementedError } from "../errors";
import { launch, rowLanes, shaderDType, type KernelOperand } from "../launch";
import { Storage } from "../storage";
import { numelOf, Tensor } from "../tensor";
import { reduceRows, scanRows, type Kind } from "../wgsl/data";
import { convert, info, kindName } from "../wgsl/dtypes";
import { collapse } from "./collapse";
import { eye, ones_like, zeros } from "./factory";
import { scatter_add } from "./indexing";
import { where } from "./pointwise";
import { cat, flip, triu } from "./movement";

export type Dims = number | readonly number[] | undefined;

/** The reduced dimensions, sorted; all of them for none given. */
export function reducedDims(self: Tensor, dim: Dims): number[] {
  const given = dim === undefined ? [] : [dim].flat();
  if (given.length === 0) {
    return self.shape.map((_, d) => d);
  }
  const dims = given.map((d) => self.wrapDim(d));
  checkDistinct(dims);
  return dims.filter((d) => d < self.dim()).sort((a, b) => a - b);
}

const keptShape = (shape: readonly number[], dims: readonly number[]): number[] =>
  shape.map((size, d) => (dims.includes(d) ? 1 : size));
const droppedShape = (shape: readonly number[], dims: readonly number[]): number[] =>
  shape.filter((_, d) => !dims.includes(d));

const elementNames: Record<Kind, string> = {
  f: "floats",
  i: "ints",
  l: "longs",
  b: "ints",
  r: "ints",
};
const MAX_LANES = 256;
// Elements that an invocation reads at least before a result is shared by more workgroups.
const SPLIT_ELEMENTS = 1 << 15;

interface Request {
  label?: string;
  dims: number[];
  keepdim: boolean;
  /** Dtypes of the results. */
  dtypes: DType[];
  scalars?: readonly Scalar[];
}

/** Runs a row on a tensor. Raises if the row does not take its dtype. */
function reduce(rowName: string, self: Tensor, request: Request): Tensor[] {
  const { dims } = request;
  const label = request.label ?? rowName;
  const row = reduceRows[rowName]!;
  const kind = info(shaderDType(self)).kind;
  const texts = row.by_type[kindName(kind)];
  if (texts === undefined) {
    throw new NotImplementedError(`"${label}" not implemented for '${dtypeInfo(self.dtype).name}'`);
  }
  const shape = request.keepdim ? keptShape(self.shape, dims) : droppedShape(self.shape, dims);
  const outs = request.dtypes.map((dtype) => Tensor.empty(shape, dtype));
  const isReduced = (_: number, d: number): boolean => dims.includes(d);
  const isOuter = (_: number, d: number): boolean => !dims.includes(d);
  const inner = collapse(self.shape.filter(isReduced), [self.strides.filter(isReduced)]);
  const outerSizes = self.shape.filter(isOuter);
  const outerStrides = Tensor.empty(outerSizes, "bool").strides;
  const outer = collapse(outerSizes, [self.strides.filter(isOuter), outerStrides, outerStrides]);
  const results = numelOf(outerSizes);
  const reduced = numelOf(self.shape.filter(isReduced));
  if (inner.sizes.length === 0) {
    inner.sizes.push(1);
    inner.strides[0]!.push(0);
  }
  const innerRank = inner.sizes.length;
  const rank = innerRank + outer.sizes.length;
  check(rank <= 28, () => `${label}(): more than 28 separate dimensions`);
  const allDims = [
    ...inner.sizes.map((size, d) => [size, inner.strides[0]![d]!, 0, 0]),
    ...outer.sizes.map((size, d) => [size, ...outer.strides.map((steps) => steps[d]!)]),
  ].flat();
  const resultKinds = row.results.map((result): Kind => (result === "index" ? "l" : kind));
  const toDType = (k: number, text: string): string =>
    outs[k] === undefined
      ? ""
      : outs[k].dtype === "bool"
        ? `i_from_b(${convert(resultKinds[k]!, "b", text)})`
        : convert(resultKinds[k]!, info(shaderDType(outs[k])).kind, text);
  const innermost = inner.strides[0]![0]!;
  const outermost = results > 1 ? (outer.strides[0]![0] ?? Infinity) : Infinity;
  const lanesFirst = innermost < outermost;
  let lanes = 1;
  while (lanes < MAX_LANES && lanes * 4 < reduced) {
    lanes *= 2;
  }
  if (!lanesFirst) {
    lanes = Math.min(lanes, MAX_LANES / Math.min(32, 2 ** Math.ceil(Math.log2(results))));
  }
  const lanesLog2 = Math.log2(lanes);
  const blocks = Math.ceil(results / (256 >> lanesLog2));
  let splits = Math.max(1, Math.min(64 / blocks, reduced / SPLIT_ELEMENTS) | 0);
  const chunk = Math.ceil(Math.max(reduced, 1) / splits);
  splits = Math.ceil(Math.max(reduced, 1) / chunk);
  // Scalars have the type of the elements.
  const words = new DataView(new ArrayBuffer(16));
  (request.scalars ?? []).forEach((value, s) => {
    if (kind === "f") {
      words.setFloat32(8 * s, Number(value), true);
    } else {
      words.setBigInt64(8 * s, BigInt(value), true);
    }
  });
  const shared = {
    ...{ results, count: reduced, inner_rank: innerRank, rank },
    scalars: [0, 4, 8, 12].map((at) => words.getUint32(at, true)),
  };
  const dispatch = (
    operands: Record<string, Tensor | KernelOperand | undefined>,
    innerForm: string,
    params: Record<string, number | readonly number[]>,
    groups: number,
    emits: boolean,
  ): void => {
    launch({
      ...{ label, kernel: "reduce", operands, workgroups: groups },
      // The row's number tells pipelines apart in C++; regionKey does here.
      consts: { row: 0, element: elementNames[kind], inner_form: innerForm },
      params: { ...shared, ...params },
      regions: {
        ...{ accumulator: texts.accumulator, identity: texts.identity },
        ...{ combine: texts.combine, lift: texts.lift },
        finish: emits ? toDType(0, texts.finish) : "",
        second: emits ? toDType(1, texts.second) : "",
      },
      regionKey: rowName,
    });
  };
  const form = innerRank === 1 ? "one_inner" : innerRank === 2 ? "two_inner" : "any_inner";
  const elementParams = {
    ...{ reduced, first: 0, splits, first_split: 0, splits_here: splits, chunk },
    ...{ lanes_log2: lanesLog2, lanes_first: lanesFirst ? 1 : 0, dims: allDims },
  };
  const y = outs[0];
  const z = outs[1];
  if (splits === 1) {
    dispatch({ y, z, x: self }, form, elementParams, blocks, true);
    return outs;
  }
  const parts = new Tensor(
    new Storage(results * splits * texts.accumulator_bytes),
    ...(["bool", [], [], 0] as const),
  );
  dispatch({ x: self, new_parts: parts }, form, elementParams, blocks * splits, false);
  let partLanes = 1;
  while (partLanes < splits) {
    partLanes *= 2;
  }
  const finalDims = [
    [splits, 1, 0, 0],
    ...outer.sizes.map((size, d) => [size, 0, outer.strides[1]![d]!, outer.strides[2]![d]!]),
  ].flat();
  dispatch(
    { y, z, parts },
    "one_inner",
    {
      ...{ reduced: splits, first: 0, splits: 1, first_split: 0, splits_here: 1, chunk: splits },
      ...{ lanes_log2: Math.log2(partLanes), lanes_first: 1, dims: finalDims },
      ...{ inner_rank: 1, rank: 1 + outer.sizes.length },
    },
    Math.ceil((results * partLanes) / 256),
    true,
  );
  parts.dispose();
  return outs;
}

// The gradient of a reduction, with the reduced dimensions back.
const spread = (g: Tensor, shape: readonly number[], dims: readonly number[]): Tensor =>
  g.reshape(keptShape(shape, dims));

export interface Typed {
  dtype?: DType;
}

export function sum(self: Tensor, dim?: Dims, keepdim = false, options: Typed = {}): Tensor {
  const dims = reducedDims(self, dim);
  const dtype = options.dtype ?? (isFloating(self.dtype) ? self.dtype : "int64");
  const from = accumulated(self, dtype);
  const [out] = reduce("sum", from, { dims, keepdim, dtypes: [dtype] }) as [Tensor];
  const { shape } = self;
  return record(out, "SumBackward0", [from], (g) => [spread(g, shape, dims).expand(shape)]);
}

// Elements in the type that they are summed in.
const accumulated = (self: Tensor, dtype: DType): Tensor =>
  self.dtype === dtype || (isFloating(dtype) && isFloating(self.dtype) && dtype === "float32")
    ? self
    : self.to(dtype);

/** Sums over the dimensions that were broadcast to get from `shape` to the tensor's shape. */
export function sum_to_size(self: Tensor, ...size: (number | readonly number[])[]): Tensor {
  const shape = size.flat() as number[];
  const isNarrow = !isFloating(self.dtype) && self.dtype !== "int64";
  // Without dimensions it is a sum in PyTorch, which makes an int64 of other integers.
  if (self.shape.join() === shape.join() && !(isNarrow && shape.length === 0)) {
    return self;
  }
  if (isNarrow) {
    return sum_to_size(self.long(), shape);
  }
  const skipped = self.dim() - shape.length;
  const dims = self.shape
    .map((_, d) => d)
    .filter((d) => d < skipped || (shape[d - skipped] === 1 && self.shape[d] !== 1));
  check(
    skipped >= 0 && self.shape.every((n, d) => dims.includes(d) || n === shape[d - skipped]),
    () => `size {[${shape.join(", ")}]} is not expandable to size {[${self.shape.join(", ")}]}.`,
  );
  return (dims.length === 0 ? self : sum(self, dims, true)).reshape(shape);
}

export function nansum(self: Tensor, dim?: Dims, keepdim = false): Tensor {
  return isFloating(self.dtype)
    ? sum(self.masked_fill(self.isnan(), 0), dim, keepdim)
    : sum(self, dim, keepdim);
}

function needsFloat(label: string, self: Tensor): void {
  check(
    isFloating(self.dtype),
    () =>
      `${label}(): could not infer output dtype. Input dtype must be either a floating point or ` +
      `complex dtype. Got: ${dtypeInfo(self.dtype).name}`,
  );
}

export function mean(self: Tensor, dim?: Dims, keepdim = false, options: Typed = {}): Tensor {
  const from = options.dtype === undefined ? self : self.to(options.dtype);
  needsFloat("mean", from);
  const dims = reducedDims(from, dim);
  const [out] = reduce("mean", from, { dims, keepdim, dtypes: [from.dtype] }) as [Tensor];
  const { shape } = from;
  const count = numelOf(dims.map((d) => shape[d]!));
  return record(out, "MeanBackward0", [from], (g) => [
    spread(g, shape, dims).expand(shape).div(count),
  ]);
}

export function prod(self: Tensor, dim?: number, keepdim = false): Tensor {
  const dims = reducedDims(self, dim);
  const dtype = isFloating(self.dtype) ? self.dtype : "int64";
  const from = self.to(dtype);
  const [out] = reduce("prod", from, { dims, keepdim, dtypes: [dtype] }) as [Tensor];
  const { shape } = from;
  const read = saved(from);
  return record(out, "ProdBackward0", [from], (g) => {
    // The product of the others, which divides by no zero: of those before times of those behind.
    const x = dim === undefined ? read().reshape(-1) : read();
    const d = x.wrapDim(dim ?? 0);
    if (x.dim() === 0) {
      return [g.expand(shape)];
    }
    if (x.numel() === 0) {
      return [zeros(shape, { dtype: g.dtype })];
    }
    const unit = ones_like(x.narrow(d, 0, 1));
    const before = cumprod(shiftIn(x, d, unit), d);
    const behind = flip(cumprod(shiftIn(flip(x, d), d, unit), d), d);
    const others = before.mul(behind).reshape(shape);
    return [spread(g, shape, dims).mul(others)];
  });
}

// The elements one place further along d, behind `first`.
function shiftIn(x: Tensor, d: number, first: Tensor): Tensor {
  return cat([first, x.narrow(d, 0, x.shape[d]! - 1)], d);
}

function truth(rowName: "and" | "or", self: Tensor, dim: Dims, keepdim: boolean): Tensor {
  const dims = reducedDims(self, dim);
  const label = rowName === "and" ? "all" : "any";
  return reduce(rowName, self.bool(), { label, dims, keepdim, dtypes: ["bool"] })[0]!;
}
// Other than in sums, no dimensions are none.
const along = (kind: "and" | "or", self: Tensor, dim: Dims, keepdim: boolean): Tensor =>
  Array.isArray(dim) && dim.length === 0 ? self.ne(0) : truth(kind, self, dim, keepdim);
export const all = (self: Tensor, dim?: Dims, keepdim = false): Tensor =>
  along("and", self, dim, keepdim);
export const any = (self: Tensor, dim?: Dims, keepdim = false): Tensor =>
  along("or", self, dim, keepdim);

function nonempty(label: string, self: Tensor, dims: readonly number[]): void {
  check(
    dims.every((d) => self.shape[d] !== 0),
    () =>
      `${label}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.`,
  );
}

function extreme(
  label: "amax" | "amin",
  self: Tensor,
  dim: Dims,
  keepdim: boolean,
  nans = false,
): Tensor {
  const dims = reducedDims(self, dim);
  nonempty(label, self, dims);
  const rowName = label === "amax" ? "max_values" : "min_values";
  const [out] = reduce(rowName, self, { label, dims, keepdim, dtypes: [self.dtype] }) as [Tensor];
  const { shape } = self;
  const [read, readOut] = [saved(self), saved(out)];
  return record(out, label === "amax" ? "AmaxBackward0" : "AminBackward0", [self], (g) => {
    // Equal extremes share the gradient.
    const x = read();
    const equal = x.eq(spread(readOut(), shape, dims));
    // Of all elements the extreme may be NaN, as in PyTorch's gradient of max(), but not of amax().
    const mask = (nans ? equal.logical_or(x.isnan()) : equal).to(g.dtype);
    return [
      spread(g, shape, dims)
        .mul(mask)
        .div(sum(mask, dims, true)),
    ];
  });
}
export const amax = (self: Tensor, dim?: Dims, keepdim = false): Tensor =>
  extreme("amax", self, dim, keepdim);
export const amin = (self: Tensor, dim?: Dims, keepdim = false): Tensor =>
  extreme("amin", self, dim, keepdim);

export interface ValuesAndIndices {
  values: Tensor;
  indices: Tensor;
}

function withIndex(
  label: "max" | "min",
  self: Tensor,
  dim: number,
  keepdim: boolean,
): ValuesAndIndices {
  const d = self.wrapDim(dim);
  if (self.dim() === 0) {
    return { values: self.clone(), indices: zeros([], { dtype: "int64" }) };
  }
  nonempty(label, self, [d]);
  const [values, indices] = reduce(`${label}_with_index`, self, {
    ...{ label, dims: [d], keepdim, dtypes: [self.dtype, "int64"] },
  }) as [Tensor, Tensor];
  const { shape } = self;
  const read = saved(indices);
  record(values, label === "max" ? "MaxBackward0" : "MinBackward0", [self], (g) => [
    scatter_add(
      zeros(shape, { dtype: g.dtype }),
      d,
      spread(read(), shape, [d]),
      spread(g, shape, [d]),
    ),
  ]);
  return { values, indices };
}

function maximal(label: "max" | "min", self: Tensor, dim?: number | Tensor, keepdim = false) {
  if (typeof dim === "object") {
    return label === "max" ? self.maximum(dim) : self.minimum(dim);
  }
  return dim === undefined
    ? extreme(label === "max" ? "amax" : "amin", self, undefined, false, true)
    : withIndex(label, self, dim, keepdim);
}

export interface Extreme {
  (self: Tensor, other?: Tensor): Tensor;
  (self: Tensor, dim: number, keepdim?: boolean): ValuesAndIndices;
}
/** Of all elements; of two tensors; or the values and places along a dimension. */
export const max = ((self: Tensor, dim?: number | Tensor, keepdim?: boolean) =>
  maximal("max", self, dim, keepdim)) as Extreme;
export const min = ((self: Tensor, dim?: number | Tensor, keepdim?: boolean) =>
  maximal("min", self, dim, keepdim)) as Extreme;

function place(label: "argmax" | "argmin", self: Tensor, dim?: number, keepdim = false): Tensor {
  check(self.dtype !== "bool", () => `${label}(): does not support bool input`);
  const flat = dim === undefined && !keepdim ? self.reshape(-1) : self;
  const dims = dim === undefined ? reducedDims(flat, undefined) : reducedDims(flat, dim);
  nonempty(label, self, dims);
  if (self.dim() === 0) {
    return zeros([], { dtype: "int64" });
  }
  return reduce(label, flat, { dims, keepdim, dtypes: ["int64"] })[0]!;
}
export const argmax = (self: Tensor, dim?: number, keepdim = false): Tensor =>
  place("argmax", self, dim, keepdim);
export const argmin = (self: Tensor, dim?: number, keepdim = false): Tensor =>
  place("argmin", self, dim, keepdim);

export interface Correction {
  correction?: number;
  keepdim?: boolean;
}

function moments(
  label: "var" | "std",
  self: Tensor,
  dim: Dims,
  { correction = 1, keepdim = false }: Correction,
): [Tensor, Tensor] {
  check(isFloating(self.dtype), () => `${label} only support floating point and complex dtypes`);
  const dims = reducedDims(self, dim);
  const root = label === "std" ? 1 : 0;
  const [out, average] = reduce("variance", self, {
    ...{ label, dims, keepdim, dtypes: [self.dtype, self.dtype], scalars: [correction, root] },
  }) as [Tensor, Tensor];
  const { shape } = self;
  const count = numelOf(dims.map((d) => shape[d]!));
  const freedom = Math.max(count - correction, 0);
  const [read, readOut] = [saved(self), saved(out)];
  record(out, label === "var" ? "VarBackward0" : "StdBackward0", [self], (g) => {
    const x = read();
    const distance = x.sub(mean(x, dims, true));
    const scaled =
      label === "var"
        ? g.mul(2 / freedom)
        : g.div(readOut().mul(freedom)).masked_fill(readOut().eq(0), 0);
    return [spread(scaled, shape, dims).mul(distance)];
  });
  return [out, average];
}

/** `var` is a word of JavaScript; torch.var and Tensor.var exist. */
export const variance = (self: Tensor, dim?: Dims, options: Correction = {}): Tensor =>
  moments("var", self, dim, options)[0];
export const std = (self: Tensor, dim?: Dims, options: Correction = {}): Tensor =>
  moments("std", self, dim, options)[0];
export const var_mean = (self: Tensor, dim?: Dims, options: Correction = {}): [Tensor, Tensor] => [
  moments("var", self, dim, options)[0],
  mean(self, dim, options.keepdim),
];

export function logsumexp(self: Tensor, dim: Dims, keepdim = false): Tensor {
  const from = isFloating(self.dtype) ? self : self.float();
  const dims = reducedDims(from, dim);
  if (dims.some((d) => from.shape[d] === 0)) {
    return sum(from.exp(), dims, keepdim).log();
  }
  const largest = amax(from.detach(), dims, true);
  const shift = largest.masked_fill(largest.abs().eq(Infinity), 0);
  const result = sum(from.sub(shift).exp(), dims, true).log().add(shift);
  return keepdim ? result : result.reshape(droppedShape(from.shape, dims));
}

/** The p-norm over dimensions; p may be Infinity, -Infinity or 0. */
export function norm(self: Tensor, p: number | "fro" = "fro", dim?: Dims, keepdim = false): Tensor {
  needsFloat("linalg.vector_norm", self);
  if (typeof p === "string" && (p as string) !== "fro") {
    throw new NotImplementedError(`norm(): the order ${String(p)}`);
  }
  if (typeof p === "object") {
    throw new TypeError("norm(): argument 'p' (position 2) must be Number, not a list");
  }
  const order = p === "fro" ? 2 : p;
  const dims = reducedDims(self, dim);
  const rows: Record<string, string> = {
    ...{ "0": "norm_zero", "1": "norm_one", "2": "norm_two" },
    ...{ Infinity: "norm_max", "-Infinity": "norm_min" },
  };
  const rowName = rows[String(order)] ?? "norm_p";
  if (order < 0 || order === Infinity) {
    nonempty("linalg.vector_norm", self, dims);
  }
  const [out] = reduce(rowName, self, {
    ...{ label: "norm", dims, keepdim, dtypes: [self.dtype], scalars: [order] },
  }) as [Tensor];
  const { shape } = self;
  const [read, readOut] = [saved(self), saved(out)];
  return record(out, "LinalgVectorNormBackward0", [self], (g) => {
    const x = read();
    const n = spread(readOut(), shape, dims);
    const up = spread(g, shape, dims);
    if (order === 0) {
      return [zeros(shape, { dtype: g.dtype })];
    }
    if (Math.abs(order) === Infinity) {
      // Where the norm is NaN no element has it, and none gets a gradient.
      const has = x.abs().eq(n);
      const shares = up.div(sum(has.to(g.dtype), dims, true));
      return [where(has, x.sign().mul(shares), 0)];
    }
    if (order === 1) {
      return [up.mul(x.sign())];
    }
    let inner = order === 2 ? x : x.sign().mul(x.abs().pow(order - 1));
    if (order < 1) {
      // Zeros have no gradient, where the power is infinite.
      inner = inner.masked_fill(x.eq(0), 0);
    }
    return [up.mul(inner.div(n.pow(order - 1)).masked_fill(n.eq(0), 0))];
  });
}

export const count_nonzero = (self: Tensor, dim?: Dims): Tensor => sum(self.ne(0), dim);

// ---- Scans ----

function scan(rowName: string, label: string, self: Tensor, dim: number): Tensor[] {
  const d = self.wrapDim(dim);
  const row = scanRows[rowName]!;
  const kind = info(shaderDType(self)).kind;
  const texts = row.by_type[kindName(kind)];
  if (texts === undefined) {
    throw new NotImplementedError(`"${label}" not implemented for '${dtypeInfo(self.dtype).name}'`);
  }
  const x = self.detach().contiguous();
  const y = Tensor.empty(self.shape, self.dtype);
  const z = row.indexed ? Tensor.empty(self.shape, "int64") : undefined;
  const length = self.shape[d] ?? 1;
  const inner = numelOf(self.shape.slice(d + 1));
  const rows = length === 0 ? 0 : self.numel() / length;
  const lanes = rowLanes(length, inner);
  launch({
    ...{ label, kernel: "scan", operands: { y, z, x } },
    consts: { table_row: 0, indexed: row.indexed },
    params: {
      ...{ rows, length, inner, segments: 1, segment: length },
      ...{ lanes_log2: lanes.lanesLog2, lanes_first: lanes.lanesFirst ? 1 : 0 },
    },
    regions: { identity: texts.identity, combine: texts.combine },
    regionKey: rowName,
    workgroups: lanes.workgroups(rows),
  });
  return z === undefined ? [y] : [y, z];
}

const scanned = (self: Tensor): Tensor => (isFloating(self.dtype) ? self : self.long());

export function cumsum(self: Tensor, dim: number): Tensor {
  const from = scanned(self);
  const [out] = scan("cumsum", "cumsum", from, dim) as [Tensor];
  return record(out, "CumsumBackward0", [from], (g) => [
    self.dim() === 0 ? g : flip(cumsum(flip(g, dim), dim), dim),
  ]);
}

export function cumprod(self: Tensor, dim: number): Tensor {
  const from = scanned(self);
  const [out] = scan("cumprod", "cumprod", from, dim) as [Tensor];
  const read = saved(from);
  return record(out, "CumprodBackward0", [from], (g) => {
    if (self.dim() === 0) {
      return [g];
    }
    // Row i has the products without element i, which divides by no zero, but takes memory of length squared.
    const x = read().transpose(dim, -1);
    const own = eye(x.shape.at(-1)!, undefined, { dtype: "bool" });
    const products = cumprod(where(own, 1, x.unsqueeze(-2)), -1);
    return [sum(triu(products).mul(g.transpose(dim, -1).unsqueeze(-2)), -1).transpose(dim, -1)];
  });
}

export function logcumsumexp(self: Tensor, dim: number): Tensor {
  const [out] = scan("logcumsumexp", "logcumsumexp", self, dim) as [Tensor];
  return record(out, "logcumsumexp", [self], undefined);
}

function scanIndexed(label: "cummax" | "cummin", self: Tensor, dim: number): ValuesAndIndices {
  if (self.dim() === 0) {
    self.wrapDim(dim);
    return { values: self.clone(), indices: zeros([], { dtype: "int64" }) };
  }
  const [values, indices] = scan(label, label, self, dim) as [Tensor, Tensor];
  const { shape } = self;
  const read = saved(indices);
  record(values, label === "cummax" ? "CummaxBackward0" : "CumminBackward0", [self], (g) => [
    scatter_add(zeros(shape, { dtype: g.dtype }), dim, read(), g),
  ]);
  return { values, indices };
}
export const cummax = (self: Tensor, dim: number): ValuesAndIndices =>
  scanIndexed("cummax", self, dim);
export const cummin = (self: Tensor, dim: number): ValuesAndIndices =>
  scanIndexed("cummin", self, dim);
