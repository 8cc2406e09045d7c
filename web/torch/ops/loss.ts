// Losses and attention, made of other operators.
import { dtypeInfo, isFloating } from "../dtype";
import { check } from "../errors";
import { Tensor } from "../tensor";
import { requireProbabilities, requireTrue } from "./checks";
import { elementwise } from "./elementwise";
import { full, ones, zeros_like } from "./factory";
import { gather } from "./indexing";
import { log_softmax, softmax } from "./normalize";
import { logsigmoid, where } from "./pointwise";
import { tril } from "./movement";
import { dropout } from "./random";

export type Reduction = "mean" | "sum" | "none";

export interface Reduced {
  reduction?: Reduction;
}

function checkReduction(reduction: string): void {
  if (!["mean", "sum", "none"].includes(reduction)) {
    throw new TypeError(`${reduction} is not a valid value for reduction`);
  }
}

function reduced(losses: Tensor, { reduction = "mean" }: Reduced): Tensor {
  checkReduction(reduction);
  switch (reduction) {
    case "mean":
      return losses.mean();
    case "sum":
      return losses.sum();
    case "none":
      return losses;
  }
}

// Booleans among numbers are numbers, for the gradient too.
const numbers = (input: Tensor, target: Tensor): [Tensor, Tensor] => [
  input.dtype === "bool" ? input.to(target.dtype) : input,
  target.dtype === "bool" ? target.to(input.dtype) : target,
];

export const mse_loss = (input: Tensor, target: Tensor, options: Reduced = {}): Tensor =>
  reduced(elementwise("mse", numbers(input, target), { label: "mse_loss" }), options);
export const l1_loss = (input: Tensor, target: Tensor, options: Reduced = {}): Tensor =>
  reduced(input.sub(target).abs(), options);
export const smooth_l1_loss = (
  input: Tensor,
  target: Tensor,
  { beta = 1, ...options }: Reduced & { beta?: number } = {},
): Tensor => {
  check(beta >= 0, () => "smooth_l1_loss does not support negative values for beta.");
  return reduced(
    elementwise("smooth_l1", numbers(input, target), { label: "smooth_l1_loss", scalars: [beta] }),
    options,
  );
};
export const huber_loss = (
  input: Tensor,
  target: Tensor,
  { delta = 1, ...options }: Reduced & { delta?: number } = {},
): Tensor => {
  check(delta > 0, () => "huber_loss does not support non-positive values for delta.");
  return reduced(
    elementwise("huber", numbers(input, target), { label: "huber_loss", scalars: [delta] }),
    options,
  );
};

export function binary_cross_entropy(
  input: Tensor,
  target: Tensor,
  { weight, ...options }: Reduced & { weight?: Tensor } = {},
): Tensor {
  if (input.shape.join() !== target.shape.join()) {
    throw new RangeError(
      `Using a target size ([${target.shape.join(", ")}]) that is different to the input size ` +
        `([${input.shape.join(", ")}]) is deprecated. Please ensure they have the same size.`,
    );
  }
  check(
    input.dtype === target.dtype,
    () => `Found dtype ${dtypeInfo(target.dtype).name} but expected ${dtypeInfo(input.dtype).name}`,
  );
  for (const [name, one] of Object.entries({ input, target })) {
    const message = `all elements of ${name} should be between 0 and 1`;
    requireProbabilities("binary_cross_entropy", one, message);
  }
  const losses = elementwise("binary_cross_entropy", [input, target]);
  return reduced(weight === undefined ? losses : losses.mul(weight), options);
}

export function binary_cross_entropy_with_logits(
  input: Tensor,
  target: Tensor,
  { weight, pos_weight, ...options }: Reduced & { weight?: Tensor; pos_weight?: Tensor } = {},
): Tensor {
  check(
    input.shape.join() === target.shape.join(),
    () =>
      `Target size ([${target.shape.join(", ")}]) must be the same as input size ([${input.shape.join(", ")}])`,
  );
  check(
    isFloating(target.dtype),
    () =>
      `result type Float can't be cast to the desired output type ${dtypeInfo(target.dtype).name}`,
  );
  // (1 - y) x + (1 + (w - 1) y) log(1 + exp(-x)), where log(1 + exp(-x)) is -logsigmoid(x).
  const below = target.rsub(1).mul(input);
  const log = logsigmoid(input);
  const scaled = pos_weight === undefined ? log : log.mul(pos_weight.sub(1).mul(target).add(1));
  const losses = below.sub(scaled);
  return reduced(weight === undefined ? losses : losses.mul(weight), options);
}

