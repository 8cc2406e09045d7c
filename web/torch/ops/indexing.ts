// Operators that find elements by index tensors (csrc/ops/index). An index out of range raises at the next await.
import { needsGrad, record, records, saved } from "../autograd";
import { isFloating, isIntegral, type Scalar } from "../dtype";
import { check, NotImplementedError, RuntimeError } from "../errors";
import { launch, shaderDType } from "../launch";
import { numelOf, Tensor } from "../tensor";
import { bitsOf, info } from "../wgsl/dtypes";
import { broadcastShapes, expandedStrides } from "./collapse";
import { refuseInPlace } from "./elementwise";
import { full, zeros } from "./factory";
import { checkWritable, readBeside } from "./memory";
import { where } from "./pointwise";

interface WalkIndex {
  tensor: Tensor;
  /** For the walked dimensions, as the others. */
  strides: readonly number[];
  /** Of the dimension that it selects from. */
  size: number;
  outStride: number;
  inStride: number;
}

interface Move {
  label: string;
  mode: "copy" | "add" | "multiply" | "minimum" | "maximum";
  sizes: readonly number[];
  out: { tensor: Tensor; strides: readonly number[] };
  in: { tensor: Tensor; strides: readonly number[] };
  indices: readonly WalkIndex[];
  wrap?: boolean;
}

const MAX_INDICES = 5;
const MAX_DIMS = 12;

function move(spec: Move): void {
  const { label, sizes, out, indices } = spec;
  const count = numelOf(sizes);
  if (count === 0) {
    return;
  }
  if (indices.length > MAX_INDICES || sizes.length > MAX_DIMS) {
    throw new NotImplementedError(
      `${label}(): more than ${MAX_INDICES} index tensors or ${MAX_DIMS} dimensions`,
    );
  }
  const dims: number[] = [];
  const axes: number[] = [];
  for (let d = sizes.length - 1; d >= 0; d--) {
    dims.push(sizes[d]!, out.strides[d]!, spec.in.strides[d]!);
    for (let k = 0; k < MAX_INDICES; k++) {
      dims.push(indices[k]?.strides[d] ?? 0);
    }
  }
  const operands: Record<string, { tensor: Tensor; dtype?: ReturnType<typeof bitsOf> }> = {};
  indices.forEach((index, k) => {
    axes.push(index.size, index.outStride, index.inStride, 0);
    operands[`index${k}`] = { tensor: index.tensor };
  });
  const type = shaderDType(out.tensor);
  const consts: Record<string, string> = {};
  if (spec.mode === "copy") {
    const dtype = bitsOf(type);
    operands.in = { tensor: spec.in.tensor, dtype };
    operands[info(type).bytes < 4 ? "shared" : "out"] = { tensor: out.tensor, dtype };
  } else {
    if (type === "bool" && spec.mode === "add") {
      throw new NotImplementedError(`${label}(): not implemented for Bool`);
    }
    if (type === "i64" && spec.mode !== "add") {
      throw new NotImplementedError(`${label}(): ${spec.mode} is not implemented for Long`);
    }
    consts.how = spec.mode;
    operands.in = { tensor: spec.in.tensor };
    operands[spec.mode === "add" ? "sum" : "result"] = { tensor: out.tensor };
  }
  launch({
    ...{ label, operands, consts },
    kernel: spec.mode === "copy" ? "index_copy" : "index_combine",
    params: {
      ...{ count, rank: sizes.length, serial_count: 1, serial_rank: 0 },
      ...{ wrap_negative: spec.wrap === true ? 1 : 0, dim: 0, error: 1, indices: axes, dims },
    },
    invocations: count,
  });
  out.tensor.storage.version++;
}

function checkIndex(label: string, index: Tensor): void {
  check(isIntegral(index.dtype), () => `${label}(): Expected dtype int32 or int64 for index`);
}

const zerosFor = (shape: readonly number[]): number[] => shape.map(() => 0);

// ---- Along one dimension by a vector ----

