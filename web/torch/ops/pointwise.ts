// Elementwise operators by PyTorch's names, on the rows of csrc/ops/pointwise/rows.yaml.
import { isFloating, promote, resultType, type DType, type Scalar } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { record, records, saved } from "../autograd";
import { shaderDType } from "../launch";
import { Tensor } from "../tensor";
import { pointwiseRows } from "../wgsl/data";
import { bitsOf } from "../wgsl/dtypes";
import { broadcastShapes } from "./collapse";
import {
  copyInto,
  dispatchRow,
  elementwise,
  isIntegralOrBool,
  isTensor,
  nodeName,
  refuseInPlace,
  type Operand,
} from "./elementwise";
import { formulas } from "../gradients";
import { full } from "./factory";
import { checkBeside, checkWritable } from "./memory";
import { chunk } from "./movement";

type Unary = (self: Tensor) => Tensor;
type Binary = (self: Tensor, other: Operand) => Tensor;
type OfTensors = (self: Tensor, other: Tensor) => Tensor;
type InPlaceUnary = (self: Tensor) => Tensor;
type InPlaceBinary = (self: Tensor, other: Operand) => Tensor;

const UNARY_FLOAT = [
  ...["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc"],
  ...["erfinv", "exp", "exp2", "expm1", "i0", "lgamma", "log", "log10", "log1p", "log2"],
  ...["reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh"],
] as const satisfies string[];
const UNARY_SAME = ["abs", "ceil", "floor", "frac", "neg", "round", "trunc"] as const;
const UNARY_SPECIAL = [
  ...["special_entr", "special_erfcx", "special_i0e", "special_i1", "special_i1e"],
  ...["special_log_ndtr", "special_ndtri", "special_bessel_j0", "special_bessel_j1"],
  ...["special_bessel_y0", "special_bessel_y1", "special_modified_bessel_i0"],
  ...["special_modified_bessel_i1", "special_modified_bessel_k0", "special_modified_bessel_k1"],
  ...["special_spherical_bessel_j0", "special_airy_ai"],
] as const satisfies string[];
const UNARY_ACTIVATION = ["hardsigmoid", "hardswish", "mish", "silu"] as const;
const UNARY_BOOL = ["isneginf", "isposinf", "logical_not", "signbit"] as const;

type UnaryName =
  | (typeof UNARY_FLOAT)[number]
  | (typeof UNARY_SAME)[number]
  | (typeof UNARY_SPECIAL)[number]
  | (typeof UNARY_ACTIVATION)[number]
  | (typeof UNARY_BOOL)[number];

const COMPARE = ["eq", "ge", "gt", "le", "lt", "ne"] as const;
const LOGICAL = ["logical_and", "logical_or", "logical_xor"] as const;
const BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"] as const;
const BINARY_SAME = [
  "fmax",
  "fmin",
  "fmod",
  "gcd",
  "hypot",
  "lcm",
  "logaddexp",
  "logaddexp2",
] as const;
const BINARY_FLOAT = ["atan2", "copysign", "xlogy"] as const;

type BinaryName =
  | (typeof COMPARE)[number]
  | (typeof LOGICAL)[number]
  | (typeof BITWISE)[number]
  | (typeof BINARY_SAME)[number]
  | (typeof BINARY_FLOAT)[number]
  | "heaviside"
  | "maximum"
  | "minimum"
  | "nextafter"
  | "remainder";

/** `"add_cpu" not implemented for 'Bool'`, as PyTorch says it. */
export function refuseBool(self: Tensor, label: string): void {
  if (self.dtype === "bool") {
    throw new NotImplementedError(`"${label}" not implemented for 'Bool'`);
  }
}

function table<Name extends string, F>(
  names: readonly Name[],
  make: (name: Name) => F,
): Record<Name, F> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<Name, F>;
}

type UnaryOut = (self: Tensor, out?: Tensor) => Tensor;