export interface ClassLoss extends Reduced {
  weight?: Tensor | undefined;
  ignore_index?: number;
}

// The target of a single sample, which may be a list of one.
function ofSample(input: Tensor, target: Tensor): Tensor {
  if (input.dim() < 1) {
    throw new RangeError(`Expected 1 or more dimensions (got ${input.dim()})`);
  }
  if (input.dim() !== 1 || target.dim() === 0 || isFloating(target.dtype)) {
    return target;
  }
  check(target.dim() === 1, () => "0D or 1D target tensor expected, multi-target not supported");
  if (target.shape[0] !== 1) {
    throw new RangeError(
      `For 1D input, 1D target must have size 1, but got target size: ${target.shape[0]!}`,
    );
  }
  return target.squeeze(0);
}

/** `input` has log-probabilities, of classes in dimension 1 (or 0 for a single sample). */
export function nll_loss(
  input: Tensor,
  classes: Tensor,
  { weight, ignore_index = -100, reduction = "mean" }: ClassLoss = {},
): Tensor {
  checkReduction(reduction);
  const target = ofSample(input, classes);
  check(
    target.dtype === "int64",
    () => `expected target dtype to be Long or Byte, but got ${dtypeInfo(target.dtype).name}`,
  );
  const d = input.dim() === 1 ? 0 : 1;
  if (d === 1 && input.shape[0] !== (target.shape[0] ?? 0)) {
    throw new RangeError(
      `Expected input batch_size (${input.shape[0]!}) to match target batch_size (${target.shape[0] ?? 0}).`,
    );
  }
  check(
    input.shape.toSpliced(d, 1).join() === target.shape.join(),
    () =>
      `Expected target of shape [${input.shape.toSpliced(d, 1).join(", ")}] but got [${target.shape.join(", ")}]`,
  );
  check(
    weight === undefined || weight.shape.join() === String(input.shape[d]),
    () =>
      `weight tensor should be defined either for all ${input.shape[d]!} classes or no classes ` +
      `but got weight tensor of shape: [${weight!.shape.join(", ")}]`,
  );
  const ignored = target.eq(ignore_index);
  const places = target.masked_fill(ignored, 0);
  const chosen = gather(input, d, places.unsqueeze(d)).squeeze(d).neg();
  const ones = full([], 1, { dtype: input.dtype }).expand(target.shape);
  const factors =
    weight === undefined ? ones : gather(weight, 0, places.reshape(-1)).reshape(target.shape);
  const shares = factors.masked_fill(ignored, 0);
  const losses = where(ignored, 0, chosen.mul(shares));
  return reduction === "mean" ? losses.sum().div(shares.sum()) : reduced(losses, { reduction });
}

