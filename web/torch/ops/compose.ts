// Operators that are made of others, and other names of them.
import { record } from "../autograd";
import { isFloating, type DType } from "../dtype";
import { check, checkDistinct, NotImplementedError } from "../errors";
import { numelOf, Tensor } from "../tensor";
import { broadcastShapes } from "./collapse";
import { checkRoom, requireTrue } from "./checks";
import { copyInto, elementwise, isTensor } from "./elementwise";
import { arange, eye, linspace, tensor, zeros, type Options } from "./factory";
import { gather } from "./indexing";
import { mm, type BetaAlpha } from "./matmul";
import { cat, flip, narrow, slice } from "./movement";
import * as movement from "./movement";
import * as pointwise from "./pointwise";
import { std, type Correction, type Dims } from "./reduce";

const { unary, binary } = pointwise;

/** PyTorch's other names. */
export const aliases = {
  absolute: unary.abs,
  arccos: unary.acos,
  arccosh: unary.acosh,
  arcsin: unary.asin,
  arcsinh: unary.asinh,
  arctan: unary.atan,
  arctan2: binary.atan2,
  arctanh: unary.atanh,
  divide: pointwise.div,
  fix: unary.trunc,
  greater: binary.gt,
  greater_equal: binary.ge,
  less: binary.lt,
  less_equal: binary.le,
  multiply: pointwise.mul,
  negative: unary.neg,
  not_equal: binary.ne,
  sgn: pointwise.sign,
  subtract: pointwise.sub,
};

// ---- Arithmetic ----

export const deg2rad = (self: Tensor): Tensor => self.mul(Math.PI / 180);
export const rad2deg = (self: Tensor): Tensor => self.mul(180 / Math.PI);

/** beta * self + alpha * (vec1 as a column times vec2 as a row). */
export function addr(
  self: Tensor,
  vec1: Tensor,
  vec2: Tensor,
  { beta = 1, alpha = 1 }: BetaAlpha = {},
): Tensor {
  check(vec1.dim() === 1 && vec2.dim() === 1, () => "addr: Expected 1-D arguments");
  self.expand(vec1.numel(), vec2.numel()); // raises if it does not broadcast to the product
  for (const [name, value] of Object.entries({ beta, alpha })) {
    const whole = !isFloating(self.dtype) && !isFloating(vec1.dtype) && !isFloating(vec2.dtype);
    check(
      !whole || Number.isInteger(value),
      () => `For integral input tensors, argument ${name} must not be a floating point number.`,
    );
  }
  return elementwise("addr", [self, vec1.unsqueeze(1), vec2], { scalars: [beta, alpha] });
}

/** The smallest and the largest element. */
export function aminmax(
  self: Tensor,
  { dim, keepdim = false }: { dim?: number; keepdim?: boolean } = {},
): { min: Tensor; max: Tensor } {
  return { min: self.amin(dim, keepdim), max: self.amax(dim, keepdim) };
}

export function nanmean(self: Tensor, dim?: Dims, keepdim = false): Tensor {
  check(isFloating(self.dtype), () => `nanmean(): expected input to have floating point dtype`);
  const known = self.isnan().logical_not();
  return self.nansum(dim, keepdim).div(known.sum(dim, keepdim));
}

export const std_mean = (self: Tensor, dim?: Dims, options: Correction = {}): [Tensor, Tensor] => [
  std(self, dim, options),
  self.mean(dim, options.keepdim),
];

export const dist = (self: Tensor, other: Tensor, p = 2): Tensor => self.sub(other).norm(p);

/** The distances of all pairs of rows. */
export function cdist(x1: Tensor, x2: Tensor, p = 2): Tensor {
  check(
    x1.dim() >= 2 && x2.dim() >= 2 && x1.shape.at(-1) === x2.shape.at(-1),
    () => "X1 and X2 must have the same number of columns",
  );
  check(p >= 0, () => "cdist only supports non-negative p values");
  Object.entries({ X1: x1, X2: x2 }).forEach(([name, x]) => {
    check(
      isFloating(x.dtype),
      () => `cdist only supports floating-point dtypes, ${name} got: ${x.dtype}`,
    );
  });
  return x1.unsqueeze(-2).sub(x2.unsqueeze(-3)).norm(p, -1);
}

