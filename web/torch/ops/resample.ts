// Resampling to another size (csrc/ops/resample).
import { record, saved } from "../autograd";
import { isFloating } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { launch } from "../launch";
import { checkArgument } from "../signatures";
import { numelOf, Tensor } from "../tensor";
import { zeros } from "./factory";
import { adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d } from "./pool";
import { listOf, type Sizes } from "./spatial";

export interface Resampling {
  size?: Sizes;
  scale_factor?: Sizes;
  mode?: "nearest" | "nearest-exact" | "linear" | "bilinear" | "bicubic" | "trilinear" | "area";
  align_corners?: boolean;
  recompute_scale_factor?: boolean;
  antialias?: boolean;
}

type Method = "nearest" | "nearest_exact" | "linear" | "cubic" | "linear_aa" | "cubic_aa";

/** The kernel's method of a mode, and of how many dimensions; undefined for any. */
const MODES: Record<Exclude<Resampling["mode"] & string, "area">, [Method, number | undefined]> = {
  nearest: ["nearest", undefined],
  "nearest-exact": ["nearest_exact", undefined],
  linear: ["linear", 1],
  bilinear: ["linear", 2],
  bicubic: ["cubic", 2],
  trilinear: ["linear", 3],
};
const AREA = [adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d];

interface Grid {
  method: Method;
  align: boolean;
  /** Cells of the input for one of the result, by dimension. */
  ratios: number[];
}

const step = ([, channel, ...spatial]: readonly number[], missing: number): number[] => [
  ...new Array<number>(3 - spatial.length).fill(missing),
  ...spatial,
  channel!,
];

// Writes `to` from `from`: the result from the input, or backward the gradient of the input from that of the result.
function resample(from: Tensor, shape: readonly number[], grid: Grid, backward: boolean): Tensor {
  const to = Tensor.empty(shape, from.dtype);
  const [small, large] = backward ? [to, from] : [from, to];
  const three = (values: readonly number[]): number[] => [
    ...new Array<number>(3 - values.length).fill(1),
    ...values,
  ];
  launch({
    ...{ label: "interpolate", kernel: backward ? "upsample_backward" : "upsample" },
    operands: { in: small, out: large },
    consts: { method: grid.method },
    params: {
      ...{ count: to.numel(), channels: shape[1]!, channels_last: 0 },
      ...{ align_corners: grid.align ? 1 : 0, radius: grid.method.startsWith("cubic") ? 2 : 1 },
      ...{ out_batch: large.strides[0]!, in_batch: small.strides[0]! },
      ...{ in_size: three(small.shape.slice(2)), out_size: three(large.shape.slice(2)) },
      scale: three(grid.ratios),
      ...{ out_step: step(large.strides, 0), in_step: step(small.strides, 0) },
    },
    invocations: to.numel(),
  });
  const before = from.shape;
  return record(to, backward ? "UpsampleBackwardBackward0" : "UpsampleBackward0", [from], (g) => [
    resample(g, before, grid, !backward),
  ]);
}

// As the C++ backend computes it: an equal or doubled size has the exact ratio.
function ratioOf(
  method: Method,
  dims: number,
  size: number,
  out: number,
  align: boolean,
  scale: number | undefined,
): number {
  if (method === "nearest" && dims === 2 && (out === size || out === 2 * size)) {
    return size / out;
  }
  if (method === "linear" && out === size) {
    return 1;
  }
  if (align) {
    return out > 1 ? (size - 1) / (out - 1) : 0;
  }
  return scale === undefined ? size / out : 1 / scale;
}

/** An image in another size: { size } or { scale_factor }, by the methods that `mode` names. */
export function interpolate(input: Tensor, options: Resampling = {}): Tensor {
  const { size, scale_factor, mode = "nearest", align_corners, antialias = false } = options;
  const dims = input.dim() - 2;
  if (dims < 1 || dims > 3) {
    throw new NotImplementedError(
      `Input Error: Only 3D, 4D and 5D input Tensors supported (got ${input.dim()}D)`,
    );
  }
  for (const one of [scale_factor].flat()) {
    checkArgument("interpolate", "scale_factor", "number", one);
  }
  const given = [size, scale_factor].filter((one) => one !== undefined);
  check(given.length === 1, () =>
    given.length === 0
      ? "either size or scale_factor should be defined"
      : "only one of size or scale_factor should be defined",
  );
  const spatial = input.shape.slice(2);
  // One number is of all dimensions, a list of one is not.
  const checkCount = (sizes: Sizes | undefined, name: string, found: string): void => {
    if (Array.isArray(sizes) && sizes.length !== dims) {
      throw new RangeError(
        `Input and ${name} must have the same number of spatial dimensions, but got input with spatial dimensions of ` +
          `[${spatial.join(", ")}] and ${found}.`,
      );
    }
  };
  checkCount(size, "output", `output size of [${String(size)}]`);
  checkCount(
    scale_factor,
    "scale_factor",
    `scale_factor of shape [${[scale_factor].flat().length}]`,
  );
  const scales =
    scale_factor === undefined ? undefined : listOf(scale_factor, dims, "scale_factor");
  check(
    options.recompute_scale_factor !== true || scales !== undefined,
    () => "recompute_scale_factor is not meaningful with an explicit size.",
  );
  const out =
    scales === undefined
      ? listOf(size!, dims, "size")
      : spatial.map((length, d) => Math.floor(length * scales[d]!));
  check(
    mode === "area" || [...spatial, ...out].every((length) => length > 0),
    () =>
      `Input and output sizes should be greater than 0, but got input (${spatial.join(", ")}) ` +
      `output (${out.join(", ")})`,
  );
  const corners = ["linear", "bilinear", "bicubic", "trilinear"].includes(mode);
  if (align_corners !== undefined && !corners) {
    throw new RangeError(
      "align_corners option can only be set with the interpolating modes: linear | bilinear | " +
        "bicubic | trilinear",
    );
  }
  if (antialias && (!["bilinear", "bicubic"].includes(mode) || dims !== 2)) {
    throw new RangeError(
      "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input",
    );
  }
  if (mode === "area") {
    return AREA[dims - 1]!(input, out);
  }
  if (!Object.hasOwn(MODES, mode)) {
    throw new NotImplementedError(`interpolate(): the mode ${String(mode)}`);
  }
  const [plain, of] = MODES[mode];
  if (of !== undefined && of !== dims) {
    throw new NotImplementedError(
      `Got ${dims + 2}D input, but ${mode} mode needs ${of + 2}D input`,
    );
  }
  if (!isFloating(input.dtype)) {
    throw new NotImplementedError(`interpolate() not implemented for ${input.dtype}`);
  }
  const method = antialias ? (`${plain}_aa` as Method) : plain;
  const align = align_corners ?? false;
  const kept = options.recompute_scale_factor === true ? undefined : scales;
  const ratios = spatial.map((length, d) =>
    ratioOf(method, dims, length, out[d]!, align, kept?.[d]),
  );
  const shape = [...input.shape.slice(0, 2), ...out];
  return resample(input, shape, { method, align, ratios }, false);
}