export function cross_entropy(
  input: Tensor,
  given: Tensor,
  {
    label_smoothing = 0,
    weight,
    ignore_index = -100,
    reduction = "mean",
  }: ClassLoss & { label_smoothing?: number } = {},
): Tensor {
  check(
    label_smoothing >= 0 && label_smoothing <= 1,
    () => `label_smoothing must be between 0.0 and 1.0. Got: ${label_smoothing}`,
  );
  const target = ofSample(input, given);
  check(
    !isFloating(target.dtype) || ignore_index < 0,
    () => "ignore_index is not supported for floating point target",
  );
  const d = input.dim() === 1 ? 0 : 1;
  const classes = input.shape[d]!;
  const own = isFloating(target.dtype) ? input.shape : input.shape.toSpliced(d, 1);
  if (own.join() !== target.shape.join()) {
    throw new RangeError(
      `Expected target of shape [${own.join(", ")}] for input of shape [${input.shape.join(", ")}], but got ` +
        `[${target.shape.join(", ")}]`,
    );
  }
  const log = log_softmax(input, d);
  const shape = input.shape.map((_, k) => (k === d ? classes : 1));
  const weighted = weight === undefined ? log : log.mul(weight.reshape(shape));
  if (isFloating(target.dtype)) {
    const smooth =
      label_smoothing === 0
        ? target
        : target.mul(1 - label_smoothing).add(label_smoothing / classes);
    const losses = weighted.mul(smooth).sum(d).neg();
    return reduced(losses, { reduction });
  }
  const hard = nll_loss(log, target, { weight, ignore_index, reduction });
  if (label_smoothing === 0) {
    return hard;
  }
  const ignored = target.eq(ignore_index);
  const smooth = where(ignored, 0, weighted.sum(d).neg());
  let soft = reduced(smooth, { reduction: reduction === "mean" ? "sum" : reduction });
  if (reduction === "mean") {
    const factors =
      weight === undefined
        ? ones([], { dtype: input.dtype }).expand(target.shape)
        : gather(weight, 0, target.masked_fill(ignored, 0).reshape(-1)).reshape(target.shape);
    soft = soft.div(factors.masked_fill(ignored, 0).sum());
  }
  return hard.mul(1 - label_smoothing).add(soft.mul(label_smoothing / classes));
}

export function kl_div(
  input: Tensor,
  target: Tensor,
  {
    log_target = false,
    reduction = "mean",
  }: { log_target?: boolean; reduction?: Reduction | "batchmean" } = {},
): Tensor {
  check(
    isFloating(input.dtype) && isFloating(target.dtype),
    () => "kl_div: Integral inputs not supported.",
  );
  const losses = log_target
    ? target.exp().mul(target.sub(input))
    : target.xlogy(target).sub(target.mul(input));
  return reduction === "batchmean"
    ? losses.sum().div(input.shape[0] ?? 1)
    : reduced(losses, { reduction });
}

// A margin is a float, and makes one of an integer, however it is written.
const floats = (x: Tensor): Tensor => (isFloating(x.dtype) ? x : x.float());

export const hinge_embedding_loss = (
  input: Tensor,
  target: Tensor,
  { margin = 1, ...options }: Reduced & { margin?: number } = {},
): Tensor => {
  const far = where(target.ne(1), floats(input).rsub(margin).clamp_min(0), 0);
  return reduced(far.add(where(target.ne(-1), input, 0)), options);
};

export const margin_ranking_loss = (
  input1: Tensor,
  input2: Tensor,
  target: Tensor,
  { margin = 0, ...options }: Reduced & { margin?: number } = {},
): Tensor => {
  const shown = (one: Tensor): string => `[${one.shape.join(", ")}]`;
  check(
    input1.dim() === input2.dim() && input1.dim() === target.dim(),
    () =>
      `margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: ${shown(input1)}, ` +
      `input2: ${shown(input2)}, target: ${shown(target)} `,
  );
  const losses = floats(target.neg().mul(input1.sub(input2))).add(margin);
  return reduced(losses.clamp_min(0), options);
};

export function cosine_embedding_loss(
  input1: Tensor,
  input2: Tensor,
  target: Tensor,
  { margin = 0, ...options }: Reduced & { margin?: number } = {},
): Tensor {
  check(
    target.dim() <= 1 && input1.dim() === target.dim() + 1 && input2.dim() === input1.dim(),
    () =>
      `${target.dim()}D target tensor expects ${target.dim() + 1}D input tensors, but found inputs with ` +
      `sizes [${input1.shape.join(", ")}] and [${input2.shape.join(", ")}].`,
  );
  const d = target.dim();
  // PyTorch's, which is not that of cosine_similarity.
  const size = (x: Tensor): Tensor => x.mul(x).sum(d).add(1e-12);
  const cosine = input1
    .mul(input2)
    .sum(d)
    .div(size(input1).mul(size(input2)).sqrt());
  const same = where(target.eq(1), cosine.rsub(1), 0);
  return reduced(same.add(where(target.eq(-1), cosine.sub(margin).clamp_min(0), 0)), options);
}

