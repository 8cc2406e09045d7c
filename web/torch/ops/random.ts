// Random numbers on the GPU: Philox, in the stream of the C++ backend's generator (csrc/ops/random).
import { dtypeInfo, toBigInt, type DType } from "../dtype";
import { check } from "../errors";
import { launch, shaderDType } from "../launch";
import { Tensor } from "../tensor";
import { randomRows } from "../wgsl/data";
import { convert, info } from "../wgsl/dtypes";
import { records } from "../autograd";
import { requireProbabilities } from "./checks";
import { copyInto, refuseInPlace } from "./elementwise";
import type { Options } from "./factory";
import { full } from "./factory";
import { checkWritable } from "./memory";
import { where } from "./pointwise";
import { argsort } from "./sort";

// Offsets count draws of an invocation, four numbers of 32 bits each.
const state = { seed: 67280421310721n, offset: 0n };

/** Numbers that follow depend on the seed and on the draws since alone. A fraction of it counts nothing. */
export function manual_seed(seed: number | bigint | boolean): void {
  const isWhole = typeof seed !== "number" || Number.isFinite(seed);
  const whole = isWhole ? BigInt(typeof seed === "number" ? Math.trunc(seed) : seed) : 1n << 64n;
  if (whole < -(1n << 63n) || whole >= 1n << 64n) {
    throw new RangeError(`manual_seed(): ${seed} is no integer of 64 bits`);
  }
  state.seed = BigInt.asUintN(64, whole);
  state.offset = 0n;
}

export const initial_seed = (): bigint => state.seed;

const wordsOf = (value: bigint): [number, number] => [
  Number(value & 0xffffffffn),
  Number((value >> 32n) & 0xffffffffn),
];

function draw(rowName: string, out: Tensor, words: number[], x?: Tensor): void {
  const row = randomRows[rowName]!;
  const long = row.source === "bits64";
  const to = shaderDType(out);
  const stored =
    to === "bool"
      ? `i_from_b(${convert(long ? "l" : "f", "b", "v")})`
      : convert(long ? "l" : "f", info(to).kind, "v");
  const count = out.numel();
  const offset = state.offset;
  state.offset += long ? 2n : 1n;
  launch({
    ...{ label: rowName, kernel: "generate", operands: { out, x } },
    consts: {
      ...{ table: "random_rows", row: 0, source: row.source },
      ...{ kind: long ? "longs" : "floats", whole: count % 4 === 0 },
    },
    params: { count, first: 0, philox: [...wordsOf(state.seed), ...wordsOf(offset)], s: words },
    regions: { value: row.value, stored },
    regionKey: rowName,
    workgroups: Math.ceil(count / 1024),
  });
}

const floatWords = (...values: number[]): number[] => [
  ...new Uint32Array(Float32Array.from(values).buffer),
];

// Fills a tensor of any layout.
function filled(label: string, self: Tensor, rowName: string, words: number[]): Tensor {
  if (records([self])) {
    refuseInPlace(self, label);
  }
  if (self.is_contiguous()) {
    draw(rowName, self, words);
    self.storage.version++;
    return self;
  }
  checkWritable(self, label);
  const packed = Tensor.empty(self.shape, self.dtype);
  draw(rowName, packed, words);
  copyInto(self, packed, label);
  return self;
}

const floating = (label: string, self: Tensor): void => {
  check(self.is_floating_point(), () => `"${label}" not implemented for '${self.dtype}'`);
};

export function uniform_(self: Tensor, from = 0, to = 1): Tensor {
  floating("uniform_", self);
  check(
    from <= to,
    () => `uniform_ expects to return a [from, to) range, but found from=${from} > to=${to}`,
  );
  return filled("uniform", self, "uniform", floatWords(from, to));
}

export function normal_(self: Tensor, mean = 0, std = 1): Tensor {
  floating("normal_", self);
  check(std >= 0, () => `normal expects std >= 0.0, but found std ${std}`);
  return filled("normal", self, "normal", floatWords(mean, std));
}

export function bernoulli_(self: Tensor, p = 0.5): Tensor {
  check(p >= 0 && p <= 1, () => `bernoulli_ expects p to be in [0, 1], but got p=${p}`);
  return filled("bernoulli", self, "bernoulli_scalar", floatWords(p));
}

export function exponential_(self: Tensor, lambd = 1): Tensor {
  floating("exponential_", self);
  check(lambd > 0, () => `exponential_ expects lambda > 0.0, but found lambda=${lambd}`);
  return filled("exponential", self, "exponential", floatWords(lambd));
}

const empty = (shape: readonly number[], options: Options, dtype: DType): Tensor =>
  Tensor.empty(shape, options.dtype ?? dtype);
const marked = (self: Tensor, options: Options): Tensor =>
  options.requires_grad === true ? self.requires_grad_() : self;

export const rand = (shape: readonly number[], options: Options = {}): Tensor =>
  marked(uniform_(empty(shape, options, "float32")), options);
export const randn = (shape: readonly number[], options: Options = {}): Tensor =>
  marked(normal_(empty(shape, options, "float32")), options);
export const rand_like = (self: Tensor, options: Options = {}): Tensor =>
  rand(self.shape, { dtype: self.dtype, ...options });
export const randn_like = (self: Tensor, options: Options = {}): Tensor =>
  randn(self.shape, { dtype: self.dtype, ...options });

// Of dtypes that hold fewer integers than float32.
const RANGES: Partial<Record<DType, readonly [least: number, most: number]>> = {
  bool: [0, 1],
  float16: [-65504, 65504],
  int32: [-(2 ** 31), 2 ** 31 - 1],
};

