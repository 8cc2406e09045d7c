// Convolution and pooling. A convolution is a product with the columns of its image (csrc/ops/movement/fold*.wgsl).
import { record, saved } from "../autograd";
import { check, NotImplementedError } from "../errors";
import { launch, shaderDType } from "../launch";
import { numelOf, Tensor } from "../tensor";
import { bitsOf } from "../wgsl/dtypes";
import { zeros } from "./factory";
import { scatter_add } from "./indexing";
import { matmul } from "./matmul";
import { constant_pad } from "./movement";

export type Pair = number | readonly number[];
/** "same" gives as many places as the input has, "valid" is no padding. */
export type Padding = Pair | "same" | "valid";

const pair = (value: Pair): [number, number] => {
  const list = [value].flat();
  return [list[0]!, list[1] ?? list[0]!];
};

// What an operator of one dimension says, for an image: `other` is for the dimension before.
const lastOf = (value: Pair, other: number): [number, number] => [other, pair(value)[0]];

/** Windows that slide over an image, by height and width. */
interface Sliding {
  kernel: [number, number];
  dilation: [number, number];
  padding: [number, number];
  stride: [number, number];
}

const slidingOf = (kernel: Pair, dilation: Pair, padding: Pair, stride: Pair): Sliding => ({
  ...{ kernel: pair(kernel), dilation: pair(dilation) },
  ...{ padding: pair(padding), stride: pair(stride) },
});

/** How many windows lie in a dimension. With `ceil` also one that reaches beyond the end. */
function places(sliding: Sliding, d: 0 | 1, size: number, ceil = false): number {
  const [stride, padding] = [sliding.stride[d], sliding.padding[d]];
  const span = size + 2 * padding - sliding.dilation[d] * (sliding.kernel[d] - 1) - 1;
  const count = Math.floor((span + (ceil ? stride - 1 : 0)) / stride) + 1;
  // The last window starts inside of the image or its left padding.
  return ceil && (count - 1) * stride >= size + padding ? count - 1 : count;
}

function foldParams(
  sliding: Sliding,
  image: Tensor,
  columns: Tensor,
  count: number,
  planes: number,
): Record<string, number | number[]> {
  const [height, width] = image.shape.slice(-2) as [number, number];
  return {
    ...{ count, planes },
    ...{ image: [...image.strides], columns: [...columns.strides, 0] },
    sizes: [height, width, places(sliding, 0, height), places(sliding, 1, width)],
    kernel: [...sliding.kernel, ...sliding.dilation],
    sliding: [...sliding.stride, ...sliding.padding],
  };
}

// [batch, channels, height, width] to [batch, channels * kernel, places]
function imageToColumns(image: Tensor, sliding: Sliding): Tensor {
  const [batch, channels, height, width] = image.shape as [number, number, number, number];
  const area = sliding.kernel[0] * sliding.kernel[1];
  const count = places(sliding, 0, height) * places(sliding, 1, width);
  check(
    places(sliding, 0, height) > 0 && places(sliding, 1, width) > 0,
    () =>
      `Calculated padded input size per channel: (${height + 2 * sliding.padding[0]} x ${width + 2 * sliding.padding[1]}). ` +
      `Kernel size: (${sliding.kernel.join(" x ")}). Kernel size can't be greater than actual input size`,
  );
  const out = Tensor.empty([batch, channels * area, count], image.dtype);
  const dtype = bitsOf(shaderDType(image));
  launch({
    ...{ label: "unfold", kernel: "fold_im2col" },
    operands: { columns: { tensor: out, dtype }, image: { tensor: image, dtype } },
    params: foldParams(sliding, image, out, out.numel(), channels * area),
    invocations: out.numel(),
  });
  return record(out, "Im2ColBackward0", [image], (g) => [
    columnsToImage(g, [height, width], sliding),
  ]);
}

