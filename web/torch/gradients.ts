// Gradients of pointwise rows: one line a row, one formula an input. `g` is the gradient of the result. The formulas
// are made of operators that have gradients themselves, so that a gradient can be differentiated again. Broadcasting
// and dtypes are left to the tape, which sums and casts a gradient to its input.
//
// They stand here and not in csrc/ops/pointwise/rows.yaml, because PyTorch itself has these formulas for the C++
// backend (derivatives.yaml of ATen's autograd).
import type { Context } from "./ops/elementwise";
import type { Tensor } from "./tensor";
import { zeros_like } from "./ops/factory";
import * as f from "./ops/pointwise";

type Formula = (g: Tensor, x: Context) => Tensor;

const zero: Formula = (g) => zeros_like(g);
const one: Formula = (g) => g;
const TWO_OVER_ROOT_PI = 2 / Math.sqrt(Math.PI);

// 1 where the row's result comes from the first operand, 1/2 where both are equal.
const share = (chosen: Tensor, equal: Tensor): Tensor => chosen.float().add(equal.float().mul(0.5));
const where = (condition: Tensor, g: Tensor): Tensor => f.where(condition, g, 0);

export const formulas: Partial<Record<string, readonly Formula[]>> = {
  // Arithmetic
  add: [one, (g, x) => g.mul(x.s[0]!)],
  rsub: [(g) => g.neg(), one],
  mul: [(g, x) => g.mul(x.input(1)), (g, x) => g.mul(x.input(0))],
  div_true: [(g, x) => g.div(x.input(1)), (g, x) => g.neg().mul(x.a.div(x.b)).div(x.b)],
  div_floor: [zero, zero],
  div_trunc: [zero, zero],
  remainder: [one, (g, x) => g.neg().mul(f.div(x.a, x.b, { rounding_mode: "floor" }))],
  fmod: [one, (g, x) => g.neg().mul(f.div(x.a, x.b, { rounding_mode: "trunc" }))],
  pow_tensor_scalar: [
    (g, x) => (x.s[0] === 0 ? zeros_like(g) : g.mul(x.a.pow(x.s[0]! - 1).mul(x.s[0]!))),
  ],
  pow_tensor_tensor: [
    (g, x) => f.where(x.b.eq(0), 0, g.mul(x.b.mul(x.a.pow(x.b.sub(1))))),
    (g, x) => g.mul(f.where(x.a.eq(0).logical_and(x.b.ge(0)), 0, x.out.mul(x.a.log()))),
  ],
  neg: [(g) => g.neg()],
  abs: [(g, x) => g.mul(x.a.sign())],
  sign: [zero],
  reciprocal: [(g, x) => g.neg().mul(x.out.mul(x.out))],
  sqrt: [(g, x) => g.div(x.out.mul(2))],
  rsqrt: [(g, x) => g.mul(x.out.pow(3).mul(-0.5))],
  addcmul: [one, (g, x) => g.mul(x.c.mul(x.s[0]!)), (g, x) => g.mul(x.b.mul(x.s[0]!))],
  addcdiv: [
    one,
    (g, x) => g.mul(x.s[0]!).div(x.c),
    (g, x) => g.mul(-x.s[0]!).mul(x.b.div(x.c.mul(x.c))),
  ],
  hypot: [(g, x) => g.mul(x.a.div(x.out)), (g, x) => g.mul(x.b.div(x.out))],
  copysign: [(g, x) => where(x.a.ne(0), g.mul(x.a.sign()).mul(x.out.sign())), zero],
  lerp_kernel_scalar_weight: [(g, x) => g.mul(1 - x.s[0]!), (g, x) => g.mul(x.s[0]!)],
  lerp_kernel_tensor_weight: [
    (g, x) => g.mul(f.rsub(x.c, 1)),
    (g, x) => g.mul(x.c),
    (g, x) => g.mul(x.b.sub(x.a)),
  ],

  // Rounding
  ceil: [zero],
  floor: [zero],
  trunc: [zero],
  round: [zero],
  frac: [one],

  // Extremes
  maximum: [
    (g, x) => g.mul(share(x.a.gt(x.b), x.a.eq(x.b))),
    (g, x) => g.mul(share(x.b.gt(x.a), x.a.eq(x.b))),
  ],
  minimum: [
    (g, x) => g.mul(share(x.a.lt(x.b), x.a.eq(x.b))),
    (g, x) => g.mul(share(x.b.lt(x.a), x.a.eq(x.b))),
  ],
  fmax: [
    (g, x) => where(x.a.ge(x.b).logical_or(x.b.isnan()), g),
    (g, x) => where(x.a.ge(x.b).logical_or(x.b.isnan()).logical_not(), g),
  ],
  fmin: [
    (g, x) => where(x.a.le(x.b).logical_or(x.b.isnan()), g),
    (g, x) => where(x.a.le(x.b).logical_or(x.b.isnan()).logical_not(), g),
  ],
  clamp: [
    (g, x) => where(x.a.ge(x.b).logical_and(x.a.le(x.c)), g),
    (g, x) => where(x.a.lt(x.b).logical_and(x.b.lt(x.c)), g),
    (g, x) => where(x.a.gt(x.c).logical_or(x.c.lt(x.b)), g),
  ],
  clamp_scalar: [(g, x) => where(x.a.ge(x.s[0]!).logical_and(x.a.le(x.s[1]!)), g)],
  clamp_min_scalar: [(g, x) => where(x.a.ge(x.s[0]!), g)],
  clamp_max_scalar: [(g, x) => where(x.a.le(x.s[0]!), g)],
  clamp_min_tensor: [(g, x) => where(x.a.ge(x.b), g), (g, x) => where(x.a.lt(x.b), g)],
  clamp_max_tensor: [(g, x) => where(x.a.le(x.b), g), (g, x) => where(x.a.gt(x.b), g)],
  relu: [(g, x) => where(x.out.le(0).logical_not(), g)],
  hardtanh: [(g, x) => where(x.a.gt(x.s[0]!).logical_and(x.a.lt(x.s[1]!)), g)],

  // Exponentials, logarithms, trigonometry
  exp: [(g, x) => g.mul(x.out)],
  exp2: [(g, x) => g.mul(x.out.mul(Math.LN2))],
  expm1: [(g, x) => g.mul(x.out.add(1))],
  log: [(g, x) => g.div(x.a)],
  log2: [(g, x) => g.div(x.a.mul(Math.LN2))],
  log10: [(g, x) => g.div(x.a.mul(Math.LN10))],
  log1p: [(g, x) => g.div(x.a.add(1))],
  logaddexp: [(g, x) => g.mul(x.a.sub(x.b).sigmoid()), (g, x) => g.mul(x.b.sub(x.a).sigmoid())],
  logaddexp2: [
    (g, x) => g.mul(x.a.sub(x.b).mul(Math.LN2).sigmoid()),
    (g, x) => g.mul(x.b.sub(x.a).mul(Math.LN2).sigmoid()),
  ],
  xlogy: [
    (g, x) => where(x.a.eq(0).logical_and(x.b.le(0)).logical_not(), g.mul(x.b.log())),
    (g, x) => g.mul(x.a.div(x.b)),
  ],
  xlog1py: [
    (g, x) => where(x.a.eq(0).logical_and(x.b.le(-1)).logical_not(), g.mul(x.b.log1p())),
    (g, x) => g.mul(x.a.div(x.b.add(1))),
  ],
  sin: [(g, x) => g.mul(x.a.cos())],
  cos: [(g, x) => g.mul(x.a.sin().neg())],
  tan: [(g, x) => g.mul(x.out.mul(x.out).add(1))],
  asin: [(g, x) => g.mul(f.rsub(x.a.mul(x.a), 1).rsqrt())],
  acos: [(g, x) => g.neg().mul(f.rsub(x.a.mul(x.a), 1).rsqrt())],
  atan: [(g, x) => g.div(x.a.mul(x.a).add(1))],
  // Zero at the origin, as PyTorch has it.
  atan2: [(g, x) => g.mul(angleSlope(x, x.b)), (g, x) => g.mul(angleSlope(x, x.a.neg()))],
  sinh: [(g, x) => g.mul(x.a.cosh())],
  cosh: [(g, x) => g.mul(x.a.sinh())],
  tanh: [(g, x) => g.mul(f.rsub(x.out.mul(x.out), 1))],
  asinh: [(g, x) => g.mul(x.a.mul(x.a).add(1).rsqrt())],
  acosh: [(g, x) => g.mul(x.a.mul(x.a).sub(1).rsqrt())],
  atanh: [(g, x) => g.div(f.rsub(x.a.mul(x.a), 1))],
  sinc: [
    (g, x) => {
      const angle = x.a.mul(Math.PI);
      const slope = angle.cos().mul(angle).sub(angle.sin()).div(x.a.mul(angle));
      return g.mul(where(x.a.ne(0), slope));
    },
  ],
  erf: [(g, x) => g.mul(x.a.mul(x.a).neg().exp().mul(TWO_OVER_ROOT_PI))],
  erfc: [(g, x) => g.mul(x.a.mul(x.a).neg().exp().mul(-TWO_OVER_ROOT_PI))],
  erfinv: [(g, x) => g.mul(x.out.mul(x.out).exp().div(TWO_OVER_ROOT_PI))],
  lgamma: [(g, x) => g.mul(x.a.digamma())],
  digamma: [(g, x) => g.mul(f.polygamma(1, x.a))],
  i0: [(g, x) => g.mul(f.unary.special_i1(x.a))],
  special_i0e: [(g, x) => g.mul(f.unary.special_i1e(x.a).sub(x.a.sign().mul(x.out)))],
  special_entr: [(g, x) => g.mul(x.a.log().add(1).neg())],
  special_ndtri: [
    (g, x) =>
      g.mul(
        x.out
          .mul(x.out)
          .div(2)
          .exp()
          .mul(Math.sqrt(2 * Math.PI)),
      ),
  ],

  // Activations
  sigmoid: [(g, x) => g.mul(x.out).mul(f.rsub(x.out, 1))],
  log_sigmoid: [(g, x) => g.mul(x.a.neg().sigmoid())],
  logit: [(g, x) => logitGradient(g, x)],
  silu: [
    (g, x) => {
      const s = x.a.sigmoid();
      return g.mul(s.mul(f.rsub(s, 1).mul(x.a).add(1)));
    },
  ],
  mish: [
    (g, x) => {
      const t = f.softplus(x.a).tanh();
      const slope = x.a.mul(x.a.sigmoid()).mul(f.rsub(t.mul(t), 1));
      return g.mul(t.add(slope));
    },
  ],
  // s: the slope below zero, the scale, and the factor of the exponent
  elu: [
    (g, x) => {
      const [alpha, scale, inputScale] = [x.s[0]!, x.s[1]!, x.s[2]!];
      const below = x.a
        .mul(inputScale)
        .exp()
        .mul(inputScale * alpha * scale);
      return f.where(x.a.le(0), g.mul(below), g.mul(scale));
    },
  ],
  // s: beta, threshold
  softplus: [(g, x) => f.where(x.a.mul(x.s[0]!).gt(x.s[1]!), g, g.mul(x.a.mul(x.s[0]!).sigmoid()))],
  threshold: [(g, x) => where(x.a.gt(x.s[0]!), g), zero],
  hardsigmoid: [(g, x) => where(x.a.gt(-3).logical_and(x.a.lt(3)), g.mul(1 / 6))],
  hardswish: [(g, x) => f.where(x.a.ge(3), g, where(x.a.gt(-3), g.mul(x.a.div(3).add(0.5))))],
  hardshrink: [(g, x) => where(x.a.abs().gt(x.s[0]!), g)],
  softshrink: [(g, x) => where(x.a.abs().gt(x.s[0]!), g)],
  leaky_relu: [(g, x) => f.where(x.a.gt(0), g, g.mul(x.s[0]!))],
  prelu: [(g, x) => f.where(x.a.gt(0), g, g.mul(x.b)), (g, x) => f.where(x.a.gt(0), 0, g.mul(x.a))],
  glu: [
    (g, x) => g.mul(x.b.sigmoid()),
    (g, x) => g.mul(x.a).mul(x.b.sigmoid()).mul(f.rsub(x.b.sigmoid(), 1)),
  ],
  gelu: [
    (g, x) => {
      const cdf = x.a.mul(Math.SQRT1_2).erf().add(1).mul(0.5);
      const pdf = x.a
        .mul(x.a)
        .mul(-0.5)
        .exp()
        .mul(1 / Math.sqrt(2 * Math.PI));
      return g.mul(cdf.add(x.a.mul(pdf)));
    },
  ],
  gelu_tanh: [
    (g, x) => {
      const k = Math.sqrt(2 / Math.PI);
      const square = x.a.mul(x.a);
      const t = x.a.mul(square.mul(0.044715).add(1)).mul(k).tanh();
      const inner = square
        .mul(3 * 0.044715)
        .add(1)
        .mul(k);
      const slope = x.a
        .mul(0.5)
        .mul(f.rsub(t.mul(t), 1))
        .mul(inner);
      return g.mul(t.add(1).mul(0.5).add(slope));
    },
  ],

  // Losses
  mse: [(g, x) => g.mul(x.a.sub(x.b).mul(2)), (g, x) => g.mul(x.b.sub(x.a).mul(2))],
  // s: beta
  smooth_l1: [
    (g, x) => g.mul(smoothSlope(x.a.sub(x.b), x.s[0]!)),
    (g, x) => g.neg().mul(smoothSlope(x.a.sub(x.b), x.s[0]!)),
  ],
  // s: delta
  huber: [
    (g, x) => g.mul(f.clamp(x.a.sub(x.b), -x.s[0]!, x.s[0]!)),
    (g, x) => g.neg().mul(f.clamp(x.a.sub(x.b), -x.s[0]!, x.s[0]!)),
  ],
  binary_cross_entropy: [
    (g, x) => g.mul(x.a.sub(x.b)).div(f.rsub(x.a, 1).mul(x.a).clamp_min(1e-12)),
    (g, x) => g.mul(f.rsub(x.a, 1).log().sub(x.a.log())),
  ],

  // Selection. a is the condition of `where`, the mask is b of `masked_fill`.
  where: [zero, (g, x) => f.where(x.a, g, 0), (g, x) => f.where(x.a, 0, g)],
  masked_fill: [(g, x) => f.masked_fill(g, x.b, 0), zero],
  nan_to_num: [(g, x) => where(x.a.isfinite(), g)],
};

function smoothSlope(difference: Tensor, beta: number): Tensor {
  return beta === 0 ? difference.sign() : f.clamp(difference.div(beta), -1, 1);
}

function logitGradient(g: Tensor, x: Context): Tensor {
  const eps = x.s[0]!;
  const slope = g.div(x.a.mul(f.rsub(x.a, 1)));
  return eps < 0
    ? f.where(x.a.ge(0).logical_and(x.a.le(1)), slope, NaN)
    : where(x.a.ge(eps).logical_and(x.a.le(1 - eps)), slope);
}

function angleSlope(x: Context, numerator: Tensor): Tensor {
  const square = x.a.mul(x.a).add(x.b.mul(x.b));
  return where(square.ne(0), numerator.div(square));
}