/** Differences of neighbours, n times. */
export function diff(self: Tensor, n = 1, dim = -1, prepend?: Tensor, append?: Tensor): Tensor {
  check(self.dim() > 0, () => "diff expects input to be at least one-dimensional");
  check(n >= 0, () => `order must be non-negative but got ${n}`);
  if (n === 0) {
    return self.clone();
  }
  const parts = [prepend, self, append].filter((one) => one !== undefined);
  let out = parts.length === 1 ? self : cat(parts, dim);
  for (let k = 0; k < n && out.size(dim) > 0; k++) {
    const [after, before] = [slice(out, dim, 1), slice(out, dim, 0, out.size(dim) - 1)];
    out = out.dtype === "bool" ? after.ne(before) : after.sub(before);
  }
  return out;
}

/** The areas between neighbours, as wide as `x` or `dx` says. */
function strips(y: Tensor, x: Tensor | undefined, dx: number, dim: number): Tensor {
  check(
    y.dtype !== "bool" && x?.dtype !== "bool",
    () => "trapezoid: received a bool input for `y` or `x`, but bool is not supported",
  );
  const [after, before] = [slice(y, dim, 1), slice(y, dim, 0, y.size(dim) - 1)];
  const sums = after.add(before).mul(0.5);
  if (x === undefined) {
    return sums.mul(dx);
  }
  const d = y.wrapDim(dim);
  check(
    x.dim() !== 1 || x.shape[0] === y.shape[d],
    () => "trapezoid: There must be one `x` value for each sample point",
  );
  const along = x.dim() === 1 ? x.reshape(y.shape.map((_, k) => (k === d ? -1 : 1))) : x;
  return sums.mul(diff(along, 1, d - y.dim()));
}

export const trapezoid = (
  y: Tensor,
  x?: Tensor,
  { dx = 1, dim = -1 }: { dx?: number; dim?: number } = {},
): Tensor => strips(y, x, dx, dim).sum(dim);
export const trapz = trapezoid;
export const cumulative_trapezoid = (
  y: Tensor,
  x?: Tensor,
  { dx = 1, dim = -1 }: { dx?: number; dim?: number } = {},
): Tensor => strips(y, x, dx, dim).cumsum(dim);

/** Whether each element is one of `test_elements`. */
export function isin(
  elements: Tensor | number,
  test_elements: Tensor | number,
  { invert = false }: { assume_unique?: boolean; invert?: boolean } = {},
): Tensor {
  const [values, among] = [elements, test_elements].map((one) =>
    isTensor(one) ? one : tensor(one),
  ) as [Tensor, Tensor];
  check(
    values.dtype !== "bool" && among.dtype !== "bool",
    () => "Unsupported input type encountered for isin(): Bool",
  );
  const found = values.unsqueeze(-1).eq(among.reshape(-1)).any(-1);
  return invert ? found.logical_not() : found;
}

// ---- Products ----

export const vdot = (self: Tensor, other: Tensor): Tensor => self.dot(other);

/** Sums of products over the last dimensions of both. */
export function inner(self: Tensor, other: Tensor): Tensor {
  if (self.dim() === 0 || other.dim() === 0) {
    return self.mul(other);
  }
  check(
    self.shape.at(-1) === other.shape.at(-1),
    () =>
      `inner() the last dimension must match on both input tensors but got shapes [${self.shape.join(", ")}] and ` +
      `[${other.shape.join(", ")}]`,
  );
  return tensordot(self, other, [[-1], [-1]]);
}

