// Sizes and windows of images, and their columns (csrc/ops/movement/fold*.wgsl).
import { record } from "../autograd";
import { check, NotImplementedError } from "../errors";
import { launch, shaderDType } from "../launch";
import { numelOf, Tensor } from "../tensor";
import { bitsOf } from "../wgsl/dtypes";

/** A number for all spatial dimensions, or one for each. */
export type Sizes = number | readonly number[];

/** A number for each spatial dimension. */
export function listOf(value: Sizes, dims: number, name: string): number[] {
  const list = [value].flat();
  check(
    list.length === 1 || list.length === dims,
    () =>
      `expected ${name} to be a single integer value or a list of ${dims} values, but got ` +
      `${name}=[${list.join(", ")}]`,
  );
  // A scale factor is no count.
  if (name !== "scale_factor" && !list.every(Number.isInteger)) {
    throw new TypeError(`${name} must be int or a list of ints, but got [${list.join(", ")}]`);
  }
  return list.length === dims ? list : new Array<number>(dims).fill(list[0]!);
}

/** Windows that slide over an image, by its spatial dimensions. */
export interface Sliding {
  kernel: number[];
  dilation: number[];
  padding: number[];
  stride: number[];
}

export function slidingOf(
  dims: number,
  kernel: Sizes,
  dilation: Sizes,
  padding: Sizes,
  stride: Sizes,
): Sliding {
  const sliding = {
    kernel: listOf(kernel, dims, "kernel_size"),
    dilation: listOf(dilation, dims, "dilation"),
    padding: listOf(padding, dims, "padding"),
    stride: listOf(stride, dims, "stride"),
  };
  // Shaders go from place to place by dilation and stride: without a step they would never end.
  for (const [name, list] of Object.entries(sliding)) {
    const least = name === "padding" ? 0 : 1;
    check(
      list.every((size) => size >= least),
      () => `${name} should be at least ${least}, but got [${list.join(", ")}]`,
    );
  }
  return sliding;
}

/** How many windows lie in a dimension. With `ceil` also one that reaches beyond the end. */
export function places(sliding: Sliding, d: number, size: number, ceil = false): number {
  const [stride, padding] = [sliding.stride[d]!, sliding.padding[d]!];
  const span = size + 2 * padding - sliding.dilation[d]! * (sliding.kernel[d]! - 1) - 1;
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
  const area = numelOf(sliding.kernel);
  const count = places(sliding, 0, height) * places(sliding, 1, width);
  check(
    places(sliding, 0, height) > 0 && places(sliding, 1, width) > 0,
    () =>
      `Calculated padded input size per channel: (${height + 2 * sliding.padding[0]!} x ${width + 2 * sliding.padding[1]!}). ` +
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
  const channels = rows / numelOf(sliding.kernel);
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
  kernel_size: Sizes,
  dilation: Sizes = 1,
  padding: Sizes = 0,
  stride: Sizes = 1,
): Tensor {
  if (input.dim() === 3) {
    return unfold_image(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0);
  }
  check(
    input.dim() === 4,
    () => `Expected 3D or 4D (batched) input tensor, but got ${input.dim()}D`,
  );
  return imageToColumns(input, slidingOf(2, kernel_size, dilation, padding, stride));
}

export function fold(
  input: Tensor,
  output_size: Sizes,
  kernel_size: Sizes,
  dilation: Sizes = 1,
  padding: Sizes = 0,
  stride: Sizes = 1,
): Tensor {
  if (input.dim() === 2) {
    const batch = input.unsqueeze(0);
    return fold(batch, output_size, kernel_size, dilation, padding, stride).squeeze(0);
  }
  const sliding = slidingOf(2, kernel_size, dilation, padding, stride);
  const [height, width] = listOf(output_size, 2, "output_size") as [number, number];
  const expected = places(sliding, 0, height) * places(sliding, 1, width);
  check(
    input.dim() === 3,
    () => `Expected 2D or 3D (batched) input tensor, but got ${input.dim()}D`,
  );
  check(
    input.shape[2] === expected && input.shape[1]! % numelOf(sliding.kernel) === 0,
    () =>
      `fold: expected [batch, channels * ${sliding.kernel.join(" * ")}, ${expected}], got [${input.shape.join(", ")}]`,
  );
  return columnsToImage(input, [height, width], sliding);
}