function moveSlices(
  label: string,
  mode: Move["mode"],
  whole: Tensor,
  d: number,
  index: Tensor,
  parts: Tensor,
  intoWhole: boolean,
  wrap = false,
): void {
  const along = zerosFor(parts.shape);
  along[d] = index.dim() === 0 ? 0 : index.strides[0]!;
  const wholeStrides = whole.strides.map((step, k) => (k === d ? 0 : step));
  const step = whole.strides[d]!;
  move({
    ...{ label, mode, sizes: parts.shape, wrap },
    out: intoWhole
      ? { tensor: whole, strides: wholeStrides }
      : { tensor: parts, strides: parts.strides },
    in: intoWhole
      ? { tensor: parts, strides: parts.strides }
      : { tensor: whole, strides: wholeStrides },
    indices: [
      {
        ...{ tensor: index, strides: along, size: whole.shape[d]! },
        ...{ outStride: intoWhole ? step : 0, inStride: intoWhole ? 0 : step },
      },
    ],
  });
}

export function index_select(self: Tensor, dim: number, index: Tensor): Tensor {
  checkIndex("index_select", index);
  check(index.dim() <= 1, () => "index_select(): Index is supposed to be a vector");
  if (self.dim() === 0) {
    self.wrapDim(dim);
    return index_select(self.reshape(1), 0, index).reshape([]);
  }
  const d = self.wrapDim(dim);
  const out = Tensor.empty(self.shape.with(d, index.numel()), self.dtype);
  moveSlices("index_select", "copy", self, d, index, out, false);
  const { shape } = self;
  const used = saved(index);
  return record(out, "IndexSelectBackward0", [self], (g) => [
    index_add(zeros(shape, { dtype: g.dtype }), d, used(), g),
  ]);
}

/** self with the slices of `source` added at the places of `index`. */
export function index_add(
  self: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor,
  { alpha = 1 }: { alpha?: number } = {},
): Tensor {
  checkIndex("index_add", index);
  check(
    self.dtype === source.dtype,
    () =>
      `index_add_(): self (${self.dtype}) and source (${source.dtype}) must have the same scalar type`,
  );
  const d = self.wrapDim(dim);
  check(
    index.numel() === (source.shape[d] ?? 1) && source.dim() === self.dim(),
    () => `index_add_(): Number of indices (${index.numel()}) should be equal to source.size(dim)`,
  );
  check(
    source.shape.every((size, k) => k === d || size === self.shape[k]),
    () =>
      `source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = ` +
      `[${self.shape.join(", ")}] source.shape = [${source.shape.join(", ")}]`,
  );
  if (self.dim() === 0) {
    return index_add(self.reshape(1), 0, index, source.reshape(1), { alpha }).reshape([]);
  }
  const out = self.detach().clone();
  const terms =
    alpha === 1 ? source : source.mul(isFloating(self.dtype) ? alpha : Math.trunc(alpha));
  moveSlices("index_add", "add", out, d, index, terms.detach(), true);
  const used = saved(index);
  const wanted = needsGrad(terms);
  return record(out, "IndexAddBackward0", [self, terms], (g) => [
    g,
    wanted ? index_select(g, d, used()) : undefined,
  ]);
}

/** self with the slices at the places of `index` replaced by those of `source`. */
export function index_copy(self: Tensor, dim: number, index: Tensor, source: Tensor): Tensor {
  if (self.dim() === 1 && source.dim() === 0 && index.numel() === 1) {
    return index_copy(self, dim, index, source.reshape(1));
  }
  check(
    index.dtype === "int64",
    () => `index_copy_(): Expected a long tensor for index, but got ${index.dtype}`,
  );
  check(
    index.dim() <= 1,
    () => `index_copy_(): Index should have dimension 1 or 0 (got ${index.dim()})`,
  );
  check(
    self.dtype === source.dtype,
    () => "index_copy_(): self and source expected to have the same dtype",
  );
  const d = self.wrapDim(dim);
  if (self.dim() === 0) {
    return index_copy(self.reshape(1), 0, index.reshape(-1), source.reshape(1)).reshape([]);
  }
  check(
    index.numel() === (source.shape[d] ?? 1),
    () =>
      `index_copy_(): Number of indices (${index.numel()}) should be equal to source.size(dim) ` +
      `(${source.shape[d] ?? 1})`,
  );
  check(
    source.dim() === self.dim() &&
      source.shape.every((size, k) => k === d || size === self.shape[k]),
    () =>
      `index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: ` +
      `[${self.shape.toSpliced(d, 1).join(", ")}] at dimension ${d} and source slice shape: ` +
      `[${source.shape.toSpliced(d, 1).join(", ")}] at dimension 0.`,
  );
  const out = self.detach().clone();
  moveSlices("index_copy", "copy", out, d, index, source.detach(), true);
  const used = saved(index);
  const wanted = needsGrad(source);
  return record(out, "IndexCopyBackward0", [self, source], (g) => [
    index_fill(g, d, used(), 0),
    wanted ? index_select(g, d, used()) : undefined,
  ]);
}

