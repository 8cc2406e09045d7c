// Pooling of one to three dimensions (csrc/ops/pool).
import { record, saved } from "../autograd";
import { dtypeInfo, isFloating } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { launch } from "../launch";
import { numelOf, Tensor } from "../tensor";
import { gather } from "./indexing";
import { listOf, places, slidingOf, type Sizes, type Sliding } from "./spatial";

interface Pool extends Sliding {
  label: string;
  out: number[];
  divisor: number;
  countIncludePad: boolean;
  adaptive: boolean;
}

// An empty list stands for the default too.
const strideOf = (stride: Sizes | undefined, kernel: Sizes): Sizes =>
  stride === undefined || [stride].flat().length === 0 ? kernel : stride;

function checkRank(label: string, dims: number, input: Tensor): void {
  check(
    input.dim() === dims + 2 || input.dim() === dims + 1,
    () =>
      `${label}: Expected ${dims + 1}D or ${dims + 2}D input, but got [${input.shape.join(", ")}]`,
  );
}

function poolOf(
  label: string,
  dims: number,
  input: Tensor,
  kernel_size: Sizes,
  stride: Sizes | undefined,
  padding: Sizes,
  dilation: Sizes,
  ceil: boolean,
): Pool {
  checkRank(label, dims, input);
  const sliding = slidingOf(dims, kernel_size, dilation, padding, strideOf(stride, kernel_size));
  const { kernel, padding: pad } = sliding;
  check(
    pad.every((size, d) => size * 2 <= kernel[d]!),
    () =>
      `pad should be at most half of effective kernel size, but got pad=${pad.join(", ")}, kernel_size=${kernel.join(", ")}`,
  );
  const out = kernel.map((_, d) => places(sliding, d, input.shape.at(d - dims)!, ceil));
  check(
    out.every((size) => size > 0),
    () =>
      `Given input size: (${input.shape.slice(-dims - 1).join("x")}). Calculated output size: (${out.join("x")}). Output size is too small`,
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
  const dims = pool.out.length;
  // Depth, row and column; what is missing in front has one place.
  const depth = (values: readonly number[], missing = 1): number[] => [
    ...new Array<number>(3 - dims).fill(missing),
    ...values,
  ];
  const step = ([, channel, ...spatial]: readonly number[]): number[] => [
    ...depth(spatial, 0),
    channel!,
  ];
  const indexStrides = index?.strides ?? new Array<number>(dims + 2).fill(0);
  return {
    ...{ count, channels: image.shape[1]!, channels_last: 0, divisor: pool.divisor },
    ...{ count_include_pad: pool.countIncludePad ? 1 : 0, dims },
    ...{ out_batch: cells.strides[0]!, in_batch: image.strides[0]!, index_batch: indexStrides[0]! },
    in_size: depth(image.shape.slice(2)),
    out_size: depth(pool.out),
    kernel: depth(pool.kernel),
    stride: depth(pool.stride),
    padding: depth(pool.padding, 0),
    dilation: depth(pool.dilation),
    ...{
      out_step: step(cells.strides),
      in_step: step(image.strides),
      index_step: step(indexStrides),
    },
  };
}

// With a batch, as the kernels take images, and its result without one if the input has none.
function batched(input: Tensor, dims: number, pool: (image: Tensor) => Tensor): Tensor {
  return input.dim() === dims + 2 ? pool(input) : pool(input.unsqueeze(0)).squeeze(0);
}

export interface Maximum {
  values: Tensor;
  indices: Tensor;
}

function maxOf(input: Tensor, pool: Pool): Maximum {
  const single = input.dim() === pool.out.length + 1;
  const image = single ? input.unsqueeze(0) : input;
  const [batch, channels] = image.shape as [number, number];
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
  const name = `${pool.adaptive ? "Adaptive" : ""}MaxPool${pool.out.length}DWithIndicesBackward0`;
  record(values, name, [image], (g) => [maxSpread(g, image.shape, pool, read)]);
  return single ? { values: values.squeeze(0), indices: indices.squeeze(0) } : { values, indices };
}

// The sum of the gradients of the windows whose maximum a cell was. A window wholly in the padding found a place beyond
// the image, which no cell has; PyTorch's CPU writes there.
function maxSpread(g: Tensor, shape: readonly number[], pool: Pool, indices: () => Tensor): Tensor {
  const out = Tensor.empty(shape, g.dtype);
  launch({
    ...{ label: pool.label, kernel: "pool_max_backward" },
    operands: { in: out, out: g, index: indices() },
    consts: { windows: pool.adaptive ? "adaptive" : "fixed" },
    params: poolParams(pool, out, g, out.numel(), indices()),
    invocations: out.numel(),
  });
  return record(out, "MaxPoolBackwardBackward0", [g], (gg) => {
    const places = indices().flatten(2);
    const none = places.ge(numelOf(shape.slice(2)));
    const found = gather(gg.flatten(2), 2, places.masked_fill(none, 0));
    return [found.masked_fill(none, 0).reshape(g.shape)];
  });
}

/** nn.functional.max_pool1d_with_indices to max_pool3d_with_indices. */
const maxPool =
  (dims: number) =>
  (
    input: Tensor,
    kernel_size: Sizes,
    stride?: Sizes,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode = false,
  ): Maximum =>
    maxOf(
      input,
      poolOf(
        ...([`max_pool${dims}d`, dims, input, kernel_size, stride] as const),
        ...([padding, dilation, ceil_mode] as const),
      ),
    );

/** The values alone. */
const valuesOf =
  <A extends unknown[]>(pool: (...args: A) => Maximum) =>
  (...args: A): Tensor =>
    pool(...args).values;

export const max_pool1d_with_indices = maxPool(1);
export const max_pool2d_with_indices = maxPool(2);
export const max_pool3d_with_indices = maxPool(3);
export const max_pool1d = valuesOf(max_pool1d_with_indices);
export const max_pool2d = valuesOf(max_pool2d_with_indices);
export const max_pool3d = valuesOf(max_pool3d_with_indices);

function averagePool(image: Tensor, pool: Pool): Tensor {
  const out = Tensor.empty([...image.shape.slice(0, 2), ...pool.out], image.dtype);
  launch({
    ...{ label: pool.label, kernel: "pool_average", operands: { out, in: image } },
    consts: { windows: pool.adaptive ? "adaptive" : "fixed" },
    params: poolParams(pool, image, out, out.numel()),
    invocations: out.numel(),
  });
  const { shape } = image;
  const name = `${pool.adaptive ? "Adaptive" : ""}AvgPool${pool.out.length}D`;
  return record(out, `${name}Backward0`, [image], (g) => [averageSpread(g, shape, pool)]);
}

function averageSpread(g: Tensor, shape: readonly number[], pool: Pool): Tensor {
  const out = Tensor.empty(shape, g.dtype);
  launch({
    ...{ label: pool.label, kernel: "pool_average_backward", operands: { in: out, out: g } },
    consts: { windows: pool.adaptive ? "adaptive" : "fixed" },
    params: poolParams(pool, out, g, out.numel()),
    invocations: out.numel(),
  });
  return record(out, "AvgPoolBackwardBackward0", [g], (gg) => [averagePool(gg, pool)]);
}

/** nn.functional.avg_pool1d to avg_pool3d; of one dimension, PyTorch has no divisor. */
const avgPool =
  (dims: number) =>
  (
    input: Tensor,
    kernel_size: Sizes,
    stride?: Sizes,
    padding: Sizes = 0,
    ceil_mode = false,
    count_include_pad = true,
    divisor_override?: number,
  ): Tensor => {
    check(divisor_override !== 0, () => "divisor must be not zero");
    const pool = poolOf(
      ...([`avg_pool${dims}d`, dims, input, kernel_size, stride, padding, 1, ceil_mode] as const),
    );
    return batched(input, dims, (image) =>
      averagePool(image, {
        ...{ ...pool, countIncludePad: count_include_pad, divisor: divisor_override ?? 0 },
      }),
    );
  };

export const avg_pool1d: (
  input: Tensor,
  kernel_size: Sizes,
  stride?: Sizes,
  padding?: Sizes,
  ceil_mode?: boolean,
  count_include_pad?: boolean,
) => Tensor = avgPool(1);
export const avg_pool2d = avgPool(2);
export const avg_pool3d = avgPool(3);

/** Undefined for the size of the input. */
type OutputSize = number | readonly (number | undefined)[];

function adaptivePool(label: string, dims: number, input: Tensor, output_size: OutputSize): Pool {
  checkRank(label, dims, input);
  // PyTorch's averages of one and two dimensions take no channels, and the others do not.
  const first = /avg_pool[12]d/.test(label) ? input.dim() - dims : 1;
  const empty = input.shape.findIndex((size, d) => d >= first && size === 0);
  check(
    empty < 0,
    () =>
      `${label}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ` +
      `[${input.shape.join(", ")}] with dimension ${empty} being empty`,
  );
  if (!isFloating(input.dtype)) {
    throw new NotImplementedError(
      `"${label}" not implemented for '${dtypeInfo(input.dtype).name}'`,
    );
  }
  const own = input.shape.slice(-dims);
  const wanted = typeof output_size === "number" ? [output_size] : output_size;
  check(
    typeof output_size === "number" || wanted.length === dims,
    () => `${label}: output_size must be ${dims}`,
  );
  const out = listOf(
    wanted.map((size, d) => size ?? own[d]!),
    dims,
    "output_size",
  );
  return {
    ...{ ...slidingOf(dims, 1, 1, 0, 1), label, out },
    ...{ divisor: 0, countIncludePad: true, adaptive: true },
  };
}

const adaptiveAverage =
  (dims: number) =>
  (input: Tensor, output_size: OutputSize): Tensor => {
    const pool = adaptivePool(`adaptive_avg_pool${dims}d`, dims, input, output_size);
    return batched(input, dims, (image) => averagePool(image, pool));
  };
export const adaptive_avg_pool1d = adaptiveAverage(1);
export const adaptive_avg_pool2d = adaptiveAverage(2);
export const adaptive_avg_pool3d = adaptiveAverage(3);

const adaptiveMax =
  (dims: number) =>
  (input: Tensor, output_size: OutputSize): Maximum =>
    maxOf(input, adaptivePool(`adaptive_max_pool${dims}d`, dims, input, output_size));
export const adaptive_max_pool1d_with_indices = adaptiveMax(1);
export const adaptive_max_pool2d_with_indices = adaptiveMax(2);
export const adaptive_max_pool3d_with_indices = adaptiveMax(3);
export const adaptive_max_pool1d = valuesOf(adaptive_max_pool1d_with_indices);
export const adaptive_max_pool2d = valuesOf(adaptive_max_pool2d_with_indices);
export const adaptive_max_pool3d = valuesOf(adaptive_max_pool3d_with_indices);
