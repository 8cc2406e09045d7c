// Convolutions of one to three dimensions: products whose kernel finds the elements of the image by itself
// (csrc/ops/conv/conv_product.wgsl), so that they need no memory but that of their results.
import { record, saved } from "../autograd";
import { check } from "../errors";
import { launch } from "../launch";
import { numelOf, Tensor } from "../tensor";
import { constant_pad } from "./movement";
import { listOf, type Sizes } from "./spatial";

/** "same" gives as many places as the input has, "valid" is no padding. */
export type Padding = Sizes | "same" | "valid";

/**
 * Of the three tensors of a convolution, the one that is computed from the other two: the output of a convolution, the
 * input for its gradient or for a transposed convolution, the weight for its gradient.
 */
type Form = "input" | "weight" | "output";

interface Geometry {
  stride: readonly number[];
  padding: readonly number[];
  dilation: readonly number[];
  groups: number;
}

const TILE = 8;
const MOST_WORKGROUPS = 256; // of a weight's gradient: they fill usual GPUs
const LEAST_PIECE = 1024; // positions that a workgroup sums, so that the sums of sums cost little

/** Depth, height and width, with what is missing in front. */
const vector = (values: readonly number[], missing: number): number[] => [
  ...new Array<number>(3 - values.length).fill(missing),
  ...values,
];

// A divisor with its multiplier (Granlund and Montgomery) and shift, as the kernel divides.
function divisor(number: number): number[] {
  const d = Math.max(number, 1);
  const shift = 32 - Math.clz32(d - 1);
  const multiplier = ((1n << 32n) * ((1n << BigInt(shift)) - BigInt(d))) / BigInt(d) + 1n;
  return [d, Number(multiplier), shift];
}

// What splits a flat index over these sizes into coordinates.
function divisors(of: "tap" | "position", sizes: readonly number[]): Record<string, number[]> {
  const [depth, height, width] = vector(sizes, 1) as [number, number, number];
  return {
    [`${of}_volume`]: divisor(depth * height * width),
    [`${of}_plane`]: divisor(height * width),
    [`${of}_row`]: divisor(width),
  };
}

interface Product {
  m: number;
  n: number;
  k: number;
  /** A's strides: of a group, a row and a column; and of an image or channel where columns have two levels. */
  a: [number, number, number, number];
  /** C's likewise. */
  c: [number, number, number, number];
}

// The product of a form. Operand A is read row by row, the kernel gathers the elements of B.
function productOf(
  form: Form,
  x: Tensor,
  w: Tensor,
  y: Tensor,
  groups: number,
): [a: Tensor, b: Tensor, product: Product] {
  const [taps, positions] = [numelOf(w.shape.slice(2)), numelOf(y.shape.slice(2))];
  const [outs, ins, pixels] = [w.shape[0]! / groups, w.shape[1]!, numelOf(x.shape.slice(2))];
  switch (form) {
    case "output":
      return [
        w,
        x,
        {
          ...{ m: outs, n: y.shape[0]! * positions, k: ins * taps },
          a: [outs * ins * taps, ins * taps, 1, 0],
          c: [outs * positions, positions, 1, outs * groups * positions],
        },
      ];
    case "input":
      return [
        w,
        y,
        {
          ...{ m: ins, n: x.shape[0]! * pixels, k: outs * taps },
          a: [outs * ins * taps, taps, 1, ins * taps],
          c: [ins * pixels, pixels, 1, ins * groups * pixels],
        },
      ];
    case "weight":
      return [
        y,
        x,
        {
          ...{ m: outs, n: ins * taps, k: y.shape[0]! * positions },
          a: [outs * positions, positions, 1, outs * groups * positions],
          c: [outs * ins * taps, ins * taps, 1, 0],
        },
      ];
  }
}