export function index_fill(self: Tensor, dim: number, given: Tensor, value: Scalar): Tensor {
  check(given.dtype === "int64", () => "index_fill_(): Expected dtype int64 for index.");
  check(given.dim() <= 1, () => "Index has to be a vector/scalar");
  const d = self.wrapDim(dim);
  if (typeof value === "object") {
    throw new NotImplementedError("index_fill(): the value as a tensor");
  }
  if (self.dim() === 0) {
    return index_fill(self.reshape(1), 0, given.reshape(-1), value).reshape([]);
  }
  const out = self.detach().clone();
  const fill = full([], value, { dtype: self.dtype }).expand(self.shape.with(d, given.numel()));
  // Other than in index_copy, negative indices count from the end.
  moveSlices("index_fill", "copy", out, d, given, fill, true, true);
  const used = saved(given);
  return record(out, "IndexFillBackward0", [self], (g) => [index_fill(g, d, used(), 0)]);
}

// ---- gather and scatter ----

function checkPlaces(label: string, self: Tensor, d: number, index: Tensor): void {
  checkIndex(label, index);
  // An index of nothing may have any shape.
  if (index.numel() === 0) {
    return;
  }
  check(
    self.dim() === index.dim(),
    () => `Index tensor must have the same number of dimensions as self tensor`,
  );
  check(
    index.shape.every((size, k) => k === d || size <= self.shape[k]!),
    () =>
      `Size does not match at dimension other than ${d}: index [${index.shape.join(", ")}], self [${self.shape.join(", ")}]`,
  );
}

function movePlaces(
  label: string,
  mode: Move["mode"],
  whole: Tensor,
  d: number,
  index: Tensor,
  parts: Tensor,
  intoWhole: boolean,
): void {
  const wholeStrides = whole.strides.map((step, k) => (k === d ? 0 : step));
  const step = whole.strides[d]!;
  const one = { tensor: whole, strides: wholeStrides };
  const other = { tensor: parts, strides: parts.strides };
  move({
    ...{ label, mode, sizes: index.shape },
    ...(intoWhole ? { out: one, in: other } : { out: other, in: one }),
    indices: [
      {
        ...{ tensor: index, strides: index.strides, size: whole.shape[d]! },
        ...{ outStride: intoWhole ? step : 0, inStride: intoWhole ? 0 : step },
      },
    ],
  });
}

export function gather(self: Tensor, dim: number, index: Tensor): Tensor {
  if (areScalars(self, index)) {
    self.wrapDim(dim);
    const flat = gather(self.reshape(-1), 0, index.reshape(-1));
    return flat.reshape(index.shape);
  }
  const d = self.wrapDim(dim);
  checkPlaces("gather", self, d, index);
  const out = Tensor.empty(index.shape, self.dtype);
  movePlaces("gather", "copy", self, d, index, out, false);
  const { shape } = self;
  const used = saved(index);
  return record(out, "GatherBackward0", [self], (g) => [
    scatter_add(zeros(shape, { dtype: g.dtype }), d, used(), g),
  ]);
}

/** Whether one of them has no dimension and the other at most one: a scalar counts as a vector of one. */
const areScalars = (self: Tensor, index: Tensor): boolean =>
  Math.min(self.dim(), index.dim()) === 0 && Math.max(self.dim(), index.dim()) < 2;