const unaryWithOut: Record<UnaryName, UnaryOut> = {
  ...table(
    UNARY_FLOAT,
    (name): UnaryOut =>
      (self, out) =>
        elementwise(name, [self], { promotion: "float", ...(out && { out }) }),
  ),
  ...table(
    UNARY_SPECIAL,
    (name): UnaryOut =>
      (self, out) =>
        elementwise(name, [self], { promotion: "float", ...(out && { out }) }),
  ),
  ...table(UNARY_SAME, (name): UnaryOut => (self, out) => {
    refuseBool(self, name);
    return elementwise(name, [self], out && { out });
  }),
  ...table(UNARY_ACTIVATION, (name): UnaryOut => (self, out) => {
    return elementwise(name, [self], out && { out });
  }),
  ...table(
    UNARY_BOOL,
    (name): UnaryOut =>
      (self, out) =>
        elementwise(name, [self], out && { out }),
  ),
};

/** Unary operators by name. */
export const unary = Object.fromEntries(
  Object.entries(unaryWithOut).map(([name, op]) => [name, (self: Tensor) => op(self)]),
) as Record<UnaryName, Unary>;

type UnaryInPlaceName =
  `${Exclude<UnaryName, (typeof UNARY_SPECIAL)[number] | (typeof UNARY_BOOL)[number]>}_`;

/** exp_ and its like. */
export const unaryInPlace = Object.fromEntries(
  [...UNARY_FLOAT, ...UNARY_SAME, ...UNARY_ACTIVATION].map((name) => [
    `${name}_`,
    (self: Tensor) => unaryWithOut[name](self, self),
  ]),
) as Record<UnaryInPlaceName, InPlaceUnary>;

type BinaryOut = (self: Operand, other: Operand, out?: Tensor) => Tensor;

const common = (self: Operand, other: Operand): DType =>
  resultType([self, other].map((t) => (isTensor(t) ? { dtype: t.dtype, dim: t.dim() } : t)));

const plainBinary =
  (name: string, promotion: "same" | "float"): BinaryOut =>
  (self, other, out) =>
    elementwise(name, [self, other], { promotion, ...(out && { out }) });

const noBool =
  (name: string): BinaryOut =>
  (self, other, out) => {
    if (common(self, other) === "bool") {
      throw new NotImplementedError(`"${name}" not implemented for 'Bool'`);
    }
    return elementwise(name, [self, other], out && { out });
  };

const binaryWithOut: Record<BinaryName, BinaryOut> = {
  ...table(COMPARE, (name) => plainBinary(name, "same")),
  ...table(LOGICAL, (name) => plainBinary(name, "same")),
  ...table(BITWISE, (name) => plainBinary(name, "same")),
  ...table(BINARY_SAME, (name) => noBool(name)),
  ...table(BINARY_FLOAT, (name) => plainBinary(name, "float")),
  heaviside: (self, other, out) => {
    check(
      !isTensor(self) || !isTensor(other) || self.dtype === other.dtype,
      () => "heaviside is not yet implemented for tensors with different dtypes.",
    );
    return elementwise("heaviside", [self, other], out && { out });
  },
  maximum: plainBinary("maximum", "same"),
  minimum: plainBinary("minimum", "same"),
  nextafter: noBool("nextafter"),
  remainder: noBool("remainder"),
};

/** Those whose other operand may be a number. */
type WithNumbers =
  (typeof COMPARE)[number] | (typeof BITWISE)[number] | "copysign" | "fmod" | "remainder" | "xlogy";

/** Binary operators by name. */
export const binary = Object.fromEntries(
  Object.entries(binaryWithOut).map(([name, op]) => [
    name,
    (self: Tensor, other: Operand) => op(self, other),
  ]),
) as Record<WithNumbers, Binary> & Record<Exclude<BinaryName, WithNumbers>, OfTensors>;

type BinaryInPlaceName =
  `${(typeof BITWISE)[number] | "fmod" | "remainder" | "atan2" | "copysign"}_`;

export const binaryInPlace = Object.fromEntries(
  [...BITWISE, "fmod" as const, "remainder" as const, "atan2" as const, "copysign" as const].map(
    (name) => [
      `${name}_`,
      (self: Tensor, other: Operand) => binaryWithOut[name](self, other, self),
    ],
  ),
) as Record<Exclude<BinaryInPlaceName, "atan2_">, InPlaceBinary> & Record<"atan2_", OfTensors>;

// ---- Arithmetic ----

export interface Alpha {
  alpha?: number;
}