// Writes the tensor of the form. With few results from many positions, workgroups sum a part of them each.
function compute(
  form: Form,
  of: Record<Form, Tensor>,
  geometry: Geometry,
  bias: Tensor | undefined,
): Tensor {
  const { groups } = geometry;
  const [a, b, { m, n, k, a: aStrides, c: cStrides }] = productOf(
    ...([form, of.input, of.weight, of.output, groups] as const),
  );
  const direct = m < 8 || n < 8;
  const [tilesM, tilesN] = [Math.ceil(m / (4 * TILE)), Math.ceil(n / (4 * TILE))];
  const workgroups = direct ? Math.ceil((m * n * groups) / 64) : tilesM * tilesN * groups;
  const splits = Math.max(
    1,
    Math.min(
      form === "weight" ? Math.floor(MOST_WORKGROUPS / workgroups) : 1,
      Math.ceil(k / LEAST_PIECE),
      // Sums of parts take no more memory than the operands.
      Math.floor((a.numel() + b.numel()) / of[form].numel()),
    ),
  );
  const out =
    splits === 1
      ? of[form]
      : Tensor.empty([splits, ...of[form].shape], a.is_floating_point() ? "float32" : a.dtype);
  const spatial = b.strides.slice(2);
  launch({
    ...{ label: "convolution", kernel: "conv_product" },
    operands: { c: out, a: a.contiguous(), b, d: bias },
    consts: {
      ...{ direct, tile: TILE, scaled: false, flipped: false, fused_text: 0, fused_page: 0 },
      ...{ form, strided: geometry.stride.some((step) => step !== 1) },
    },
    params: {
      ...{ m, n, k, batch: groups, tiles_m: tilesM, tiles_n: tilesN },
      ...{ splits, k_piece: Math.ceil(k / splits) },
      ...{ a_batch: aStrides[0], a_row: aStrides[1], a_column: aStrides[2], a_outer: aStrides[3] },
      ...{ c_batch: cStrides[0], c_row: cStrides[1], c_column: cStrides[2], c_outer: cStrides[3] },
      b_batch: (b.shape[1]! / groups) * b.strides[1]!,
      ...{ b_image: b.strides[0]!, b_channel: b.strides[1]! },
      ...{ b_strides: vector(spatial, 0), b_sizes: vector(b.shape.slice(2), 1) },
      ...{ d_batch: m * (bias?.strides[0] ?? 0), d_row: bias?.strides[0] ?? 0 },
      ...{ a_along_k: 1, b_along_k: form === "weight" ? 1 : 0, lanes: 1 },
      ...divisors("tap", of.weight.shape.slice(2)),
      ...divisors("position", of[form === "input" ? "input" : "output"].shape.slice(2)),
      ...{ stride: vector(geometry.stride, 1), padding: vector(geometry.padding, 0) },
      dilation: vector(geometry.dilation, 1),
    },
    workgroups: direct ? Math.ceil((m * n * groups * splits) / 64) : workgroups * splits,
  });
  return splits === 1 ? out : out.sum(0, false, { dtype: a.dtype });
}

const FORMS = ["input", "weight", "output"] as const;

// Each of the three tensors is linear in both others, and its gradients are convolutions of the other forms.
function convolve(
  form: Form,
  given: Partial<Record<Form, Tensor>>,
  shape: readonly number[],
  geometry: Geometry,
  bias?: Tensor,
): Tensor {
  const from = FORMS.filter((one) => one !== form);
  const tensors = from.map((one) => given[one]!);
  const empty = Tensor.empty(shape, tensors[0]!.dtype);
  const plain = Object.fromEntries(from.map((one) => [one, given[one]!.detach()]));
  const all = { ...plain, [form]: empty } as Record<Form, Tensor>;
  const out = numelOf(shape) === 0 ? empty : compute(form, all, geometry, bias?.detach());
  const reads = tensors.map(saved);
  return record(out, "ConvolutionBackward0", [...tensors, bias], (g) => [
    ...from.map((wanted, k) =>
      tensors[k]!.requires_grad
        ? convolve(
            wanted,
            { [form]: g, [from[1 - k]!]: reads[1 - k]!() },
            tensors[k]!.shape,
            geometry,
          )
        : undefined,
    ),
    bias?.requires_grad === true
      ? g.sum(g.shape.map((_, d) => d).filter((d) => d !== 1))
      : undefined,
  ]);
}

const shown = (values: readonly number[]): string => `[${values.join(", ")}]`;

function checkOperands(
  name: string,
  dims: number,
  input: Tensor,
  weight: Tensor,
  bias: Tensor | undefined,
): void {
  check(
    weight.dim() === dims + 2 && (input.dim() === dims + 1 || input.dim() === dims + 2),
    () =>
      `Expected ${dims + 1}D (unbatched) or ${dims + 2}D (batched) input to ${name}, and a weight of ${dims + 2}D, ` +
      `but got sizes ${shown(input.shape)} and ${shown(weight.shape)}`,
  );
  check(
    numelOf(weight.shape.slice(2)) > 0,
    () => `kernel size should be greater than zero, but got ${shown(weight.shape.slice(2))}`,
  );
  check(
    numelOf(input.shape.slice(-dims)) > 0,
    () =>
      `Only zero batch or zero channel inputs are supported, but got input shape: ${shown(input.shape)}`,
  );
  for (const [what, one] of [["weight", weight] as const, ["bias", bias] as const]) {
    check(
      one === undefined || one.dtype === input.dtype,
      () => `Input type (${input.dtype}) and ${what} type (${one!.dtype}) should be the same`,
    );
  }
}

function checkBias(bias: Tensor | undefined, weight: Tensor, channels: number): void {
  check(
    bias === undefined || bias.shape.join() === String(channels),
    () =>
      `Given weight of size ${shown(weight.shape)}, expected bias to be 1-dimensional with ${channels} elements, ` +
      `but got bias of size ${shown(bias!.shape)} instead`,
  );
}

function geometryOf(
  dims: number,
  stride: Sizes,
  padding: Sizes,
  dilation: Sizes,
  groups: number,
): Geometry {
  const geometry = {
    stride: listOf(stride, dims, "stride"),
    padding: listOf(padding, dims, "padding"),
    dilation: listOf(dilation, dims, "dilation"),
    groups,
  };
  check(
    geometry.stride.every((step) => step > 0),
    () => "non-positive stride is not supported",
  );
  check(
    geometry.padding.every((size) => size >= 0),
    () => "negative padding is not supported",
  );
  check(
    geometry.dilation.every((step) => step > 0),
    () => "dilation should be greater than zero",
  );
  check(groups > 0, () => "non-positive groups is not supported");
  return geometry;
}