function scatterInto(
  label: string,
  mode: Move["mode"],
  out: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor,
): void {
  if (areScalars(out, index)) {
    out.wrapDim(dim);
    scatterInto(label, mode, out.view(-1), 0, index.reshape(-1), source.reshape(-1));
    return;
  }
  const d = out.wrapDim(dim);
  checkPlaces(label, out, d, index);
  check(
    out.dtype === source.dtype,
    () => `${label}(): Expected self.dtype to be equal to src.dtype`,
  );
  if (index.numel() === 0) {
    return;
  }
  check(
    index.shape.every((size, k) => size <= source.shape[k]!),
    () =>
      `Expected index [${index.shape.join(", ")}] to be no larger than src [${source.shape.join(", ")}]`,
  );
  checkWritable(out, label);
  const [places, parts] = [index, source.detach()].map((one) =>
    readBeside(out, one, label, true),
  ) as [Tensor, Tensor];
  movePlaces(label, mode, out, d, places, parts, true);
}

const sourceOf = (self: Tensor, index: Tensor, src: Tensor | Scalar): Tensor =>
  typeof src === "object" ? src : full([], src, { dtype: self.dtype }).expand(index.shape);

interface Combined {
  reduce?: "add" | "multiply";
}

function modeOf(reduce: Combined["reduce"]): Move["mode"] {
  check(
    reduce === undefined || ["add", "multiply"].includes(reduce),
    () => `reduce argument must be either add or multiply, not ${String(reduce)}`,
  );
  return reduce ?? "copy";
}

/** Where several elements go to one place, any one of them is stored, as in PyTorch. */
export function scatter(
  self: Tensor,
  dim: number,
  index: Tensor,
  src: Tensor | Scalar,
  { reduce }: Combined = {},
): Tensor {
  const source = sourceOf(self, index, src);
  const out = self.detach().clone();
  scatterInto("scatter", modeOf(reduce), out, dim, index, source);
  if (reduce !== undefined) {
    return record(out, "scatter", [self, source], undefined);
  }
  const used = saved(index);
  return record(out, "ScatterBackward0", [self, source], (g) => [
    scatter(g, dim, used(), 0),
    index.numel() === 0
      ? zeros(source.shape, { dtype: g.dtype })
      : gather(g, dim, used()).reshape(index.shape),
  ]);
}

export function scatter_add(self: Tensor, dim: number, index: Tensor, src: Tensor): Tensor {
  const out = self.detach().clone();
  scatterInto("scatter_add", "add", out, dim, index, src);
  const used = saved(index);
  const { shape } = src;
  const wanted = needsGrad(src);
  return record(out, "ScatterAddBackward0", [self, src], (g) => [
    g,
    wanted ? padded(gather(g, dim, used()), shape) : undefined,
  ]);
}

// The gradient of elements beyond the index is zero.
function padded(g: Tensor, shape: readonly number[]): Tensor {
  if (g.numel() === 0) {
    return zeros(shape, { dtype: g.dtype });
  }
  return g.shape.join() === shape.join()
    ? g
    : g.constant_pad(shape.flatMap((size, d) => [0, size - g.shape[d]!]).reduceRight(pairs, []));
}
// [0, a, 0, b] as the pads from the last dimension: [0, b, 0, a].
const pairs = (result: number[], value: number, k: number, all: number[]): number[] =>
  k % 2 === 0 ? [...result, value, all[k + 1]!] : result;

export function scatter_(
  self: Tensor,
  dim: number,
  index: Tensor,
  src: Tensor | Scalar,
  { reduce }: Combined = {},
): Tensor {
  const source = sourceOf(self, index, src);
  if (records([self, source])) {
    refuseInPlace(self, "scatter");
  }
  scatterInto("scatter", modeOf(reduce), self, dim, index, source);
  return self;
}

export function scatter_add_(self: Tensor, dim: number, index: Tensor, src: Tensor): Tensor {
  if (records([self, src])) {
    refuseInPlace(self, "scatter_add");
  }
  scatterInto("scatter_add", "add", self, dim, index, src);
  return self;
}