/** Integers from low to below high; randint(high, shape) starts at 0. */
export function randint(
  low: number,
  high: number | readonly number[],
  shape?: readonly number[] | Options,
  options: Options = {},
): Tensor {
  if (typeof high !== "number") {
    return randint(0, low, high, (shape as Options | undefined) ?? {});
  }
  check(
    high > low,
    () => `random_ expects 'from' to be less than 'to', but got from=${low} >= to=${high}`,
  );
  const out = empty(shape as readonly number[], options, "int64");
  for (const [name, value] of [
    ["from", low],
    ["to - 1", high - 1],
  ] as const) {
    // prettier-ignore
    const [least, most] = RANGES[out.dtype] ?? [-Infinity, Infinity];
    check(
      value >= least && value <= most,
      () => `${name} is out of bounds for ${dtypeInfo(out.dtype).name}`,
    );
  }
  const words = [
    ...wordsOf(BigInt.asUintN(64, toBigInt(low))),
    ...wordsOf(BigInt(high) - BigInt(low)),
  ];
  return filled("randint", out, "random_from_to", words);
}

export function randperm(n: number, options: Options = {}): Tensor {
  const order = argsort(rand([n]));
  return options.dtype === undefined ? order : order.to(options.dtype);
}

/** 1 with the probability that each element gives. */
export function bernoulli(self: Tensor): Tensor {
  floating("bernoulli", self);
  requireProbabilities(
    "bernoulli",
    self,
    "Expected p_in >= 0 && p_in <= 1 to be true, but got false.",
  );
  const out = Tensor.empty(self.shape, self.dtype);
  draw("bernoulli_tensor", out, [], self.detach().contiguous());
  return out;
}

/** Zeros elements with probability p in training, and divides the others by 1 - p. */
export function dropout(self: Tensor, p = 0.5, train = true): Tensor {
  check(p >= 0 && p <= 1, () => `dropout probability has to be between 0 and 1, but got ${p}`);
  if (!train || p === 0) {
    return self;
  }
  if (p === 1) {
    return self.mul(0);
  }
  const kept = bernoulli_(Tensor.empty(self.shape, "bool"), 1 - p);
  return where(kept, self.mul(1 / (1 - p)), full([], 0, { dtype: self.dtype }));
}

// A mask of 1 and 0 for elements, or for whole channels of so many spatial dimensions.
function keptOf(self: Tensor, p: number, dims: number | undefined): Tensor {
  check(p >= 0 && p <= 1, () => `dropout probability has to be between 0 and 1, but got ${p}`);
  const spatial = dims ?? 0;
  check(
    dims === undefined || self.dim() === dims + 1 || self.dim() === dims + 2,
    () =>
      `dropout${String(dims)}d: Expected ${spatial + 1}D or ${spatial + 2}D input, but received a ${self.dim()}D input`,
  );
  const shape = self.shape.map((size, d) => (d >= self.dim() - spatial ? 1 : size));
  return bernoulli_(Tensor.empty(shape, self.dtype), 1 - p);
}

/** Zeros whole channels. */
const channelDropout =
  (dims: number) =>
  (self: Tensor, p = 0.5, train = true): Tensor => {
    const kept = keptOf(self, p, dims);
    return !train || p === 0 ? self : self.mul(p === 1 ? kept : kept.mul(1 / (1 - p)));
  };
export const dropout1d = channelDropout(1);
export const dropout2d = channelDropout(2);
export const dropout3d = channelDropout(3);

// What SELU gives far below zero.
const ALPHA = -1.7580993408473766;

// Elements become ALPHA; then all are scaled so that mean and variance stay.
function alphaDropped(self: Tensor, p: number, train: boolean, dims?: number): Tensor {
  const kept = keptOf(self, p, dims);
  if (!train || p === 0) {
    return self;
  }
  if (p === 1) {
    return self.mul(0);
  }
  const scale = 1 / Math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p));
  return self
    .mul(kept.mul(scale))
    .add(kept.rsub(1).mul(ALPHA * scale))
    .sub(ALPHA * scale * p);
}
export const alpha_dropout = (self: Tensor, p = 0.5, train = false): Tensor =>
  alphaDropped(self, p, train);
export const feature_alpha_dropout = (self: Tensor, p = 0.5, train = false): Tensor =>
  alphaDropped(self, p, train, Math.max(self.dim() - 2, 0));

/** Below zero, times a slope for each element; outside of training, the mean slope. */
export function rrelu(self: Tensor, lower = 1 / 8, upper = 1 / 3, train = false): Tensor {
  check(lower <= upper, () => "Lower bound should be less than or equal to the upper bound");
  const slope = train
    ? uniform_(Tensor.empty(self.shape, self.dtype), lower, upper)
    : (lower + upper) / 2;
  return where(self.gt(0), self, self.mul(slope));
}

/** A sample of one class, as probabilities; with `hard` as ones and zeros, with the same gradient. */
export function gumbel_softmax(
  logits: Tensor,
  tau = 1,
  { hard = false, dim = -1 }: { hard?: boolean; dim?: number } = {},
): Tensor {
  const noise = exponential_(Tensor.empty(logits.shape, logits.dtype)).log().neg();
  const soft = logits.add(noise).div(tau).softmax(dim);
  if (!hard) {
    return soft;
  }
  const index = soft.detach().argmax(dim, true);
  const ones = full(index.shape, 1, { dtype: logits.dtype });
  const chosen = full(logits.shape, 0, { dtype: logits.dtype }).scatter(dim, index, ones);
  return chosen.sub(soft.detach()).add(soft);
}