function sum(
  label: string,
  self: Operand,
  other: Operand,
  alpha: number,
  out?: Tensor,
  formula = "add",
): Tensor {
  const dtype = common(self, other);
  check(
    isFloating(dtype) || Number.isInteger(alpha),
    () => "For integral input tensors, argument alpha must not be a floating point number.",
  );
  return elementwise("add", [self, other], {
    label,
    formula,
    scalars: [alpha],
    ...(out && { out }),
  });
}

export const add = (self: Tensor, other: Operand, { alpha = 1 }: Alpha = {}): Tensor =>
  sum("add", self, other, alpha);
export const add_ = (self: Tensor, other: Operand, { alpha = 1 }: Alpha = {}): Tensor =>
  sum("add", self, other, alpha, self);

function noBoolSub(self: Operand, other: Operand): void {
  for (const operand of [self, other]) {
    check(
      !(isTensor(operand) ? operand.dtype === "bool" : typeof operand === "boolean"),
      () =>
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to " +
        "invert a mask, use the `~` or `logical_not()` operator instead.",
    );
  }
}

export function sub(self: Tensor, other: Operand, { alpha = 1 }: Alpha = {}): Tensor {
  noBoolSub(self, other);
  return sum("sub", self, other, -alpha);
}
export function sub_(self: Tensor, other: Operand, { alpha = 1 }: Alpha = {}): Tensor {
  noBoolSub(self, other);
  return sum("sub", self, other, -alpha, self);
}
/** other - self */
export function rsub(self: Tensor, other: Operand): Tensor {
  noBoolSub(self, other);
  const one = isTensor(other) ? other : isFloating(self.dtype) ? Number(other) : other;
  return isTensor(one)
    ? sub(one, self)
    : elementwise("add", [one, self], { label: "rsub", scalars: [-1] });
}

export const mul = (self: Tensor, other: Operand): Tensor => elementwise("mul", [self, other]);
export const mul_ = (self: Tensor, other: Operand): Tensor =>
  elementwise("mul", [self, other], { out: self });

export interface Rounding {
  rounding_mode?: "floor" | "trunc" | undefined;
}

function divide(self: Tensor, other: Operand, { rounding_mode }: Rounding, out?: Tensor): Tensor {
  const target = out && { out };
  switch (rounding_mode) {
    case undefined:
      return elementwise("div_true", [self, other], {
        label: "div",
        promotion: "float",
        ...target,
      });
    case "floor":
    case "trunc":
      if (common(self, other) === "bool") {
        throw new NotImplementedError(`"div_${rounding_mode}" not implemented for 'Bool'`);
      }
      return elementwise(`div_${rounding_mode}`, [self, other], target);
    default:
      throw new TypeError(
        `div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '${String(rounding_mode)}'`,
      );
  }
}

export const div = (self: Tensor, other: Operand, options: Rounding = {}): Tensor =>
  divide(self, other, options);
export const div_ = (self: Tensor, other: Operand, options: Rounding = {}): Tensor =>
  divide(self, other, options, self);
export const true_divide = (self: Tensor, other: Operand): Tensor => div(self, other);
export const floor_divide = (self: Tensor, other: Operand): Tensor =>
  div(self, other, { rounding_mode: "floor" });

function power(self: Operand, exponent: Operand, out?: Tensor): Tensor {
  const target = out && { out };
  const dtype = common(self, exponent);
  if (dtype === "bool") {
    throw new NotImplementedError(`"pow" not implemented for 'Bool'`);
  }
  if (isTensor(exponent) || !isTensor(self)) {
    return elementwise("pow_tensor_tensor", [self, exponent], { label: "pow", ...target });
  }
  check(
    isFloating(dtype) || Number(exponent) >= 0,
    () => "Integers to negative integer powers are not allowed.",
  );
  if (exponent === 1 && self.dtype === dtype) {
    return elementwise("mul", [self, 1], { label: "pow", ...target });
  }
  const compute = dtype;
  return elementwise("pow_tensor_scalar", [self], {
    ...{ label: "pow", scalars: [exponent], compute },
    ...target,
  });
}