const REDUCTIONS = {
  sum: ["add", 0],
  mean: ["add", 0],
  prod: ["multiply", 1],
  amin: ["minimum", Infinity],
  amax: ["maximum", -Infinity],
} as const;

/** Elements of `src` reduced into those of `self` that they go to, which count too with `include_self`. */
export function scatter_reduce(
  self: Tensor,
  dim: number,
  index: Tensor,
  src: Tensor,
  reduce: keyof typeof REDUCTIONS,
  { include_self = true }: { include_self?: boolean } = {},
): Tensor {
  if (!Object.hasOwn(REDUCTIONS, reduce)) {
    throw new RuntimeError(
      `reduce argument must be either sum, prod, mean, amax or amin, got ${String(reduce)}`,
    );
  }
  const [combine, identity] = REDUCTIONS[reduce];
  const floating = isFloating(self.dtype);
  const plain = self.detach();
  let out: Tensor;
  if (include_self) {
    out = plain.clone();
  } else {
    const nearest = Math.min(Math.max(identity, -(2 ** 31)), 2 ** 31 - 1);
    const least = floating ? identity : self.dtype === "bool" ? identity > 0 : nearest;
    out = scatter(plain, dim, index, least);
  }
  scatterInto("scatter_reduce", combine, out, dim, index, src);
  // How many elements each one is made of.
  const counts = (): Tensor => {
    const own = full(self.shape, 1, { dtype: self.dtype });
    const others = full(src.shape, 1, { dtype: self.dtype });
    return scatter_add(include_self ? own : scatter(own, dim, index, 0), dim, index, others);
  };
  if (reduce === "mean") {
    out = floating ? out.div(counts()) : out.div(counts(), { rounding_mode: "floor" });
  }
  const [used, readSelf, readSource, readOut] = [index, self, src, out].map(saved) as [
    ...[() => Tensor, () => Tensor, () => Tensor, () => Tensor],
  ];
  const [wantsSelf, wantsSource] = [needsGrad(self), needsGrad(src)];
  const within = (g: Tensor): Tensor => (include_self ? g : scatter(g, dim, used(), 0));
  const spread = (g: Tensor): Tensor => padded(gather(g, dim, used()), src.shape);
  // A product's gradients are the product of the others, which is no quotient where an element is zero.
  const product = (g: Tensor): [Tensor, Tensor] => {
    const again = (own: Tensor, others: Tensor): Tensor =>
      scatter_reduce(own, dim, used(), others, "prod", { include_self });
    const [own, others] = [readSelf(), readSource()];
    const filled = own.masked_fill(own.eq(0), 1);
    const zero = others.eq(0);
    const zeros_ = scatter_add(
      full(self.shape, 0, { dtype: g.dtype }),
      dim,
      used(),
      zero.to(g.dtype),
    );
    const single = zero.logical_and(spread(zeros_).eq(1));
    const rest = spread(g.mul(again(own, others.masked_fill(single, 1))));
    return [
      within(g.mul(again(filled, others)).div(filled)),
      where(single, rest, spread(g.mul(readOut())).div(others.masked_fill(zero, 1))),
    ];
  };
  return record(out, "ScatterReduceBackward0", [self, src], (g) => {
    if (reduce === "prod") {
      return product(g);
    }
    if (reduce === "sum" || reduce === "mean") {
      const share = reduce === "sum" ? g : g.div(counts());
      return [wantsSelf ? within(share) : undefined, wantsSource ? spread(share) : undefined];
    }
    // Those that are the extreme share its gradient.
    const found = readOut().detach();
    const own = readSelf().detach().eq(found).to(g.dtype);
    const chosen = readSource().detach().eq(spread(found)).to(g.dtype);
    const share = g.div(scatter_add(own, dim, used(), chosen));
    return [within(own.mul(share)), chosen.mul(spread(share))];
  });
}

const wrapped = (indices: Tensor, size: number): Tensor =>
  where(indices.lt(0), indices.add(size), indices);