// Each pixel is the sum of its copies.
function columnsToImage(columns: Tensor, size: [number, number], sliding: Sliding): Tensor {
  const [batch, rows] = columns.shape as [number, number];
  const channels = rows / (sliding.kernel[0] * sliding.kernel[1]);
  const out = Tensor.empty([batch, channels, ...size], columns.dtype);
  if (columns.dtype === "int64") {
    throw new NotImplementedError(`"fold" not implemented for 'Long'`);
  }
  launch({
    ...{ label: "fold", kernel: "fold_col2im", operands: { image: out, columns } },
    params: foldParams(sliding, out, columns, out.numel(), channels),
    invocations: out.numel(),
  });
  return record(out, "Col2ImBackward0", [columns], (g) => [imageToColumns(g, sliding)]);
}

/** torch.nn.functional.unfold: [batch, channels * kernel, places] of an image. */
export function unfold_image(
  input: Tensor,
  kernel_size: Pair,
  dilation: Pair = 1,
  padding: Pair = 0,
  stride: Pair = 1,
): Tensor {
  check(input.dim() === 4, () => `Expected 4D (batched) input tensor, but got ${input.dim()}D`);
  return imageToColumns(input, slidingOf(kernel_size, dilation, padding, stride));
}

export function fold(
  input: Tensor,
  output_size: Pair,
  kernel_size: Pair,
  dilation: Pair = 1,
  padding: Pair = 0,
  stride: Pair = 1,
): Tensor {
  const sliding = slidingOf(kernel_size, dilation, padding, stride);
  const [height, width] = pair(output_size);
  const expected = places(sliding, 0, height) * places(sliding, 1, width);
  check(input.dim() === 3, () => `Expected 3D (batched) input tensor, but got ${input.dim()}D`);
  check(
    input.shape[2] === expected && input.shape[1]! % (sliding.kernel[0] * sliding.kernel[1]) === 0,
    () =>
      `fold: expected [batch, channels * ${sliding.kernel.join(" * ")}, ${expected}], got [${input.shape.join(", ")}]`,
  );
  return columnsToImage(input, [height, width], sliding);
}

// The padding in numbers, and the image with what is more behind it than before.
function padded(
  image: Tensor,
  kernel: readonly number[],
  padding: Padding,
  stride: Pair,
  dilation: Pair,
): [Tensor, Pair] {
  if (padding === "valid") {
    return [image, 0];
  }
  if (typeof padding !== "string") {
    return [image, padding];
  }
  if ((padding as string) !== "same") {
    throw new RangeError(
      `Invalid padding string '${String(padding)}', should be one of {'valid', 'same'}`,
    );
  }
  check(
    pair(stride).every((step) => step === 1),
    () => "padding='same' is not supported for strided convolutions",
  );
  const [below, right] = pair(dilation).map((step, d) => step * (kernel[d]! - 1)) as [
    number,
    number,
  ];
  const more = [below % 2, right % 2] as const;
  return [
    more[0] + more[1] === 0 ? image : constant_pad(image, [0, more[1], 0, more[0]]),
    [(below - more[0]) / 2, (right - more[1]) / 2],
  ];
}

export function conv2d(
  input: Tensor,
  weight: Tensor,
  bias?: Tensor,
  stride: Pair = 1,
  padding: Padding = 0,
  dilation: Pair = 1,
  groups = 1,
): Tensor {
  if (input.dim() === 3 && weight.dim() === 4) {
    const batch = input.unsqueeze(0);
    return conv2d(batch, weight, bias, stride, padding, dilation, groups).squeeze(0);
  }
  check(
    input.dim() === 4 && weight.dim() === 4,
    () =>
      `Expected 4D input and weight to conv2d, but got sizes [${input.shape.join(", ")}] and [${weight.shape.join(", ")}]`,
  );
  check(
    input.dtype === weight.dtype,
    () => `Input type (${input.dtype}) and weight type (${weight.dtype}) should be the same`,
  );
  const [outs, ins, kh, kw] = weight.shape as [number, number, number, number];
  const [image, around] = padded(input, [kh, kw], padding, stride, dilation);
  const [batch, channels, height, width] = image.shape as [number, number, number, number];
  check(
    ins * groups === channels && outs % groups === 0,
    () =>
      `Given groups=${groups}, weight of size [${weight.shape.join(", ")}], expected input` +
      `[${input.shape.join(", ")}] to have ${ins * groups} channels, but got ${channels} channels instead`,
  );
  const sliding = slidingOf([kh, kw], dilation, around, stride);
  const columns = imageToColumns(image, sliding);
  const size = [places(sliding, 0, height), places(sliding, 1, width)];
  const inner = ins * kh * kw;
  const out = matmul(
    weight.reshape(groups, outs / groups, inner),
    columns.reshape(batch, groups, inner, numelOf(size)),
  ).reshape([batch, outs, ...size]);
  return bias === undefined ? out : out.add(bias.reshape(1, -1, 1, 1));
}