const INTERPOLATIONS = { bilinear: "linear", nearest: "nearest", bicubic: "cubic" } as const;
const PADDINGS = ["zeros", "border", "reflection"] as const;

/** `input` at the places of `grid`: [batch, ...places, coordinates], from -1 to 1, the last dimension's first. */
export function grid_sample(
  input: Tensor,
  grid: Tensor,
  mode: keyof typeof INTERPOLATIONS = "bilinear",
  padding_mode: (typeof PADDINGS)[number] = "zeros",
  align_corners = false,
): Tensor {
  const dims = input.dim() - 2;
  check(
    (dims === 2 || dims === 3) &&
      grid.dim() === input.dim() &&
      grid.shape.at(-1) === dims &&
      grid.shape[0] === input.shape[0] &&
      grid.dtype === input.dtype,
    () =>
      "grid_sampler(): expected input and grid to have same dtype and batch size, and grid to have " +
      `size ${dims} in last dimension, but got input with sizes [${input.shape.join(", ")}] and grid ` +
      `with sizes [${grid.shape.join(", ")}]`,
  );
  if (!Object.hasOwn(INTERPOLATIONS, mode) || !PADDINGS.includes(padding_mode)) {
    throw new RangeError(
      `nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic' and padding_mode ` +
        `'zeros', 'border' or 'reflection', but got: '${String(mode)}', '${String(padding_mode)}'`,
    );
  }
  if (mode === "bicubic" && dims === 3) {
    throw new NotImplementedError("grid_sampler(): bicubic interpolation only supports 4D input");
  }
  check(numelOf(input.shape.slice(2)) > 0, () => "grid_sampler(): expected input to be non-empty");
  // The grid with its coordinates as channels.
  const places = grid.movedim(-1, 1);
  const shape = [...input.shape.slice(0, 2), ...places.shape.slice(2)];
  const sizes = (of: readonly number[]): number[] => [
    ...new Array<number>(3 - dims).fill(1),
    ...of.slice(2),
  ];
  const out = Tensor.empty(shape, input.dtype);
  const common = {
    ...{ padding: PADDINGS.indexOf(padding_mode), align_corners: align_corners ? 1 : 0, dims },
    ...{ channels: shape[1]!, in_size: sizes(input.shape), out_size: sizes(shape) },
    ...{ in_batch: input.strides[0]!, in_step: step(input.strides, 0) },
    ...{ grid_batch: places.strides[0]!, grid_step: step(places.strides, 0) },
  };
  const consts = { interpolation: INTERPOLATIONS[mode] };
  launch({
    ...{ label: "grid_sample", kernel: "grid_sample", consts },
    operands: { out, in: input.detach(), grid: places.detach() },
    params: {
      ...{ ...common, count: out.numel() },
      ...{ out_batch: out.strides[0]!, out_step: step(out.strides, 0) },
    },
    invocations: out.numel(),
  });
  const [readInput, readPlaces] = [saved(input), saved(places)];
  return record(out, `GridSampler${dims}DBackward0`, [input, places], (g) => {
    const count = numelOf([shape[0]!, ...shape.slice(2)]);
    const gradPlaces = Tensor.empty(places.shape, input.dtype);
    const gradInput = input.requires_grad ? zeros(input.shape) : undefined;
    launch({
      ...{ label: "grid_sample", kernel: "grid_sample_backward", consts },
      operands: {
        ...{ out: g, in: readInput().detach(), grid: readPlaces().detach() },
        ...{ grad_grid: gradPlaces, grad_in: gradInput },
      },
      params: {
        ...{ ...common, count, out_batch: g.strides[0]!, out_step: step(g.strides, 0) },
        ...{ grad_grid_batch: gradPlaces.strides[0]!, grad_grid_step: step(gradPlaces.strides, 0) },
        grad_in_batch: gradInput?.strides[0] ?? 0,
        grad_in_step: gradInput === undefined ? [0, 0, 0, 0] : step(gradInput.strides, 0),
      },
      invocations: count,
    });
    // Second gradients are not implemented.
    const from = [g, input, places];
    return [
      gradInput && record(gradInput, "grid_sample_backward", from, undefined),
      record(gradPlaces, "grid_sample_backward", from, undefined),
    ];
  });
}
