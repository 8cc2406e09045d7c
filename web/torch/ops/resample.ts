// Resampling to another size (csrc/ops/resample).
import { record } from "../autograd";
import { isFloating } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { launch } from "../launch";
import { Tensor } from "../tensor";
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
  const given = [size, scale_factor].filter((one) => one !== undefined);
  check(given.length === 1, () =>
    given.length === 0
      ? "either size or scale_factor should be defined"
      : "only one of size or scale_factor should be defined",
  );
  const spatial = input.shape.slice(2);
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
    [...spatial, ...out].every((length) => length > 0),
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