export function conv1d(
  input: Tensor,
  weight: Tensor,
  bias?: Tensor,
  stride: Pair = 1,
  padding: Padding = 0,
  dilation: Pair = 1,
  groups = 1,
): Tensor {
  check(
    (input.dim() === 3 || input.dim() === 2) && weight.dim() === 3,
    () => "Expected 2D or 3D input and 3D weight to conv1d",
  );
  return conv2d(
    ...([input.unsqueeze(-2), weight.unsqueeze(2), bias] as const),
    ...([lastOf(stride, 1), typeof padding === "string" ? padding : lastOf(padding, 0)] as const),
    ...([lastOf(dilation, 1), groups] as const),
  ).squeeze(-2);
}

export function conv_transpose2d(
  input: Tensor,
  weight: Tensor,
  bias?: Tensor,
  stride: Pair = 1,
  padding: Pair = 0,
  output_padding: Pair = 0,
  groups = 1,
  dilation: Pair = 1,
): Tensor {
  if (input.dim() === 3 && weight.dim() === 4) {
    return conv_transpose2d(
      ...([input.unsqueeze(0), weight, bias, stride, padding] as const),
      ...([output_padding, groups, dilation] as const),
    ).squeeze(0);
  }
  check(
    input.dim() === 4 && weight.dim() === 4,
    () => "Expected 4D input and weight to conv_transpose2d",
  );
  const [batch, channels, height, width] = input.shape as [number, number, number, number];
  const [ins, outs, kh, kw] = weight.shape as [number, number, number, number];
  check(
    ins === channels && channels % groups === 0,
    () =>
      `Given transposed=1, weight of size [${weight.shape.join(", ")}], expected input[${input.shape.join(", ")}] to have ${ins} channels, but got ${channels} channels instead`,
  );
  const sliding = slidingOf([kh, kw], dilation, padding, stride);
  const extra = pair(output_padding);
  const outSize = (d: 0 | 1, size: number): number =>
    (size - 1) * sliding.stride[d] -
    2 * sliding.padding[d] +
    sliding.dilation[d] * (sliding.kernel[d] - 1) +
    extra[d] +
    1;
  const columns = matmul(
    weight.reshape(groups, channels / groups, outs * kh * kw).transpose(1, 2),
    input.reshape(batch, groups, channels / groups, height * width),
  ).reshape(batch, groups * outs * kh * kw, height * width);
  const out = columnsToImage(columns, [outSize(0, height), outSize(1, width)], sliding);
  return bias === undefined ? out : out.add(bias.reshape(1, -1, 1, 1));
}

export function conv_transpose1d(
  input: Tensor,
  weight: Tensor,
  bias?: Tensor,
  stride: Pair = 1,
  padding: Pair = 0,
  output_padding: Pair = 0,
  groups = 1,
  dilation: Pair = 1,
): Tensor {
  return conv_transpose2d(
    ...([input.unsqueeze(-2), weight.unsqueeze(2), bias, lastOf(stride, 1)] as const),
    ...([lastOf(padding, 0), lastOf(output_padding, 0), groups, lastOf(dilation, 1)] as const),
  ).squeeze(-2);
}

// ---- Pooling ----

interface Pool extends Sliding {
  label: string;
  out: [number, number];
  divisor: number;
  countIncludePad: boolean;
  adaptive: boolean;
}

// An empty list stands for the default too.
const strideOf = (stride: Pair | undefined, kernel: Pair): Pair =>
  stride === undefined || [stride].flat().length === 0 ? kernel : stride;