export const pairwise_distance = (
  x1: Tensor,
  x2: Tensor,
  p = 2,
  eps = 1e-6,
  keepdim = false,
): Tensor => x1.sub(x2).add(eps).norm(p, -1, keepdim);

export interface Triplet extends Reduced {
  margin?: number;
  p?: number;
  eps?: number;
  swap?: boolean;
}

function checkMargin(name: string, margin: number): void {
  if (margin <= 0) {
    throw new RangeError(`${name}(): margin must be greater than 0, got ${margin}`);
  }
}

export function triplet_margin_loss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  { margin = 1, p = 2, eps = 1e-6, swap = false, ...options }: Triplet = {},
): Tensor {
  checkMargin("triplet_margin_loss", margin);
  check(
    anchor.dim() === positive.dim() && anchor.dim() === negative.dim(),
    () =>
      "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: " +
      `anchor ${anchor.dim()}D, positive ${positive.dim()}D, and negative ${negative.dim()}D inputs`,
  );
  const near = pairwise_distance(anchor, positive, p, eps);
  let far = pairwise_distance(anchor, negative, p, eps);
  if (swap) {
    far = far.minimum(pairwise_distance(positive, negative, p, eps));
  }
  return reduced(near.sub(far).add(margin).clamp_min(0), options);
}

export type Distance = (a: Tensor, b: Tensor) => Tensor;

export function triplet_margin_with_distance_loss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  {
    distance_function: distance = pairwise_distance,
    margin = 1,
    swap = false,
    ...options
  }: Reduced & { distance_function?: Distance; margin?: number; swap?: boolean } = {},
): Tensor {
  checkMargin("triplet_margin_with_distance_loss", margin);
  const near = distance(anchor, positive);
  const far = distance(anchor, negative);
  const nearest = swap ? far.minimum(distance(positive, negative)) : far;
  return reduced(near.sub(nearest).add(margin).clamp_min(0), options);
}

/** log(1 + exp(-target * input)), where the target is 1 or -1. */
export function soft_margin_loss(input: Tensor, target: Tensor, options: Reduced = {}): Tensor {
  const losses = input.neg().mul(target).exp().log1p();
  check(
    losses.shape.join() === input.shape.join(),
    () =>
      `output with shape [${input.shape.join(", ")}] doesn't match the broadcast shape [${losses.shape.join(", ")}]`,
  );
  return reduced(losses, options);
}

export function multilabel_soft_margin_loss(
  input: Tensor,
  target: Tensor,
  { weight, ...options }: Reduced & { weight?: Tensor } = {},
): Tensor {
  const losses = target
    .mul(logsigmoid(input))
    .add(target.rsub(1).mul(logsigmoid(input.neg())))
    .neg();
  // The classes' dimension is the input's, also where a weight has more.
  const d = input.wrapDim(-1);
  const all = weight === undefined ? losses : losses.mul(weight);
  return reduced(all.sum(d).div(input.shape[d] ?? 1), options);
}

/** How far the other classes come near the target's, by the margin. */
export function multi_margin_loss(
  input: Tensor,
  target: Tensor,
  {
    p = 1,
    margin = 1,
    weight,
    ...options
  }: Reduced & {
    p?: number;
    margin?: number;
    weight?: Tensor;
  } = {},
): Tensor {
  check(p === 1 || p === 2, () => "only p == 1 and p == 2 supported");
  const scores = input.dim() === 2 ? input : input.reshape(1, -1);
  check(
    target.dim() <= 1 && target.numel() === scores.shape[0],
    () =>
      `inconsistent target size, expected ${scores.shape[0]!} but got [${target.shape.join(", ")}]`,
  );
  check(
    weight === undefined || (weight.dim() <= 1 && weight.numel() === scores.shape[1]),
    () =>
      `inconsistent weight size, expected ${scores.shape[1]!} but got [${weight!.shape.join(", ")}]`,
  );
  const index = target.reshape(-1, 1);
  const distances = scores.sub(gather(scores, 1, index)).add(margin);
  // NaN is no violation of a margin.
  const violations = where(distances.gt(0), distances, 0);
  const powers = p === 1 ? violations : violations.mul(violations);
  const weighted =
    weight === undefined
      ? powers
      : powers.mul(weight.index_select(0, target.reshape(-1)).unsqueeze(1));
  // The target's own distance is the margin, and does not count.
  const others = weighted.scatter(1, index, zeros_like(index, { dtype: input.dtype }));
  const losses = others.sum(1).div(scores.shape[1]!);
  return reduced(input.dim() === 2 ? losses : losses.reshape([]), options);
}