/** Either operand may be a number. */
export const pow = (self: Operand, exponent: Operand): Tensor => power(self, exponent);
export const pow_ = (self: Tensor, exponent: Operand): Tensor => power(self, exponent, self);
export const square = (self: Tensor): Tensor => {
  refuseBool(self, "square");
  return power(self, 2);
};
export const float_power = (self: Tensor, exponent: Operand): Tensor => {
  void [self, exponent];
  throw new NotImplementedError("float_power(): it gives float64, which WGSL does not have");
};
export const positive = (self: Tensor): Tensor => {
  check(self.dtype !== "bool", () => "The `+` operator, on a bool tensor is not supported.");
  return self;
};

export function sign(self: Tensor): Tensor {
  return self.dtype === "bool" ? self.clone() : elementwise("sign", [self]);
}

export interface Value {
  value?: number;
}

export const addcmul = (
  self: Tensor,
  tensor1: Tensor,
  tensor2: Tensor,
  { value = 1 }: Value = {},
): Tensor => elementwise("addcmul", [self, tensor1, tensor2], { scalars: [value] });
export const addcmul_ = (
  self: Tensor,
  tensor1: Tensor,
  tensor2: Tensor,
  { value = 1 }: Value = {},
): Tensor => elementwise("addcmul", [self, tensor1, tensor2], { scalars: [value], out: self });

function noIntegerAddcdiv(tensor1: Tensor, tensor2: Tensor): void {
  check(
    !(isIntegralOrBool(tensor1.dtype) && isIntegralOrBool(tensor2.dtype)),
    () => "Integer division with addcdiv is no longer supported",
  );
}

export function addcdiv(
  self: Tensor,
  tensor1: Tensor,
  tensor2: Tensor,
  { value = 1 }: Value = {},
): Tensor {
  noIntegerAddcdiv(tensor1, tensor2);
  return elementwise("addcdiv", [self, tensor1, tensor2], { scalars: [value] });
}
export function addcdiv_(
  self: Tensor,
  tensor1: Tensor,
  tensor2: Tensor,
  { value = 1 }: Value = {},
): Tensor {
  noIntegerAddcdiv(tensor1, tensor2);
  return elementwise("addcdiv", [self, tensor1, tensor2], { scalars: [value], out: self });
}

function checkEnd(self: Tensor, end: Tensor): void {
  check(
    self.dtype === end.dtype,
    () => `expected dtype ${self.dtype} for \`end\` but got dtype ${end.dtype}`,
  );
}

function lerpOf(self: Tensor, end: Tensor, weight: Operand, out?: Tensor): Tensor {
  checkEnd(self, end);
  if (!isTensor(weight)) {
    const options = { label: "lerp", scalars: [weight], out };
    return elementwise("lerp_kernel_scalar_weight", [self, end], options);
  }
  // A weight without dimensions is promoted as a number is.
  check(
    weight.dim() === 0 || weight.dtype === self.dtype,
    () => `expected dtype ${self.dtype} for \`weight\` but got dtype ${weight.dtype}`,
  );
  return elementwise("lerp_kernel_tensor_weight", [self, end, weight], { label: "lerp", out });
}
export const lerp = (self: Tensor, end: Tensor, weight: Operand): Tensor =>
  lerpOf(self, end, weight);
export const lerp_ = (self: Tensor, end: Tensor, weight: Operand): Tensor =>
  lerpOf(self, end, weight, self);

export const bitwise_not = (self: Tensor): Tensor => elementwise("bitwise_not", [self]);
const shifted = (row: string, label: string, self: Tensor, other: Operand): Tensor => {
  const dtype = common(self, other);
  if (isFloating(dtype)) {
    throw new NotImplementedError(`"${label}" not implemented for floating point dtypes`);
  }
  if (dtype === "bool") {
    throw new NotImplementedError(`"${label}" not implemented for 'Bool'`);
  }
  return elementwise(row, [self, other], { label });
};
export const bitwise_left_shift = (self: Tensor, other: Operand): Tensor =>
  shifted("lshift", "bitwise_left_shift", self, other);
export const bitwise_right_shift = (self: Tensor, other: Operand): Tensor =>
  shifted("rshift", "bitwise_right_shift", self, other);

// ---- Extremes and tests ----