function poolOf(
  label: string,
  input: Tensor,
  kernel_size: Pair,
  stride: Pair | undefined,
  padding: Pair,
  dilation: Pair,
  ceil: boolean,
): Pool {
  check(
    input.dim() === 4 || input.dim() === 3,
    () => `${label}: expected 3D or 4D input, but got ${input.dim()}D`,
  );
  const sliding = slidingOf(kernel_size, dilation, padding, strideOf(stride, kernel_size));
  const { kernel, padding: pad } = sliding;
  check(
    pad[0] * 2 <= kernel[0] && pad[1] * 2 <= kernel[1],
    () =>
      `pad should be at most half of effective kernel size, but got pad=${pad.join(", ")}, kernel_size=${kernel.join(", ")}`,
  );
  const size = (d: 0 | 1): number => places(sliding, d, input.shape.at(-2 + d)!, ceil);
  const out: [number, number] = [size(0), size(1)];
  check(
    out[0] > 0 && out[1] > 0,
    () =>
      `Given input size: (${input.shape.slice(-3).join("x")}). Calculated output size: (${out.join("x")}). Output size is too small`,
  );
  return { ...sliding, label, out, divisor: 0, countIncludePad: true, adaptive: false };
}

function poolParams(
  pool: Pool,
  image: Tensor,
  cells: Tensor,
  count: number,
  index?: Tensor,
): Record<string, number | number[]> {
  const depth = ([row, column]: readonly number[]): number[] => [1, row!, column!, 0];
  const step = ([, channel, row, column]: readonly number[]): number[] => [
    0,
    row!,
    column!,
    channel!,
  ];
  const indexStrides = index?.strides ?? [0, 0, 0, 0];
  return {
    ...{ count, channels: image.shape[1]!, channels_last: 0, divisor: pool.divisor },
    ...{ count_include_pad: pool.countIncludePad ? 1 : 0, dims: 2 },
    ...{ out_batch: cells.strides[0]!, in_batch: image.strides[0]!, index_batch: indexStrides[0]! },
    in_size: depth(image.shape.slice(2)),
    out_size: depth(pool.out),
    kernel: depth(pool.kernel),
    stride: depth(pool.stride),
    padding: [0, ...pool.padding, 0],
    dilation: depth(pool.dilation),
    ...{
      out_step: step(cells.strides),
      in_step: step(image.strides),
      index_step: step(indexStrides),
    },
  };
}

const batched = (input: Tensor): Tensor => (input.dim() === 3 ? input.unsqueeze(0) : input);

function maxPool(
  input: Tensor,
  kernel_size: Pair,
  stride?: Pair,
  padding: Pair = 0,
  dilation: Pair = 1,
  ceil_mode = false,
): { values: Tensor; indices: Tensor } {
  return maxOf(
    input,
    poolOf("max_pool2d", input, kernel_size, stride, padding, dilation, ceil_mode),
  );
}

function maxOf(input: Tensor, pool: Pool): { values: Tensor; indices: Tensor } {
  const image = batched(input);
  const [batch, channels, height, width] = image.shape as [number, number, number, number];
  const values = Tensor.empty([batch, channels, ...pool.out], image.dtype);
  const indices = Tensor.empty(values.shape, "int64");
  launch({
    ...{ label: pool.label, kernel: "pool_max" },
    operands: { out: values, index: indices, in: image },
    consts: { windows: pool.adaptive ? "adaptive" : "fixed" },
    params: poolParams(pool, image, values, values.numel(), indices),
    invocations: values.numel(),
  });
  const read = saved(indices);
  record(values, "MaxPool2DWithIndicesBackward0", [image], (g) => [
    scatter_add(
      ...([zeros([batch, channels, height * width], { dtype: g.dtype }), 2] as const),
      ...([read().flatten(2), g.flatten(2)] as const),
    ).reshape(image.shape),
  ]);
  return input.dim() === 3
    ? { values: values.squeeze(0), indices: indices.squeeze(0) }
    : { values, indices };
}

export const max_pool2d = (...args: Parameters<typeof maxPool>): Tensor => maxPool(...args).values;
export const max_pool2d_with_indices = maxPool;

const lastStrideOf = (stride: Pair | undefined, kernel: Pair): [number, number] =>
  lastOf(strideOf(stride, kernel), 1);

