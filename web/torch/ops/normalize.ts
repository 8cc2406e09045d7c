// Softmax and the normalization layers (csrc/ops/softmax, csrc/ops/norm).
import { record, records, saved } from "../autograd";
import { dtypeInfo, isFloating, resultType, type DType } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { launch, rowLanes } from "../launch";
import { broadcastShapes } from "./collapse";
import { ones_like, zeros } from "./factory";
import { numelOf, Tensor } from "../tensor";

function softmaxRows(label: "softmax" | "log_softmax", self: Tensor, d: number): Tensor {
  const x = self.detach().contiguous();
  const y = Tensor.empty(self.shape, self.dtype);
  const length = self.shape[d] ?? 1;
  const inner = numelOf(self.shape.slice(d + 1));
  const rows = self.numel() === 0 ? 0 : self.numel() / length;
  const lanes = rowLanes(length, inner);
  launch({
    ...{ label, kernel: "softmax_rows", operands: { y, x } },
    consts: { math: label, alone: false, items: lanes.items },
    params: {
      ...{ rows, length, inner },
      ...{ lanes_log2: lanes.lanesLog2, lanes_first: lanes.lanesFirst ? 1 : 0 },
    },
    workgroups: lanes.workgroups(rows),
  });
  return y;
}

function softmaxOf(
  label: "softmax" | "log_softmax",
  self: Tensor,
  dim: number,
  dtype?: DType,
): Tensor {
  const from = dtype === undefined ? self : self.to(dtype);
  const d = from.wrapDim(dim);
  if (!isFloating(from.dtype)) {
    throw new NotImplementedError(
      `"${label}_lastdim_kernel_impl" not implemented for '${dtypeInfo(from.dtype).name}'`,
    );
  }
  const out = softmaxRows(label, from, d);
  const read = saved(out);
  const along = from.dim() === 0 ? undefined : d;
  return label === "softmax"
    ? record(out, "SoftmaxBackward0", [from], (g) => {
        const products = g.mul(read());
        return [products.sub(read().mul(products.sum(along, from.dim() > 0)))];
      })
    : record(out, "LogSoftmaxBackward0", [from], (g) => [
        g.sub(
          read()
            .exp()
            .mul(g.sum(along, from.dim() > 0)),
        ),
      ]);
}

export interface Typed {
  dtype?: DType;
}
export const softmax = (self: Tensor, dim: number, { dtype }: Typed = {}): Tensor =>
  softmaxOf("softmax", self, dim, dtype);
export const log_softmax = (self: Tensor, dim: number, { dtype }: Typed = {}): Tensor =>
  softmaxOf("log_softmax", self, dim, dtype);
export const softmin = (self: Tensor, dim: number): Tensor => softmax(self.neg(), dim);

function isSuffix(shape: readonly number[], of: readonly number[]): boolean {
  return shape.length > 0 && of.slice(-shape.length).join() === shape.join();
}

export function layer_norm(
  input: Tensor,
  normalized_shape: readonly number[],
  weight?: Tensor,
  bias?: Tensor,
  eps = 1e-5,
): Tensor {
  check(
    isSuffix(normalized_shape, input.shape),
    () =>
      `Given normalized_shape=[${normalized_shape.join(", ")}], expected input with shape ` +
      `[*, ${normalized_shape.join(", ")}], but got input of size[${input.shape.join(", ")}]`,
  );
  for (const one of [weight, bias]) {
    check(
      one === undefined || one.shape.join() === normalized_shape.join(),
      () => "Expected weight to be of same shape as normalized_shape",
    );
  }
  return normalized("layer_norm", input, numelOf(normalized_shape), true, eps, weight, bias);
}

export function rms_norm(
  input: Tensor,
  normalized_shape: readonly number[],
  weight?: Tensor,
  eps?: number,
): Tensor {
  check(isSuffix(normalized_shape, input.shape), () => "rms_norm: normalized_shape does not fit");
  check(
    weight === undefined || weight.shape.join() === normalized_shape.join(),
    () => "Expected weight to be of same shape as normalized_shape",
  );
  // PyTorch's default is the resolution of the type that it computes in.
  const least = eps ?? 2 ** -23;
  return normalized("rms_norm", input, numelOf(normalized_shape), false, least, weight);
}