function clampTo(self: Tensor, min?: Operand, max?: Operand, out?: Tensor): Tensor {
  refuseBool(self, "clamp");
  check(
    min !== undefined || max !== undefined,
    () => "torch.clamp: At least one of 'min' or 'max' must not be None",
  );
  const target = { label: "clamp", ...(out && { out }) };
  if (min !== undefined && max !== undefined && (isTensor(min) || isTensor(max))) {
    const tensorOf = (bound: Operand): Tensor =>
      isTensor(bound) ? bound : full([], bound, { dtype: resultType([self, bound].map(typed)) });
    return elementwise("clamp", [self, tensorOf(min), tensorOf(max)], target);
  }
  if (min !== undefined && isTensor(min)) {
    return elementwise("maximum", [self, min], { ...target, formula: "clamp_min" });
  }
  if (max !== undefined && isTensor(max)) {
    return elementwise("minimum", [self, max], { ...target, formula: "clamp_max" });
  }
  const compute = resultType(
    [self, ...[min, max].filter((bound) => bound !== undefined)].map(typed),
  );
  if (min !== undefined && max !== undefined) {
    return elementwise("clamp_scalar", [self], {
      ...{ ...target, compute, scalars: [min as Scalar, max as Scalar] },
    });
  }
  return min !== undefined
    ? elementwise("clamp_min_scalar", [self], { ...target, compute, scalars: [min as Scalar] })
    : elementwise("clamp_max_scalar", [self], { ...target, compute, scalars: [max as Scalar] });
}

const typed = (t: Operand): { dtype: DType; dim: number } | Scalar =>
  isTensor(t) ? { dtype: t.dtype, dim: t.dim() } : t;

export const clamp = (self: Tensor, min?: Operand, max?: Operand): Tensor =>
  clampTo(self, min, max);
export const clamp_ = (self: Tensor, min?: Operand, max?: Operand): Tensor =>
  clampTo(self, min, max, self);
export const clip = clamp;
export const clamp_min = (self: Tensor, min: Operand): Tensor => clampTo(self, min);
export const clamp_max = (self: Tensor, max: Operand): Tensor => clampTo(self, undefined, max);

export const isnan = (self: Tensor): Tensor => elementwise("ne", [self, self], { label: "isnan" });
export const isinf = (self: Tensor): Tensor =>
  isFloating(self.dtype) ? unary.abs(self.detach()).eq(Infinity) : self.ne(self);
export const isfinite = (self: Tensor): Tensor =>
  isFloating(self.dtype) ? unary.abs(self.detach()).lt(Infinity) : self.eq(self);

export function nan_to_num(self: Tensor, nan = 0, posinf?: number, neginf?: number): Tensor {
  if (!isFloating(self.dtype)) {
    return self.clone();
  }
  const largest = self.dtype === "float16" ? 65504 : 3.4028234663852886e38;
  // Numbers beyond float32 are infinite here, where other operators refuse them.
  const scalars = [nan, posinf ?? largest, neginf ?? -largest].map(Math.fround);
  return elementwise("nan_to_num", [self], { scalars });
}

// ---- Selection ----

/** Elements of `self` where the condition holds, of `other` elsewhere. */
export function where(condition: Tensor, self: Operand, other: Operand): Tensor {
  check(
    condition.dtype === "bool",
    () =>
      `where expected condition to be a boolean tensor, but got a tensor with dtype ${condition.dtype}`,
  );
  const dtype = common(self, other);
  const wide = [self, other].map((t) =>
    isTensor(t) ? (t.dtype === dtype ? t : t.to(dtype)) : full([], t, { dtype }),
  ) as [Tensor, Tensor];
  const shape = broadcastShapes(condition.shape, wide[0].shape, wide[1].shape);
  const out = Tensor.empty(shape, dtype);
  const bits = bitsOf(shaderDType(out));
  dispatchRow(
    "where",
    "where",
    pointwiseRows.where!,
    bits,
    { tensor: out, dtype: bits },
    [{ value: condition }, ...wide.map((value) => ({ value, dtype: bits }))],
    [],
  );
  if (!records(wide)) {
    return out;
  }
  const [, first, second] = formulas().where!;
  const chosen = saved(condition);
  const context = {
    get a() {
      return chosen();
    },
  } as never;
  return record(out, nodeName("where"), wide, (g) => [first!(g, context), second!(g, context)]);
}