/** Products summed over `dims` of both: a number of last and first ones, or lists. */
export function tensordot(
  first: Tensor,
  second: Tensor,
  dims: number | readonly [readonly number[], readonly number[]] = 2,
): Tensor {
  check(
    typeof dims === "number" ? Number.isInteger(dims) && dims >= 0 : dims.length === 2,
    () => `tensordot expects dims >= 0 or two lists of them, but got dims=${String(dims)}`,
  );
  check(
    typeof dims !== "number" || dims <= Math.min(first.dim(), second.dim()),
    () => `tensordot expects dims < ndim_a or ndim_b, but got dims=${String(dims)}`,
  );
  const [from, of] =
    typeof dims === "number"
      ? [
          Array.from({ length: dims }, (_, k) => first.dim() - dims + k),
          Array.from({ length: dims }, (_, k) => k),
        ]
      : [dims[0].map((d) => first.wrapDim(d)), dims[1].map((d) => second.wrapDim(d))];
  check(from.length === of.length, () => "both dimension lists should have same length");
  checkDistinct(from);
  checkDistinct(of);
  check(first.dtype === second.dtype, () => "both inputs should have same dtype");
  // A dimension of size 1 meets the sum over the other's.
  const fitted = (self: Tensor, own: readonly number[], other: readonly number[], by: Tensor) => {
    const dims = own.filter((d, k) => by.shape[other[k]!] === 1 && self.shape[d] !== 1);
    return dims.length === 0 ? self : self.sum(dims, true);
  };
  const [a, b] = [fitted(first, from, of, second), fitted(second, of, from, first)];
  from.forEach((d, k) => {
    check(
      a.shape[d] === b.shape[of[k]!],
      () =>
        `contracted dimensions need to match, but first has size ${String(a.shape[d])} in dim ${d} and ` +
        `second has size ${String(b.shape[of[k]!])} in dim ${of[k]!}`,
    );
  });
  const rest = (whole: Tensor, taken: readonly number[]): number[] =>
    whole.shape.map((_, d) => d).filter((d) => !taken.includes(d));
  const [left, right] = [rest(a, from), rest(b, of)];
  const count = numelOf(from.map((d) => a.shape[d]!));
  const sizes = [...left.map((d) => a.shape[d]!), ...right.map((d) => b.shape[d]!)];
  const rows = numelOf(left.map((d) => a.shape[d]!));
  const columns = numelOf(right.map((d) => b.shape[d]!));
  return mm(
    a.permute([...left, ...from]).reshape(rows, count),
    b.permute([...of, ...right]).reshape(count, columns),
  ).reshape(sizes);
}

/** Each element of `self` times all of `other`. */
export function kron(self: Tensor, other: Tensor): Tensor {
  const rank = Math.max(self.dim(), other.dim());
  const wide = (one: Tensor): number[] => [
    ...new Array<number>(rank - one.dim()).fill(1),
    ...one.shape,
  ];
  const [a, b] = [wide(self), wide(other)];
  return self
    .reshape(a.flatMap((size) => [size, 1]))
    .mul(other.reshape(b.flatMap((size) => [1, size])))
    .reshape(a.map((size, d) => size * b[d]!));
}

/** The product of a square matrix with itself, n times; by squaring. */
export function matrix_power(self: Tensor, n: number): Tensor {
  check(
    self.dim() >= 2 && self.shape.at(-1) === self.shape.at(-2),
    () => "linalg.matrix_power: A must be batches of square matrices",
  );
  check(n >= 0, () => "matrix_power() of negative powers needs inverses");
  let out: Tensor | undefined;
  let power = self;
  for (let left = n; left > 0; left = Math.floor(left / 2)) {
    if (left % 2 === 1) {
      // The first power is no view.
      out = out === undefined ? (n === 1 ? self.clone() : power) : out.matmul(power);
    }
    power = left > 1 ? power.matmul(power) : power;
  }
  return (
    out ?? eye(self.shape.at(-1)!, undefined, { dtype: self.dtype }).expand(self.shape).clone()
  );
}