// Rows of `length` elements to mean 0 and variance 1, or, not centered, to a root mean square of 1.
function normalized(
  label: string,
  input: Tensor,
  length: number,
  centered: boolean,
  eps: number,
  weight?: Tensor,
  bias?: Tensor,
): Tensor {
  check(isFloating(input.dtype), () => `${label}: expected a floating point dtype`);
  const rows = length === 0 ? 0 : input.numel() / length;
  const x = input.detach().contiguous();
  const y = Tensor.empty(input.shape, input.dtype);
  const mean = centered ? Tensor.empty([rows, 1], "float32") : undefined;
  const rstd = Tensor.empty([rows, 1], "float32");
  const lanes = rowLanes(length, 1);
  launch({
    ...{ label, kernel: "norm_rows" },
    operands: {
      ...{ y, mean, rstd, x },
      weight: weight?.detach().contiguous(),
      bias: bias?.detach().contiguous(),
    },
    consts: { centered, per_element: true, alone: false, items: lanes.items },
    params: {
      ...{ rows, length, lanes_log2: lanes.lanesLog2, groups: 1, channels: length, inner: 1, eps },
    },
    workgroups: lanes.workgroups(rows),
  });
  if (!records([input, weight, bias])) {
    return y;
  }
  const readInput = saved(input);
  const readWeight = weight && saved(weight);
  const shape = input.shape;
  return record(
    y,
    label === "layer_norm" ? "NativeLayerNormBackward0" : "RmsNormBackward0",
    [input, weight, bias],
    (g) => {
      // From the input, so that the gradient can be differentiated again.
      const from = readInput().float().reshape(rows, length);
      const distance = centered ? from.sub(from.mean(1, true)) : from;
      const inverse = distance.mul(distance).mean(1, true).add(eps).rsqrt();
      const unit = distance.mul(inverse);
      const up = g.float().reshape(rows, length);
      const scaled =
        readWeight === undefined ? up : up.mul(readWeight().float().reshape(1, length));
      const along = scaled.sub(unit.mul(scaled.mul(unit).mean(1, true)));
      const dx = (centered ? along.sub(scaled.mean(1, true)) : along).mul(inverse).reshape(shape);
      return [
        dx,
        weight === undefined ? undefined : up.mul(unit).sum(0).reshape(weight.shape),
        bias === undefined ? undefined : up.sum(0).reshape(bias.shape),
      ];
    },
  );
}

const channelShape = (input: Tensor): number[] => [1, -1, ...input.shape.slice(2).map(() => 1)];

/** Each channel of a batch to mean 0 and variance 1; changes the running statistics in training. */
export function batch_norm(
  input: Tensor,
  running_mean?: Tensor,
  running_var?: Tensor,
  weight?: Tensor,
  bias?: Tensor,
  training = false,
  momentum = 0.1,
  eps = 1e-5,
): Tensor {
  if (input.dim() < 2) {
    throw new NotImplementedError("batch_norm() of a tensor without channels");
  }
  if ((running_mean === undefined) !== (running_var === undefined)) {
    throw new RangeError(
      "running_mean and running_var must either both be None or neither be None",
    );
  }
  for (const [name, one] of Object.entries({ running_mean, running_var, weight, bias })) {
    check(
      one === undefined || one.numel() === input.shape[1],
      () => `${name} should contain ${input.shape[1]!} elements not ${one!.numel()}`,
    );
  }
  check(
    !training || eps > 0,
    () => `batch_norm eps must be positive during training, but got ${eps}`,
  );
  if (input.dtype === "float16") {
    // Statistics and parameters may be float32, and sums have more digits there.
    const own = [running_mean, running_var, weight, bias] as const;
    if (own.some((one) => one?.dtype === "float32")) {
      return batch_norm(input.float(), ...own, training, momentum, eps).half();
    }
  }
  check(
    training || running_mean !== undefined,
    () => "running_mean must be defined in evaluation mode",
  );
  const shape = channelShape(input);
  const dims = input.shape.map((_, d) => d).filter((d) => d !== 1);
  let mean: Tensor;
  let variance: Tensor;
  if (training || running_mean === undefined || running_var === undefined) {
    const count = numelOf(dims.map((d) => input.shape[d]!));
    check(
      count !== 1,
      () =>
        `Expected more than 1 value per channel when training, got input size [${input.shape.join(", ")}]`,
    );
    // Of no values there is none: the gradients of the parameters are zero.
    mean = count === 0 ? zeros([input.shape[1]!], { dtype: input.dtype }) : input.mean(dims);
    const distance = input.sub(mean.reshape(shape));
    variance = count === 0 ? ones_like(mean) : distance.mul(distance).mean(dims);
    if (running_mean !== undefined && running_var !== undefined && count > 0) {
      running_mean.lerp_(mean.detach(), momentum);
      running_var.lerp_(variance.detach().mul(count / (count - 1)), momentum);
    }
  } else {
    mean = running_mean;
    variance = running_var;
  }
  const scale = variance.add(eps).rsqrt();
  const factor = weight === undefined ? scale : scale.mul(weight);
  const out = input.sub(mean.reshape(shape)).mul(factor.reshape(shape));
  return bias === undefined ? out : out.add(bias.reshape(shape));
}