function fillMasked(self: Tensor, mask: Tensor, value: Operand, out?: Tensor): Tensor {
  check(
    mask.dtype === "bool",
    () => `masked_fill_ only supports boolean masks, but got mask with dtype ${mask.dtype}`,
  );
  if (isTensor(value)) {
    check(
      value.dim() === 0,
      () =>
        `masked_fill only supports a 0-dimensional value tensor, but got tensor with ${value.dim()} dimension(s).`,
    );
    if (out !== undefined && records([out, value])) {
      refuseInPlace(out, "masked_fill");
    }
    const chosen = where(mask, value.to(self.dtype), self);
    if (out === undefined) {
      return chosen;
    }
    checkWritable(out, "masked_fill_");
    checkBeside(out, mask, "masked_fill_");
    copyInto(out, chosen);
    return out;
  }
  return elementwise("masked_fill", [self, mask], {
    ...{ scalars: [value], compute: self.dtype, ...(out && { out }) },
  });
}

export const masked_fill = (self: Tensor, mask: Tensor, value: Operand): Tensor =>
  fillMasked(self, mask, value);
export const masked_fill_ = (self: Tensor, mask: Tensor, value: Operand): Tensor =>
  fillMasked(self, mask, value, self);

// ---- Special functions ----

export function polygamma(n: number, self: Tensor): Tensor {
  check(n >= 0, () => "polygamma(n, x) does not support negative n.");
  return elementwise("polygamma", [self], { scalars: [n], promotion: "float" });
}
export const igamma = (self: Tensor, other: Tensor): Tensor => elementwise("igamma", [self, other]);
export const igammac = (self: Tensor, other: Tensor): Tensor =>
  elementwise("igammac", [self, other]);
export const special_zeta = (self: Tensor, other: Operand): Tensor =>
  elementwise("zeta", [self, other], { promotion: "float" });
export const special_xlog1py = (self: Tensor, other: Operand): Tensor =>
  elementwise("xlog1py", [self, other], { promotion: "float" });
export const logit = (self: Tensor, eps?: number): Tensor =>
  elementwise("logit", [self], { scalars: [eps ?? -1], promotion: "float" });
export const ldexp = (self: Tensor, other: Tensor): Tensor =>
  mul(self, elementwise("pow_tensor_tensor", [2.0, other], { promotion: "float", label: "ldexp" }));

// ---- Activations ----

export const relu = (self: Tensor): Tensor => {
  check(self.dtype !== "bool", () => "Boolean inputs not supported for relu");
  return elementwise("clamp_min_scalar", [self], { label: "relu", formula: "relu", scalars: [0] });
};
export const relu_ = (self: Tensor): Tensor =>
  elementwise("clamp_min_scalar", [self], { label: "relu", scalars: [0], out: self });
export const hardtanh = (self: Tensor, min_val = -1, max_val = 1): Tensor => {
  refuseBool(self, "hardtanh");
  if (min_val > max_val) {
    throw new RangeError("min_val cannot be greater than max_val");
  }
  return elementwise("clamp_scalar", [self], {
    ...{ label: "hardtanh", formula: "hardtanh", scalars: [min_val, max_val] },
  });
};
export const relu6 = (self: Tensor): Tensor => hardtanh(self, 0, 6);
export const gelu = (self: Tensor, approximate: "none" | "tanh" = "none"): Tensor => {
  check(
    ["none", "tanh"].includes(approximate),
    () => "approximate argument must be either none or tanh.",
  );
  return elementwise(approximate === "tanh" ? "gelu_tanh" : "gelu", [self], { label: "gelu" });
};
export const elu = (self: Tensor, alpha = 1): Tensor =>
  elementwise("elu", [self], { scalars: [alpha, 1, 1] });
export const celu = (self: Tensor, alpha = 1): Tensor => {
  check(alpha !== 0, () => "ZeroDivisionError: alpha cannot be 0 for CELU");
  return elementwise("elu", [self], { label: "celu", scalars: [alpha, 1, 1 / alpha] });
};
const SELU_ALPHA = 1.6732632423543772;
const SELU_SCALE = 1.0507009873554805;
export const selu = (self: Tensor): Tensor =>
  elementwise("elu", [self], { label: "selu", scalars: [SELU_ALPHA, SELU_SCALE, 1] });