// The padding in numbers, and the image with what is more behind it than before.
function padded(
  image: Tensor,
  kernel: readonly number[],
  padding: Padding,
  stride: readonly number[],
  dilation: readonly number[],
): [Tensor, Sizes] {
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
    stride.every((step) => step === 1),
    () => "padding='same' is not supported for strided convolutions",
  );
  const whole = kernel.map((size, d) => dilation[d]! * (size - 1));
  const wider = whole.some((size) => size % 2 === 1)
    ? constant_pad(image, whole.flatMap((size) => [size % 2, 0]).reverse())
    : image;
  return [wider, whole.map((size) => Math.floor(size / 2))];
}

/** nn.functional.conv1d to conv3d. */
function convolution(dims: number) {
  const name = `conv${dims}d`;
  return (
    input: Tensor,
    weight: Tensor,
    bias?: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups = 1,
  ): Tensor => {
    checkOperands(name, dims, input, weight, bias);
    const batched = input.dim() === dims + 2;
    const kernel = weight.shape.slice(2);
    const [image, around] = padded(
      ...([batched ? input : input.unsqueeze(0), kernel, padding] as const),
      ...([listOf(stride, dims, "stride"), listOf(dilation, dims, "dilation")] as const),
    );
    const geometry = geometryOf(dims, stride, around, dilation, groups);
    const [outs, ins] = weight.shape as [number, number];
    check(
      ins * groups === image.shape[1] && outs > 0 && outs % groups === 0,
      () =>
        `Given groups=${groups}, weight of size ${shown(weight.shape)}, expected input${shown(input.shape)} ` +
        `to have ${ins * groups} channels, but got ${String(image.shape[1])} channels instead`,
    );
    checkBias(bias, weight, outs);
    const room = image.shape.slice(2).map((size, d) => size + 2 * geometry.padding[d]!);
    const reach = kernel.map((size, d) => geometry.dilation[d]! * (size - 1) + 1);
    check(
      reach.every((size, d) => size <= room[d]!),
      () =>
        `Calculated padded input size per channel: (${room.join(" x ")}). ` +
        `Kernel size: (${reach.join(" x ")}). Kernel size can't be greater than actual input size`,
    );
    const places = room.map((size, d) => Math.floor((size - reach[d]!) / geometry.stride[d]!) + 1);
    const shape = [image.shape[0]!, outs, ...places];
    const out = convolve("output", { input: image, weight }, shape, geometry, bias);
    return batched ? out : out.squeeze(0);
  };
}

/** nn.functional.conv_transpose1d to conv_transpose3d: the gradient of a convolution for its input. */
function transposedConvolution(dims: number) {
  const name = `conv_transpose${dims}d`;
  return (
    input: Tensor,
    weight: Tensor,
    bias?: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups = 1,
    dilation: Sizes = 1,
  ): Tensor => {
    checkOperands(name, dims, input, weight, bias);
    const batched = input.dim() === dims + 2;
    const image = batched ? input : input.unsqueeze(0);
    const geometry = geometryOf(dims, stride, padding, dilation, groups);
    const extra = listOf(output_padding, dims, "output_padding");
    check(
      extra.every((size) => size >= 0),
      () => "negative output_padding is not supported",
    );
    check(
      extra.every((size, d) => size < Math.max(geometry.stride[d]!, geometry.dilation[d]!)),
      () =>
        "output padding must be smaller than either stride or dilation, but got output_padding: " +
        `${shown(extra)}, stride: ${shown(geometry.stride)}, dilation: ${shown(geometry.dilation)}`,
    );
    const [ins, outs] = weight.shape as [number, number];
    check(
      ins === image.shape[1] && ins % groups === 0,
      () =>
        `Given transposed=1, weight of size ${shown(weight.shape)}, expected input${shown(input.shape)} ` +
        `to have ${ins} channels, but got ${String(image.shape[1])} channels instead`,
    );
    checkBias(bias, weight, outs * groups);
    const sizes = image.shape
      .slice(2)
      .map(
        (size, d) =>
          (size - 1) * geometry.stride[d]! -
          2 * geometry.padding[d]! +
          geometry.dilation[d]! * (weight.shape[d + 2]! - 1) +
          extra[d]! +
          1,
      );
    check(
      sizes.every((size) => size > 0),
      () =>
        `Given input size per channel: (${image.shape.slice(2).join(" x ")}). Calculated output ` +
        `size per channel: (${sizes.join(" x ")}). Output size is too small`,
    );
    const shape = [image.shape[0]!, outs * groups, ...sizes];
    const out = convolve("input", { output: image, weight }, shape, geometry, bias);
    return batched ? out : out.squeeze(0);
  };
}

export const conv1d = convolution(1);
export const conv2d = convolution(2);
export const conv3d = convolution(3);
export const conv_transpose1d = transposedConvolution(1);
export const conv_transpose2d = transposedConvolution(2);
export const conv_transpose3d = transposedConvolution(3);
