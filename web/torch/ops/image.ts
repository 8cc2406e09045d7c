// Functions of nn.functional for images that are made of others.
import { dtypeInfo } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { numelOf, type Tensor } from "../tensor";
import { linspace, ones, zeros } from "./factory";
import { scatter } from "./indexing";
import { constant_pad, stack } from "./movement";
import { avg_pool1d, avg_pool2d, avg_pool3d, max_pool1d, max_pool2d, max_pool3d } from "./pool";
import { listOf, type Sizes } from "./spatial";

/** [.., channels * r * r, height, width] to [.., channels, height * r, width * r]. */
export function pixel_shuffle(input: Tensor, upscale_factor: number): Tensor {
  check(
    input.dim() >= 3,
    () => `pixel_shuffle expects input to have at least 3 dimensions, but got ${input.dim()}`,
  );
  const [channels, height, width] = input.shape.slice(-3) as [number, number, number];
  const r = upscale_factor;
  check(
    r > 0 && channels % (r * r) === 0,
    () =>
      `pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of ` +
      `upscale_factor, but input.size(-3)=${channels} is not divisible by ${r * r}`,
  );
  const before = input.shape.slice(0, -3);
  return input
    .reshape(numelOf(before), channels / (r * r), r, r, height, width)
    .permute(0, 1, 4, 2, 5, 3)
    .clone()
    .reshape([...before, channels / (r * r), height * r, width * r]);
}

/** The reverse of pixel_shuffle. */
export function pixel_unshuffle(input: Tensor, downscale_factor: number): Tensor {
  check(
    input.dim() >= 3,
    () => `pixel_unshuffle expects input to have at least 3 dimensions, but got ${input.dim()}`,
  );
  const [channels, height, width] = input.shape.slice(-3) as [number, number, number];
  const r = downscale_factor;
  check(
    r > 0 && height % r === 0 && width % r === 0,
    () => `pixel_unshuffle expects height and width to be divisible by downscale_factor ${r}`,
  );
  const before = input.shape.slice(0, -3);
  return input
    .reshape(numelOf(before), channels, height / r, r, width / r, r)
    .permute(0, 1, 3, 5, 2, 4)
    .clone()
    .reshape([...before, channels * r * r, height / r, width / r]);
}

/** Channels of all groups in turn. */
export function channel_shuffle(input: Tensor, groups: number): Tensor {
  const [batch, channels, ...rest] = input.shape as [number, number, ...number[]];
  check(
    groups > 0 && channels % groups === 0,
    () =>
      `Number of channels must be divisible by groups. Got ${channels} channels and ${groups} groups.`,
  );
  return input
    .reshape([batch, groups, channels / groups, ...rest])
    .transpose(1, 2)
    .clone()
    .reshape(input.shape);
}

/** Divides by a power of the mean square of neighbouring channels. */
export function local_response_norm(
  input: Tensor,
  size: number,
  alpha = 1e-4,
  beta = 0.75,
  k = 1,
): Tensor {
  check(
    input.dim() >= 3,
    () => `Expected 3D or higher dimensionality input (got ${input.dim()} dimensions)`,
  );
  if (input.numel() === 0) {
    return input;
  }
  const [batch, channels] = input.shape as [number, number];
  const squares = input.mul(input).reshape(batch, 1, channels, -1);
  const before = Math.floor(size / 2);
  const wide = constant_pad(squares, [0, 0, before, size - 1 - before]);
  const means = avg_pool2d(wide, [size, 1], 1).reshape(input.shape);
  return input.div(means.mul(alpha).add(k).pow(beta));
}

const AVERAGES = [avg_pool1d, avg_pool2d, avg_pool3d];
const MAXIMA = [max_pool1d, max_pool2d, max_pool3d];