export const leaky_relu = (self: Tensor, negative_slope = 0.01): Tensor =>
  elementwise("leaky_relu", [self], { scalars: [negative_slope] });
export const softplus = (self: Tensor, beta = 1, threshold = 20): Tensor =>
  elementwise("softplus", [self], { scalars: [beta, threshold] });
export const threshold = (self: Tensor, bound: number, value: number): Tensor =>
  elementwise("threshold", [self, self.detach()], { scalars: [bound, value] });
export const hardshrink = (self: Tensor, lambd = 0.5): Tensor =>
  elementwise("hardshrink", [self], { scalars: [lambd] });
export const softshrink = (self: Tensor, lambd = 0.5): Tensor => {
  check(lambd >= 0, () => `lambda must be in range [0, Infinity], but found ${lambd}`);
  return elementwise("softshrink", [self], { scalars: [lambd] });
};
export const tanhshrink = (self: Tensor): Tensor => sub(self, unary.tanh(self));
export const softsign = (self: Tensor): Tensor => div(self, unary.abs(self).add(1));
export const logsigmoid = (self: Tensor): Tensor =>
  elementwise("log_sigmoid", [self], { label: "logsigmoid" });
export function glu(self: Tensor, dim = -1): Tensor {
  const d = self.wrapDim(dim);
  check(
    self.dim() > 0 && self.shape[d]! % 2 === 0,
    () => `Halving dimension must be even, but dimension ${d} is size ${String(self.shape[d])}`,
  );
  const [a, b] = chunk(self, 2, d) as [Tensor, Tensor];
  return elementwise("glu", [a, b]);
}
export function prelu(self: Tensor, weight: Tensor): Tensor {
  check(
    self.dtype === weight.dtype,
    () => `prelu: Type promoting not supported. Got ${self.dtype} and ${weight.dtype}`,
  );
  check(self.dim() > 0 || weight.numel() === 1, () => "Not allow zero-dim input tensor.");
  const channels = self.dim() > 1 ? self.shape[1]! : 1;
  check(
    weight.numel() === 1 || weight.numel() === channels,
    () =>
      `Mismatch of parameter numbers and input channel size. Found parameter numbers = ${weight.numel()} and ` +
      `channel size = ${channels}.`,
  );
  const spread =
    weight.numel() === 1
      ? weight.reshape([])
      : weight.reshape([-1, ...new Array<number>(Math.max(self.dim() - 2, 0)).fill(1)]);
  return elementwise("prelu", [self, spread]);
}

// ---- Conversion and filling ----

/** The tensor in another dtype; itself if it has it. */
export function to(self: Tensor, dtype: DType): Tensor {
  if (self.dtype === dtype) {
    return self;
  }
  const out = Tensor.empty(self.shape, dtype);
  copyInto(out, self, "to");
  return record(out, "ToCopyBackward0", [self], (g) => [g]);
}

export const float = (self: Tensor): Tensor => to(self, "float32");
export const half = (self: Tensor): Tensor => to(self, "float16");
export const int = (self: Tensor): Tensor => to(self, "int32");
export const long = (self: Tensor): Tensor => to(self, "int64");
export const bool = (self: Tensor): Tensor => to(self, "bool");

/** A copy with memory of its own. */
export function clone(self: Tensor): Tensor {
  const out = Tensor.empty(self.shape, self.dtype);
  copyInto(out, self, "clone");
  return record(out, "CloneBackward0", [self], (g) => [g]);
}

export const contiguous = (self: Tensor): Tensor => (self.is_contiguous() ? self : clone(self));

/** Copies `source`, which may broadcast and have another dtype, into `self`. */
export function copy_(self: Tensor, source: Tensor): Tensor {
  if (records([self, source])) {
    refuseInPlace(self, "copy");
  }
  checkWritable(self, "copy_");
  checkBeside(self, source, "copy_");
  copyInto(self, source);
  return self;
}

export function fill_(self: Tensor, value: Scalar): Tensor {
  if (records([self])) {
    refuseInPlace(self, "fill");
  }
  copyInto(self, full([], value, { dtype: self.dtype }));
  return self;
}
export const zero_ = (self: Tensor): Tensor => fill_(self, 0);

export const result_type = (a: Operand, b: Operand): DType => common(a, b);
export const promote_types = promote;