export function trace(self: Tensor): Tensor {
  check(self.dim() === 2, () => `trace: expected a matrix, but got tensor with dim ${self.dim()}`);
  return self.diagonal().sum();
}

/** Products of vectors of three elements along `dim`. */
export function cross(self: Tensor, other: Tensor, dim?: number): Tensor {
  check(
    self.dim() === other.dim(),
    () => "linalg.cross: inputs must have the same number of dimensions.",
  );
  const shape = broadcastShapes(self.shape, other.shape);
  const first = shape.findIndex((_, k) => self.shape[k] === 3 && other.shape[k] === 3);
  check(dim !== undefined || first >= 0, () => "no dimension of size 3 in input");
  const d = self.wrapDim(dim ?? first);
  check(
    self.shape[d] === 3 && other.shape[d] === 3,
    () =>
      `linalg.cross: inputs dimension ${d} must have length 3. Got ${String(self.shape[d])} and ${String(other.shape[d])}`,
  );
  const [a, b] = [self.expand(shape), other.expand(shape)];
  return a
    .roll(-1, d)
    .mul(b.roll(-2, d))
    .sub(a.roll(-2, d).mul(b.roll(-1, d)));
}

// ---- Shapes ----

type Many = Tensor | readonly Tensor[];

const atLeast =
  (grow: (one: Tensor) => Tensor) =>
  (...tensors: Many[]): Tensor | Tensor[] => {
    const list = tensors.flat() as Tensor[];
    return list.length === 1 && !Array.isArray(tensors[0]) ? grow(list[0]!) : list.map(grow);
  };
const one = (self: Tensor): Tensor => (self.dim() === 0 ? self.reshape(1) : self);
const two = (self: Tensor): Tensor => (self.dim() < 2 ? one(self).unsqueeze(0) : self);
const three = (self: Tensor): Tensor => (self.dim() < 3 ? two(self).unsqueeze(-1) : self);
export const atleast_1d = atLeast(one);
export const atleast_2d = atLeast(two);
export const atleast_3d = atLeast(three);

export const row_stack = movement.vstack;
export const dstack = (tensors: readonly Tensor[]): Tensor => cat(tensors.map(three), 2);
export const column_stack = (tensors: readonly Tensor[]): Tensor =>
  cat(
    tensors.map((each) => (each.dim() < 2 ? each.reshape(-1, 1) : each)),
    1,
  );

/** A matrix with the tensors along its diagonal. */
export function block_diag(...tensors: Tensor[]): Tensor {
  const blocks = tensors.map(two);
  const width = blocks.reduce((total, block) => total + block.shape[1]!, 0);
  let before = 0;
  const rows = blocks.map((block) => {
    before += block.shape[1]!;
    return movement.constant_pad(block, [before - block.shape[1]!, width - before]);
  });
  return cat(rows, 0);
}

/** All combinations of elements of vectors, as rows. */
export function cartesian_prod(...tensors: Tensor[]): Tensor {
  tensors.forEach(({ shape }) => {
    check(shape.length === 1, () => `Expect a 1D vector, but got shape [${shape.join(", ")}]`);
  });
  return tensors.length === 1
    ? tensors[0]!
    : movement.stack(
        movement.meshgrid(...tensors).map((grid) => grid.reshape(-1)),
        1,
      );
}

export function fliplr(self: Tensor): Tensor {
  check(self.dim() >= 2, () => "Input must be >= 2-d.");
  return flip(self, 1);
}
export function flipud(self: Tensor): Tensor {
  check(self.dim() >= 1, () => "Input must be >= 1-d.");
  return flip(self, 0);
}

/** Turned by quarters from the first of `dims` to the second. */
export function rot90(self: Tensor, k = 1, dims: readonly [number, number] = [0, 1]): Tensor {
  const [a, b] = [self.wrapDim(dims[0]), self.wrapDim(dims[1])];
  check(
    (dims as readonly number[]).length === 2,
    () => `expected total rotation dims == 2, but got dims = ${dims.length}`,
  );
  check(a !== b, () => "expected rotation dims to be different");
  switch (((k % 4) + 4) % 4) {
    case 1:
      return flip(self, b).transpose(a, b);
    case 2:
      return flip(self, a, b);
    case 3:
      return flip(self, a).transpose(a, b);
    default:
      return self.clone();
  }
}