export function poisson_nll_loss(
  input: Tensor,
  target: Tensor,
  {
    log_input = true,
    full: whole = false,
    eps = 1e-8,
    ...options
  }: Reduced & { log_input?: boolean; full?: boolean; eps?: number } = {},
): Tensor {
  let losses = log_input
    ? input.exp().sub(target.mul(input))
    : input.sub(target.mul(input.add(eps).log()));
  if (whole) {
    // Stirling's approximation of log(target!).
    const last = target
      .mul(2 * Math.PI)
      .log()
      .mul(0.5);
    const term = target.mul(target.log()).sub(target).add(last);
    losses = losses.add(term.masked_fill(target.le(1), 0));
  }
  return reduced(losses, options);
}

/** `variance` has the shape of the input, or one value where the input has a row. */
export function gaussian_nll_loss(
  input: Tensor,
  target: Tensor,
  variance: Tensor,
  { full: whole = false, eps = 1e-6, ...options }: Reduced & { full?: boolean; eps?: number } = {},
): Tensor {
  let own = variance;
  if (own.shape.join() !== input.shape.join()) {
    if (own.shape.join() === input.shape.slice(0, -1).join()) {
      own = own.unsqueeze(-1);
    } else {
      check(
        own.dim() === input.dim() &&
          own.shape.every((size, d) => size === input.shape[d] || size === 1),
        () => "var is of incorrect size",
      );
    }
  }
  requireTrue("gaussian_nll_loss", own.lt(0).logical_not(), "var has negative entry/entries");
  // The bound has no influence on the gradient.
  const bounded = own.add(own.detach().clamp_min(eps).sub(own.detach()));
  const distance = input.sub(target);
  const losses = bounded.log().add(distance.mul(distance).div(bounded)).mul(0.5);
  return reduced(whole ? losses.add(0.5 * Math.log(2 * Math.PI)) : losses, options);
}

/** softmax(query @ key.T / sqrt(width)) @ value */
export function scaled_dot_product_attention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  attn_mask?: Tensor,
  dropout_p = 0,
  is_causal = false,
  { scale }: { scale?: number } = {},
): Tensor {
  if (query.dtype === "float16") {
    // Scores keep more digits than float16 has, as in fused attention.
    return scaled_dot_product_attention(
      ...([query.float(), key.float(), value.float()] as const),
      ...([attn_mask?.dtype === "float16" ? attn_mask.float() : attn_mask] as const),
      ...([dropout_p, is_causal, scale === undefined ? {} : { scale }] as const),
    ).half();
  }
  const width = query.shape.at(-1)!;
  let scores = query.mul(scale ?? 1 / Math.sqrt(width)).matmul(key.transpose(-2, -1));
  check(
    !is_causal || attn_mask === undefined,
    () => "Explicit attn_mask should not be set when is_causal=True",
  );
  const mask = is_causal
    ? tril(ones([query.shape.at(-2)!, key.shape.at(-2)!], { dtype: "bool" }))
    : attn_mask;
  if (mask !== undefined) {
    check(
      mask.dtype === "bool" || mask.dtype === scores.dtype,
      () =>
        "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: " +
        `${mask.dtype} and query.dtype: ${query.dtype} instead.`,
    );
    const wide = mask.expand(scores.shape);
    scores =
      mask.dtype === "bool" ? scores.masked_fill(wide.logical_not(), -Infinity) : scores.add(wide);
    // A row without any key has no weights, where softmax would divide by zero.
    const none = scores.detach().eq(-Infinity).all(-1, true);
    const weights = softmax(scores.masked_fill(none, 0), -1).masked_fill(none, 0);
    return dropout(weights, dropout_p).matmul(value);
  }
  const weights = softmax(scores, -1);
  return dropout(weights, dropout_p).matmul(value);
}