/** The norm of each window: the root of its sum of powers. */
const lpPool =
  (dims: number) =>
  (
    input: Tensor,
    norm_type: number,
    kernel_size: Sizes,
    stride?: Sizes,
    ceil_mode = false,
  ): Tensor => {
    if (norm_type === Infinity) {
      return MAXIMA[dims - 1]!(input, kernel_size, stride, 0, 1, ceil_mode);
    }
    const area = numelOf(listOf(kernel_size, dims, "kernel_size"));
    const means = AVERAGES[dims - 1]!(input.pow(norm_type), kernel_size, stride, 0, ceil_mode);
    return means
      .sign()
      .mul(means.abs().relu())
      .mul(area)
      .pow(1 / norm_type);
  };
export const lp_pool1d = lpPool(1);
export const lp_pool2d = lpPool(2);
export const lp_pool3d = lpPool(3);

// A stride leaves sizes open; `given` may have those of batch and channels in front.
function unpooledSize(
  given: readonly number[],
  natural: readonly number[],
  steps: readonly number[],
): number[] {
  const dims = natural.length;
  if (![dims, dims + 2].includes(given.length)) {
    throw new RangeError(
      `output_size should be a sequence containing ${dims} or ${dims + 2} elements, but it has a length of ` +
        `'${given.length}'`,
    );
  }
  const sizes = given.slice(-dims);
  sizes.forEach((size, d) => {
    const [least, most] = [natural[d]! - steps[d]!, natural[d]! + steps[d]!];
    if (!(Number.isInteger(size) && size > least && size < most)) {
      throw new RangeError(
        `invalid output_size "[${sizes.join(", ")}]" (dim ${d} must be between ${least} and ${most})`,
      );
    }
  });
  return sizes;
}

/** Maxima back to where they were found, zeros elsewhere. */
const maxUnpool =
  (dims: number) =>
  (
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride?: Sizes,
    padding: Sizes = 0,
    output_size?: readonly number[],
  ): Tensor => {
    check(
      indices.shape.join() === input.shape.join(),
      () =>
        `Expected shape of indices to be the same as that of input (${input.shape.join("x")}), ` +
        `but got ${indices.shape.join("x")}`,
    );
    check(
      indices.dtype === "int64",
      () => `elements in indices should be type int64 but got: ${dtypeInfo(indices.dtype).name}`,
    );
    const kernel = listOf(kernel_size, dims, "kernel_size");
    const steps = stride === undefined ? kernel : listOf(stride, dims, "stride");
    const around = listOf(padding, dims, "padding");
    const before = input.shape.slice(0, -dims);
    const natural = kernel.map(
      (size, d) => (input.shape.at(d - dims)! - 1) * steps[d]! - 2 * around[d]! + size,
    );
    const sizes = output_size === undefined ? natural : unpooledSize(output_size, natural, steps);
    const flat = zeros([...before, numelOf(sizes)], { dtype: input.dtype });
    return scatter(flat, -1, indices.flatten(-dims), input.flatten(-dims)).reshape([
      ...before,
      ...sizes,
    ]);
  };
export const max_unpool1d = maxUnpool(1);
export const max_unpool2d = maxUnpool(2);
export const max_unpool3d = maxUnpool(3);

/** The places that a transformation of [batch, 2, 3] samples, for grid_sample(). */
export function affine_grid(theta: Tensor, size: readonly number[], align_corners = false): Tensor {
  if (size.length !== 4 || theta.dim() !== 3 || theta.shape[1] !== 2) {
    throw new NotImplementedError("affine_grid() of other than images of two dimensions");
  }
  const [batch, , height, width] = size as [number, number, number, number];
  const line = (count: number): Tensor => {
    const ends = align_corners ? 1 : (count - 1) / count;
    return count > 1 ? linspace(-ends, ends, count, { dtype: theta.dtype }) : zeros([1]);
  };
  const shape = [height, width];
  const base = stack(
    [
      line(width).reshape(1, -1).expand(shape),
      line(height).reshape(-1, 1).expand(shape),
      ones(shape, { dtype: theta.dtype }),
    ],
    -1,
  ).reshape(1, height * width, 3);
  return base
    .expand([batch, height * width, 3])
    .matmul(theta.transpose(1, 2))
    .reshape(batch, height, width, 2);
}