export function take_along_dim(self: Tensor, indices: Tensor, dim?: number): Tensor {
  check(
    indices.dtype === "int64",
    () => `torch.take_along_dim(): dtype of indices should be Long but got ${indices.dtype}`,
  );
  if (dim === undefined) {
    return take_along_dim(self.reshape(-1), indices.reshape(-1), 0);
  }
  check(
    self.dim() === indices.dim(),
    () =>
      `torch.take_along_dim(): input and indices should have the same number of dimensions, but got ${self.dim()} ` +
      `dimensions for input, and ${indices.dim()} dimensions for indices`,
  );
  const d = self.wrapDim(dim);
  const shape = broadcastShapes(self.shape.with(d, 1), indices.shape.with(d, 1));
  return gather(
    self.expand(shape.with(d, self.shape[d]!)),
    d,
    // Here, other than in gather, negative indices count from the end.
    wrapped(indices, self.shape[d]!).expand(shape.with(d, indices.shape[d]!)),
  );
}

export function take(self: Tensor, index: Tensor): Tensor {
  check(
    index.dtype === "int64",
    () => `take(): Expected a long tensor for index, but got ${index.dtype}`,
  );
  return index_get(self.reshape(-1), [index]);
}

// ---- Indexing by several tensors ----

interface Plan {
  sizes: number[];
  wholeStrides: number[];
  places: { tensor: Tensor; strides: number[]; size: number; step: number }[];
}

// The dimensions of x[indices]: those of the index tensors stand in place of the indexed ones if these are
// neighbours, and first otherwise.
function plan(self: Tensor, indices: readonly (Tensor | undefined)[]): Plan {
  check(
    indices.some((index) => index !== undefined),
    () => "at least one index must be provided",
  );
  const given = indices.flatMap((index, d) => (index === undefined ? [] : [{ index, d }]));
  for (const { index } of given) {
    if (index.dtype === "bool") {
      throw new NotImplementedError(
        "an index of booleans: the size of the result is known only on the GPU; use torch.where, masked_fill, " +
          "await x.masked_select(mask), or x.at(...(await mask.nonzero({ as_tuple: true })))",
      );
    }
    checkIndex("index", index);
  }
  check(
    indices.length <= self.dim(),
    () => `too many indices for tensor of dimension ${self.dim()}`,
  );
  const shape = broadcastShapes(...given.map(({ index }) => index.shape));
  const first = given[0]!.d;
  const neighbours = given.every(({ d }, k) => d === first + k);
  const rest = self.shape.map((_, d) => d).filter((d) => indices[d] === undefined);
  const front = neighbours ? rest.filter((d) => d < first) : [];
  const back = rest.filter((d) => !front.includes(d));
  const spread = (inner: number[]): number[] => [
    ...front.map(() => 0),
    ...inner,
    ...back.map(() => 0),
  ];
  return {
    sizes: [...front.map((d) => self.shape[d]!), ...shape, ...back.map((d) => self.shape[d]!)],
    wholeStrides: [
      ...front.map((d) => self.strides[d]!),
      ...shape.map(() => 0),
      ...back.map((d) => self.strides[d]!),
    ],
    places: given.map(({ index, d }) => ({
      ...{ tensor: index, strides: spread(expandedStrides(index, shape)) },
      ...{ size: self.shape[d]!, step: self.strides[d]! },
    })),
  };
}

function savedAll(indices: readonly (Tensor | undefined)[]): () => (Tensor | undefined)[] {
  const reads = indices.map((index) => index && saved(index));
  return () => reads.map((read) => read?.());
}

/** x[indices], where an undefined index takes all of its dimension. Negative indices count from the end. */
export function index_get(self: Tensor, indices: readonly (Tensor | undefined)[]): Tensor {
  const { sizes, wholeStrides, places } = plan(self, indices);
  const out = Tensor.empty(sizes, self.dtype);
  move({
    ...{ label: "index", mode: "copy", sizes, wrap: true },
    out: { tensor: out, strides: out.strides },
    in: { tensor: self, strides: wholeStrides },
    indices: places.map(({ step, ...place }) => ({ ...place, outStride: 0, inStride: step })),
  });
  const { shape } = self;
  const used = savedAll(indices);
  return record(out, "IndexBackward0", [self], (g) => [
    index_put(zeros(shape, { dtype: g.dtype }), used(), g, true),
  ]);
}