/** Each channel of each element of a batch to mean 0 and variance 1. */
export function instance_norm(
  input: Tensor,
  running_mean?: Tensor,
  running_var?: Tensor,
  weight?: Tensor,
  bias?: Tensor,
  use_input_stats = true,
  momentum = 0.1,
  eps = 1e-5,
): Tensor {
  const [batch, channels] = input.shape as [number, number];
  if (!use_input_stats) {
    check(
      running_mean !== undefined && running_var !== undefined,
      () => "Expected running_mean and running_var to be defined when use_input_stats is false",
    );
    return batch_norm(input, running_mean, running_var, weight, bias, false, momentum, eps);
  }
  const size = numelOf(input.shape.slice(2));
  check(
    size !== 1,
    () =>
      `Expected more than 1 spatial element when training, got input size [${input.shape.join(", ")}]`,
  );
  const wide = input.reshape([1, batch * channels, ...input.shape.slice(2)]);
  const many = (x: Tensor | undefined): Tensor | undefined => x?.repeat(batch);
  const [mean, variance] = [many(running_mean), many(running_var)];
  const own = [mean, variance, many(weight), many(bias)] as const;
  const out = batch_norm(wide, ...own, true, momentum, eps).reshape(input.shape);
  if (mean !== undefined && variance !== undefined) {
    running_mean!.copy_(mean.reshape(batch, channels).mean(0));
    running_var!.copy_(variance.reshape(batch, channels).mean(0));
  }
  return out;
}

export function group_norm(
  input: Tensor,
  num_groups: number,
  weight?: Tensor,
  bias?: Tensor,
  eps = 1e-5,
): Tensor {
  const [batch, channels] = input.shape as [number, number];
  check(
    channels % num_groups === 0,
    () =>
      `Expected number of channels in input to be divisible by num_groups, but got input of shape [${input.shape.join(", ")}] and num_groups=${num_groups}`,
  );
  const inner = (channels / num_groups) * numelOf(input.shape.slice(2));
  if (batch * inner === 1) {
    throw new RangeError(
      `Expected more than 1 value per channel when training, got input size [${input.shape.join(", ")}]`,
    );
  }
  const rows = input.reshape(batch * num_groups, inner);
  const unit = layer_norm(rows, [rows.shape[1]!], undefined, undefined, eps).reshape(input.shape);
  for (const [name, one] of Object.entries({ weight, bias })) {
    check(
      one === undefined || (one.dim() === 1 && one.numel() === channels),
      () =>
        `Expected ${name} to be a vector of size equal to the number of channels in input, but got ${name} of shape ` +
        `[${one!.shape.join(", ")}] and input of shape [${input.shape.join(", ")}]`,
    );
  }
  const scaled = weight === undefined ? unit : unit.mul(weight.reshape(channelShape(input)));
  return bias === undefined ? scaled : scaled.add(bias.reshape(channelShape(input)));
}

/** Vectors along `dim` divided by their norm, or by eps if that is larger. */
export const normalize = (input: Tensor, p = 2, dim = 1, eps = 1e-12): Tensor =>
  input.div(input.norm(p, dim, true).clamp_min(eps).expand_as(input));

export function cosine_similarity(x1: Tensor, x2: Tensor, dim = 1, eps = 1e-8): Tensor {
  check(eps >= 0, () => `eps must be non-negative, got: ${eps}`);
  const dtype = resultType([x1, x2].map((x) => ({ dtype: x.dtype, dim: x.dim() })));
  check(
    isFloating(dtype),
    () =>
      `expected common dtype to be floating point, yet common dtype is ${dtypeInfo(dtype).name}`,
  );
  const shape = broadcastShapes(x1.shape, x2.shape);
  const unit = (x: Tensor): Tensor => {
    const wide = x.to(dtype).expand(shape);
    return wide.div(wide.norm(2, dim, true).clamp_min(eps));
  };
  const [a, b] = [unit(x1), unit(x2)];
  return a.mul(b).sum(dim);
}