/** Parts of about the same size, or between the places of a list. */
export function tensor_split(self: Tensor, parts: number | readonly number[], dim = 0): Tensor[] {
  if ((parts as unknown) instanceof Tensor) {
    throw new NotImplementedError("tensor_split(): the places as a tensor");
  }
  const size = self.size(dim);
  if (typeof parts === "number") {
    checkRoom(parts);
  }
  const inside = (place: number): number =>
    Math.min(Math.max(place < 0 ? place + size : place, 0), size);
  const ends =
    typeof parts === "number"
      ? Array.from({ length: parts }, (_, k) => {
          const [least, more] = [Math.floor(size / parts), size % parts];
          return (k + 1) * least + Math.min(k + 1, more);
        })
      : [...parts.map(inside), size];
  check(ends.length > 0, () => "number of sections must be larger than 0");
  return ends.map((end, k) => {
    const start = k === 0 ? 0 : ends[k - 1]!;
    return narrow(self, dim, start, Math.max(end - start, 0));
  });
}

function splitAlong(name: string, least: number, self: Tensor, parts: number | readonly number[]) {
  check(
    self.dim() >= least,
    () => `torch.${name} requires a tensor with at least ${least} dimension, but got ${self.dim()}`,
  );
  const d = name === "hsplit" ? (self.dim() === 1 ? 0 : 1) : name === "vsplit" ? 0 : 2;
  check(
    typeof parts !== "number" || self.shape[d]! % parts === 0,
    () =>
      `torch.${name} attempted to split along dimension ${d}, but the size of the dimension ` +
      `${self.shape[d]!} is not divisible by the split_size ${String(parts)}!`,
  );
  return tensor_split(self, parts, d);
}
export const hsplit = (self: Tensor, parts: number | readonly number[]): Tensor[] =>
  splitAlong("hsplit", 1, self, parts);
export const vsplit = (self: Tensor, parts: number | readonly number[]): Tensor[] =>
  splitAlong("vsplit", 2, self, parts);
export const dsplit = (self: Tensor, parts: number | readonly number[]): Tensor[] =>
  splitAlong("dsplit", 3, self, parts);
export const split_with_sizes = (self: Tensor, sizes: readonly number[], dim = 0): Tensor[] =>
  movement.split(self, sizes, dim);

// `self` with a part of it replaced.
function replaced(
  name: string,
  self: Tensor,
  src: Tensor,
  part: (whole: Tensor) => Tensor,
): Tensor {
  const out = Tensor.empty(self.shape, self.dtype);
  copyInto(out, self.detach(), name);
  const place = part(out);
  check(
    place.shape.join() === src.shape.join(),
    () =>
      `expected src to have a size equal to the slice of self. src size = [${src.shape.join(", ")}], ` +
      `slice size = [${place.shape.join(", ")}]`,
  );
  copyInto(place, src.detach(), name);
  return record(out, "SliceScatterBackward0", [self, src], (g) => [
    replaced(name, g, zeros(src.shape, { dtype: g.dtype }), part),
    part(g),
  ]);
}
export const select_scatter = (self: Tensor, src: Tensor, dim: number, index: number): Tensor =>
  replaced("select_scatter", self, src, (whole) => movement.select(whole, dim, index));
export const slice_scatter = (
  self: Tensor,
  src: Tensor,
  dim = 0,
  start?: number,
  end?: number,
  step = 1,
): Tensor => replaced("slice_scatter", self, src, (whole) => slice(whole, dim, start, end, step));
export const diagonal_scatter = (
  self: Tensor,
  src: Tensor,
  offset = 0,
  dim1 = 0,
  dim2 = 1,
): Tensor =>
  replaced("diagonal_scatter", self, src, (whole) => movement.diagonal(whole, offset, dim1, dim2));