export function max_pool1d(
  input: Tensor,
  kernel_size: Pair,
  stride?: Pair,
  padding: Pair = 0,
  dilation: Pair = 1,
  ceil_mode = false,
): Tensor {
  const out = max_pool2d(
    ...([input.unsqueeze(-2), lastOf(kernel_size, 1), lastStrideOf(stride, kernel_size)] as const),
    ...([lastOf(padding, 0), lastOf(dilation, 1), ceil_mode] as const),
  );
  return out.squeeze(-2);
}

function averagePool(image: Tensor, pool: Pool): Tensor {
  const out = Tensor.empty([...image.shape.slice(0, 2), ...pool.out], image.dtype);
  launch({
    ...{ label: pool.label, kernel: "pool_average", operands: { out, in: image } },
    consts: { windows: pool.adaptive ? "adaptive" : "fixed" },
    params: poolParams(pool, image, out, out.numel()),
    invocations: out.numel(),
  });
  const { shape } = image;
  return record(out, "AvgPool2DBackward0", [image], (g) => [averageSpread(g, shape, pool)]);
}

function averageSpread(g: Tensor, shape: readonly number[], pool: Pool): Tensor {
  const out = Tensor.empty(shape, g.dtype);
  launch({
    ...{ label: pool.label, kernel: "pool_average_backward", operands: { in: out, out: g } },
    consts: { windows: pool.adaptive ? "adaptive" : "fixed" },
    params: poolParams(pool, out, g, out.numel()),
    invocations: out.numel(),
  });
  return record(out, "AvgPool2DBackwardBackward0", [g], (gg) => [averagePool(gg, pool)]);
}

export function avg_pool2d(
  input: Tensor,
  kernel_size: Pair,
  stride?: Pair,
  padding: Pair = 0,
  ceil_mode = false,
  count_include_pad = true,
  divisor_override = 0,
): Tensor {
  const pool = poolOf("avg_pool2d", input, kernel_size, stride, padding, 1, ceil_mode);
  const out = averagePool(batched(input), {
    ...{ ...pool, countIncludePad: count_include_pad, divisor: divisor_override },
  });
  return input.dim() === 3 ? out.squeeze(0) : out;
}

export function avg_pool1d(
  input: Tensor,
  kernel_size: Pair,
  stride?: Pair,
  padding: Pair = 0,
  ceil_mode = false,
  count_include_pad = true,
): Tensor {
  return avg_pool2d(
    ...([input.unsqueeze(-2), lastOf(kernel_size, 1), lastStrideOf(stride, kernel_size)] as const),
    ...([lastOf(padding, 0), ceil_mode, count_include_pad] as const),
  ).squeeze(-2);
}

type OutputSize = number | readonly (number | undefined)[];

function adaptivePool(label: string, input: Tensor, output_size: OutputSize): Pool {
  check(
    input.dim() === 4 || input.dim() === 3,
    () => `${label}(): Expected 3D or 4D tensor, but got [${input.shape.join(", ")}]`,
  );
  const wanted = typeof output_size === "number" ? [output_size, output_size] : output_size;
  const out = [0, 1].map((d) => wanted[d] ?? input.shape.at(-2 + d)!) as [number, number];
  return {
    ...{ ...slidingOf(1, 1, 0, 1), label, out },
    ...{ divisor: 0, countIncludePad: true, adaptive: true },
  };
}

const flatSize = (output_size: number | readonly number[]): number[] => [
  ...[1, ...[output_size].flat()],
];

export function adaptive_avg_pool2d(input: Tensor, output_size: OutputSize): Tensor {
  const result = averagePool(
    batched(input),
    adaptivePool("adaptive_avg_pool2d", input, output_size),
  );
  return input.dim() === 3 ? result.squeeze(0) : result;
}
export const adaptive_avg_pool1d = (
  input: Tensor,
  output_size: number | readonly number[],
): Tensor => adaptive_avg_pool2d(input.unsqueeze(-2), flatSize(output_size)).squeeze(-2);

export const adaptive_max_pool2d = (input: Tensor, output_size: OutputSize): Tensor =>
  maxOf(input, adaptivePool("adaptive_max_pool2d", input, output_size)).values;
export const adaptive_max_pool1d = (
  input: Tensor,
  output_size: number | readonly number[],
): Tensor => adaptive_max_pool2d(input.unsqueeze(-2), flatSize(output_size)).squeeze(-2);