/** self with `values` stored at, or added to, the elements that the indices select. */
function checkSource(self: Tensor, values: Tensor): void {
  check(
    self.dtype === values.dtype,
    () =>
      `Index put requires the source and destination dtypes match, got ${self.dtype} for the destination and ${values.dtype} for the source.`,
  );
}

export function index_put(
  self: Tensor,
  indices: readonly (Tensor | undefined)[],
  values: Tensor,
  accumulate = false,
): Tensor {
  checkSource(self, values);
  const out = self.detach().clone();
  putInto(out, indices, values.detach(), accumulate);
  const used = savedAll(indices);
  const [wantsSelf, wantsValues] = [needsGrad(self), needsGrad(values)];
  return record(out, "IndexPutBackward0", [self, values], (g) => [
    accumulate || !wantsSelf ? g : index_put(g, used(), zeros([], { dtype: g.dtype })),
    wantsValues ? index_get(g, used()) : undefined,
  ]);
}

export function index_put_(
  self: Tensor,
  indices: readonly (Tensor | undefined)[],
  values: Tensor,
  accumulate = false,
): Tensor {
  if (records([self, values])) {
    refuseInPlace(self, "index_put");
  }
  checkSource(self, values);
  checkWritable(self, "index_put");
  const beside = (one: Tensor): Tensor => readBeside(self, one, "index_put", true);
  putInto(
    self,
    indices.map((index) => index && beside(index)),
    beside(values),
    accumulate,
  );
  return self;
}

function putInto(
  out: Tensor,
  indices: readonly (Tensor | undefined)[],
  values: Tensor,
  accumulate: boolean,
): void {
  const { sizes, wholeStrides, places } = plan(out, indices);
  check(
    broadcastShapes(sizes, values.shape).join() === sizes.join(),
    () =>
      `shape mismatch: value tensor of shape [${values.shape.join(", ")}] cannot be broadcast to indexing result of shape [${sizes.join(", ")}]`,
  );
  move({
    ...{ label: "index_put", mode: accumulate ? "add" : "copy", sizes, wrap: true },
    out: { tensor: out, strides: wholeStrides },
    in: { tensor: values, strides: expandedStrides(values, sizes) },
    indices: places.map(({ step, ...place }) => ({ ...place, outStride: step, inStride: 0 })),
  });
}

// ---- Embedding ----

/** Rows of `weight`; that of padding_idx gets no gradient. */
export function embedding(input: Tensor, weight: Tensor, padding_idx?: number): Tensor {
  check(weight.dim() === 2, () => "'weight' must be 2-D");
  checkIndex("embedding", input);
  const [rows, width] = weight.shape as [number, number];
  check(
    padding_idx === undefined || (padding_idx < rows && padding_idx >= -rows),
    () => "Padding_idx must be within num_embeddings",
  );
  const flat = input.reshape(-1);
  const out = Tensor.empty([flat.numel(), width], weight.dtype);
  moveSlices("embedding", "copy", weight, 0, flat, out, false);
  const skipped = padding_idx === undefined || padding_idx >= 0 ? padding_idx : padding_idx + rows;
  const used = saved(flat);
  const result = record(out, "EmbeddingBackward0", [weight], (g) => {
    const kept = skipped === undefined ? g : g.masked_fill(used().eq(skipped).unsqueeze(1), 0);
    return [index_add(zeros([rows, width], { dtype: g.dtype }), 0, used(), kept)];
  });
  return result.reshape([...input.shape, width]);
}

export function one_hot(self: Tensor, num_classes: number): Tensor {
  check(
    self.dtype === "int64",
    () => "one_hot is only applicable to index tensor of type LongTensor.",
  );
  if (!(num_classes > 0)) {
    throw new NotImplementedError(
      "one_hot(): say num_classes; the largest class is known only on the GPU",
    );
  }
  // Classes that do not exist are errors of the index.
  const none = zeros([...self.shape, num_classes], { dtype: "int64" });
  return scatter(none, -1, self.unsqueeze(-1), 1);
}