/** The last dimension as a diagonal of two dimensions. */
export function diag_embed(self: Tensor, offset = 0, dim1 = -2, dim2 = -1): Tensor {
  const size = self.shape.at(-1)! + Math.abs(offset);
  const rank = self.dim() + 1;
  const [a, b] = [self.wrapDim(dim1, rank), self.wrapDim(dim2, rank)];
  check(a !== b, () => `diagonal dimensions cannot be identical ${dim1}, ${dim2}`);
  const whole = zeros([...self.shape.slice(0, -1), size, size], { dtype: self.dtype });
  return diagonal_scatter(whole, self, offset, -2, -1).movedim([-2, -1], [a, b]);
}
export const diagflat = (self: Tensor, offset = 0): Tensor =>
  movement.diag(self.reshape(-1), offset);

/** Elements of `source`, in order, where the mask holds. */
export function masked_scatter(self: Tensor, mask: Tensor, source: Tensor): Tensor {
  check(
    self.dtype === source.dtype,
    () =>
      `masked_scatter: expected self and source to have same dtypes but got ${self.dtype} and ${source.dtype}`,
  );
  const shape = broadcastShapes(self.shape, mask.shape);
  const chosen = mask.expand(shape);
  if (numelOf(shape) === 0) {
    return self.expand(shape).clone();
  }
  const counts = chosen.reshape(-1).cumsum(0);
  requireTrue(
    "masked_scatter",
    counts.narrow(0, counts.numel() - 1, 1).le(source.numel()),
    "Number of elements of source < number of ones in mask",
  );
  if (source.numel() === 0) {
    return self.expand(shape).clone();
  }
  const places = counts.sub(1).clamp(0, source.numel() - 1);
  const from = gather(source.reshape(-1), 0, places);
  return pointwise.where(chosen, from.reshape(shape), self.expand(shape));
}

// ---- Factories ----

function triangleIndices(
  rows: number,
  columns: number,
  wanted: (row: number, column: number) => boolean,
  dtype: DType,
): Tensor {
  for (const [name, size] of Object.entries({ row: rows, col: columns })) {
    check(size >= 0, () => `${name} must be non-negative, got${size}`);
  }
  checkRoom(rows * columns);
  const places: [number, number][] = [];
  // Without columns there may be any number of rows.
  for (let row = 0; row < rows && columns > 0; row++) {
    for (let column = 0; column < columns; column++) {
      if (wanted(row, column)) {
        places.push([row, column]);
      }
    }
  }
  return tensor(places, { dtype }).reshape(places.length, 2).t().contiguous();
}
/** The rows and columns of a lower triangle. */
export const tril_indices = (
  row: number,
  col: number,
  offset = 0,
  { dtype = "int64" }: Options = {},
): Tensor => triangleIndices(row, col, (r, c) => c - r <= offset, dtype);
export const triu_indices = (
  row: number,
  col: number,
  offset = 0,
  { dtype = "int64" }: Options = {},
): Tensor => triangleIndices(row, col, (r, c) => c - r >= offset, dtype);

export const logspace = (
  start: number,
  end: number,
  steps: number,
  base = 10,
  options: Options = {},
): Tensor => {
  const { dtype = "float32", requires_grad = false } = options;
  if (!isFloating(dtype)) {
    throw new NotImplementedError("logspace() of integers");
  }
  const out = pointwise.pow(base, linspace(start, end, steps)).to(dtype);
  return requires_grad ? out.requires_grad_() : out;
};

/** Powers of a vector as columns, the highest first. */
export function vander(x: Tensor, N = x.size(0), increasing = false): Tensor {
  check(x.dim() === 1, () => "x must be a one-dimensional tensor.");
  const powers = arange(N);
  return x.unsqueeze(-1).pow(increasing ? powers : flip(powers, 0));
}
