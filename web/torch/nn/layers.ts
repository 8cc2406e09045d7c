// Layers by PyTorch's names, with its parameters' names, shapes and first values.
import type { ClassLoss } from "../ops/loss";
import type { Padding } from "../ops/conv";
import type { PadMode } from "../ops/pad";
import { listOf, type Sizes } from "../ops/spatial";
import * as f from "./functional";
import { full, ones, tensor, zeros } from "../ops/factory";
import { randn } from "../ops/random";
import { uniform } from "./init";
import { Module, Parameter } from "./module";
import { numelOf, type Tensor } from "../tensor";
import { check, NotImplementedError } from "../errors";

export interface Bias {
  bias?: boolean;
}

export class Identity extends Module {
  override forward(input: Tensor): Tensor {
    return input;
  }
}

export class Linear extends Module {
  weight: Parameter;
  bias: Parameter | undefined;

  constructor(in_features: number, out_features: number, { bias = true }: Bias = {}) {
    super();
    const bound = in_features > 0 ? 1 / Math.sqrt(in_features) : 0;
    this.weight = uniform([out_features, in_features], bound);
    this.bias = bias ? uniform([out_features], bound) : undefined;
  }

  override forward(input: Tensor): Tensor {
    return f.linear(input, this.weight, this.bias);
  }
}

export interface TransposedOptions extends Bias {
  stride?: Sizes;
  padding?: Sizes;
  output_padding?: Sizes;
  dilation?: Sizes;
  groups?: number;
}

export interface ConvOptions extends Bias {
  stride?: Sizes;
  padding?: Padding;
  dilation?: Sizes;
  groups?: number;
  padding_mode?: "zeros" | Exclude<PadMode, "constant">;
}

/** What the layers of all dimensions take. */
type Layer<Options> = [
  in_channels: number,
  out_channels: number,
  kernel_size: Sizes,
  options?: Options,
];

const CONVOLUTIONS = { 1: f.conv1d, 2: f.conv2d, 3: f.conv3d } as const;
const TRANSPOSED = { 1: f.conv_transpose1d, 2: f.conv_transpose2d, 3: f.conv_transpose3d } as const;

/** A weight of [out or in channels, channels of a group, ...kernel], and a bias for each output. */
abstract class ConvolutionLayer<Options extends ConvOptions | TransposedOptions> extends Module {
  weight: Parameter;
  bias: Parameter | undefined;

  constructor(
    protected readonly dims: 1 | 2 | 3,
    protected readonly options: Options,
    channels: readonly [of: number, split: number],
    out_channels: number,
    kernel_size: Sizes,
  ) {
    super();
    const groups = options.groups ?? 1;
    const [of, split] = channels;
    check(groups > 0, () => "groups must be a positive integer");
    check(of % groups === 0, () => "the channels must be divisible by groups");
    check(split % groups === 0, () => "the channels must be divisible by groups");
    const kernel = listOf(kernel_size, dims, "kernel_size");
    const shape = [of, split / groups, ...kernel];
    const bound = 1 / Math.sqrt(numelOf(shape.slice(1)));
    this.weight = uniform(shape, bound);
    this.bias = (options.bias ?? true) ? uniform([out_channels], bound) : undefined;
  }
}

class Convolution extends ConvolutionLayer<ConvOptions> {
  constructor(dims: 1 | 2 | 3, ...[ins, outs, kernel_size, options = {}]: Layer<ConvOptions>) {
    super(dims, options, [outs, ins], outs, kernel_size);
    const { padding_mode = "zeros", padding = 0, stride = 1 } = options;
    if (!["zeros", "reflect", "replicate", "circular"].includes(padding_mode)) {
      throw new RangeError(
        "padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got " +
          `padding_mode='${padding_mode}'`,
      );
    }
    if (typeof padding === "string" && !["same", "valid"].includes(padding)) {
      throw new RangeError(
        `Invalid padding string '${String(padding)}', should be one of {'valid', 'same'}`,
      );
    }
    if (padding === "same" && [stride].flat().some((step) => step !== 1)) {
      throw new RangeError("padding='same' is not supported for strided convolutions");
    }
  }

  override forward(input: Tensor): Tensor {
    const { stride, padding, dilation, groups, padding_mode = "zeros" } = this.options;
    const call = CONVOLUTIONS[this.dims];
    if (padding_mode === "zeros") {
      return call(input, this.weight, this.bias, stride, padding, dilation, groups);
    }
    const image = f.pad(input, this.around(), padding_mode);
    return call(image, this.weight, this.bias, stride, 0, dilation, groups);
  }

  // The padding before and behind, from the last dimension.
  private around(): number[] {
    const { padding = 0, dilation = 1 } = this.options;
    const steps = listOf(dilation, this.dims, "dilation");
    const whole =
      padding === "same"
        ? steps.map((step, d) => step * (this.weight.shape[d + 2]! - 1))
        : listOf(padding === "valid" ? 0 : padding, this.dims, "padding").map((size) => 2 * size);
    return whole.reverse().flatMap((size) => [Math.floor(size / 2), Math.ceil(size / 2)]);
  }
}

class TransposedConvolution extends ConvolutionLayer<TransposedOptions> {
  constructor(
    dims: 1 | 2 | 3,
    ...[ins, outs, kernel_size, options = {}]: Layer<TransposedOptions>
  ) {
    super(dims, options, [ins, outs], outs, kernel_size);
  }

  /** `output_size` chooses among the sizes that a stride leaves open. */
  override forward(input: Tensor, output_size?: readonly number[]): Tensor {
    const { stride, padding, groups, dilation } = this.options;
    return TRANSPOSED[this.dims](
      ...([input, this.weight, this.bias, stride, padding] as const),
      ...([this.extra(input, output_size), groups, dilation] as const),
    );
  }

  private extra(input: Tensor, output_size?: readonly number[]): Sizes {
    const { stride = 1, padding = 0, dilation = 1, output_padding = 0 } = this.options;
    if (output_size === undefined) {
      return output_padding;
    }
    const lists = [stride, padding, dilation].map((value) => listOf(value, this.dims, "size"));
    const [steps, around, spread] = lists as [number[], number[], number[]];
    return output_size.slice(-this.dims).map((wanted, d) => {
      const size = input.shape.at(d - this.dims)!;
      const reach = spread[d]! * (this.weight.shape[d + 2]! - 1) + 1;
      const least = (size - 1) * steps[d]! - 2 * around[d]! + reach;
      if (wanted < least || wanted >= least + steps[d]!) {
        throw new RangeError(
          `requested an output size of ${output_size.join(", ")}, but valid sizes of dimension ${d} ` +
            `range from ${least} to ${least + steps[d]! - 1}`,
        );
      }
      return wanted - least;
    });
  }
}

export class Conv1d extends Convolution {
  constructor(...args: Layer<ConvOptions>) {
    super(1, ...args);
  }
}
export class Conv2d extends Convolution {
  constructor(...args: Layer<ConvOptions>) {
    super(2, ...args);
  }
}
export class Conv3d extends Convolution {
  constructor(...args: Layer<ConvOptions>) {
    super(3, ...args);
  }
}
export class ConvTranspose1d extends TransposedConvolution {
  constructor(...args: Layer<TransposedOptions>) {
    super(1, ...args);
  }
}
export class ConvTranspose2d extends TransposedConvolution {
  constructor(...args: Layer<TransposedOptions>) {
    super(2, ...args);
  }
}
export class ConvTranspose3d extends TransposedConvolution {
  constructor(...args: Layer<TransposedOptions>) {
    super(3, ...args);
  }
}

export class Embedding extends Module {
  weight: Parameter;

  constructor(
    num_embeddings: number,
    embedding_dim: number,
    private readonly options: { padding_idx?: number } = {},
  ) {
    super();
    const { padding_idx } = options;
    check(
      padding_idx === undefined || (padding_idx < num_embeddings && padding_idx >= -num_embeddings),
      () => "Padding_idx must be within num_embeddings",
    );
    this.weight = new Parameter(randn([num_embeddings, embedding_dim]));
    if (padding_idx !== undefined) {
      this.weight.detach().select(0, padding_idx).zero_();
    }
  }

  override forward(input: Tensor): Tensor {
    return f.embedding(input, this.weight, this.options.padding_idx);
  }
}

export interface Affine {
  eps?: number;
  elementwise_affine?: boolean;
  bias?: boolean;
}

export class LayerNorm extends Module {
  weight: Parameter | undefined;
  bias: Parameter | undefined;
  private readonly shape: readonly number[];

  constructor(
    normalized_shape: number | readonly number[],
    private readonly options: Affine = {},
  ) {
    super();
    this.shape = [normalized_shape].flat();
    const affine = options.elementwise_affine ?? true;
    this.weight = affine ? new Parameter(ones(this.shape)) : undefined;
    this.bias = affine && (options.bias ?? true) ? new Parameter(zeros(this.shape)) : undefined;
  }

  override forward(input: Tensor): Tensor {
    return f.layer_norm(input, this.shape, this.weight, this.bias, this.options.eps);
  }
}

export class RMSNorm extends Module {
  weight: Parameter | undefined;
  private readonly shape: readonly number[];

  constructor(
    normalized_shape: number | readonly number[],
    private readonly options: Affine = {},
  ) {
    super();
    this.shape = [normalized_shape].flat();
    this.weight =
      (options.elementwise_affine ?? true) ? new Parameter(ones(this.shape)) : undefined;
  }

  override forward(input: Tensor): Tensor {
    return f.rms_norm(input, this.shape, this.weight, this.options.eps);
  }
}

export interface BatchNormOptions {
  eps?: number;
  momentum?: number;
  affine?: boolean;
  track_running_stats?: boolean;
}

// In Python, None asks for the average of all batches.
function checkMomentum(name: string, { momentum }: BatchNormOptions): void {
  if ((momentum as unknown) === null) {
    throw new NotImplementedError(`${name}: the average of all batches (momentum null)`);
  }
}

class BatchNorm extends Module {
  weight: Parameter | undefined;
  bias: Parameter | undefined;
  declare running_mean: Tensor | undefined;
  declare running_var: Tensor | undefined;
  declare num_batches_tracked: Tensor | undefined;

  constructor(
    num_features: number,
    private readonly options: BatchNormOptions,
    private readonly ranks: readonly number[],
  ) {
    super();
    checkMomentum("BatchNorm", options);
    const affine = options.affine ?? true;
    this.weight = affine ? new Parameter(ones([num_features])) : undefined;
    this.bias = affine ? new Parameter(zeros([num_features])) : undefined;
    if (options.track_running_stats ?? true) {
      this.register_buffer("running_mean", zeros([num_features]));
      this.register_buffer("running_var", ones([num_features]));
      this.register_buffer("num_batches_tracked", tensor(0));
    }
  }

  override forward(input: Tensor): Tensor {
    if (!this.ranks.includes(input.dim())) {
      throw new RangeError(
        `expected ${this.ranks.map((rank) => `${rank}D`).join(" or ")} input (got ${input.dim()}D input)`,
      );
    }
    if (this.training) {
      this.num_batches_tracked?.add_(1);
    }
    return f.batch_norm(
      ...([input, this.running_mean, this.running_var, this.weight, this.bias] as const),
      ...([this.training || this.running_mean === undefined] as const),
      ...([this.options.momentum, this.options.eps] as const),
    );
  }
}
export class BatchNorm1d extends BatchNorm {
  constructor(num_features: number, options: BatchNormOptions = {}) {
    super(num_features, options, [2, 3]);
  }
}
export class BatchNorm2d extends BatchNorm {
  constructor(num_features: number, options: BatchNormOptions = {}) {
    super(num_features, options, [4]);
  }
}
export class BatchNorm3d extends BatchNorm {
  constructor(num_features: number, options: BatchNormOptions = {}) {
    super(num_features, options, [5]);
  }
}

class InstanceNorm extends Module {
  weight: Parameter | undefined;
  bias: Parameter | undefined;
  declare running_mean: Tensor | undefined;
  declare running_var: Tensor | undefined;
  declare num_batches_tracked: Tensor | undefined;

  constructor(
    num_features: number,
    private readonly options: BatchNormOptions = {},
    private readonly dims: number,
  ) {
    super();
    checkMomentum("InstanceNorm", options);
    // Other than BatchNorm, it has neither unless asked.
    const { affine = false, track_running_stats = false } = options;
    this.weight = affine ? new Parameter(ones([num_features])) : undefined;
    this.bias = affine ? new Parameter(zeros([num_features])) : undefined;
    if (track_running_stats) {
      this.register_buffer("running_mean", zeros([num_features]));
      this.register_buffer("running_var", ones([num_features]));
      this.register_buffer("num_batches_tracked", tensor(0));
    }
  }

  override forward(input: Tensor): Tensor {
    check(
      input.dim() === this.dims || input.dim() === this.dims - 1,
      () => `expected ${this.dims - 1}D or ${this.dims}D input (got ${input.dim()}D input)`,
    );
    const one = input.dim() < this.dims;
    const out = f.instance_norm(
      ...([one ? input.unsqueeze(0) : input, this.running_mean, this.running_var] as const),
      ...([this.weight, this.bias, this.training || this.running_mean === undefined] as const),
      ...([this.options.momentum, this.options.eps] as const),
    );
    return one ? out.squeeze(0) : out;
  }
}
export class InstanceNorm1d extends InstanceNorm {
  constructor(num_features: number, options: BatchNormOptions = {}) {
    super(num_features, options, 3);
  }
}
export class InstanceNorm2d extends InstanceNorm {
  constructor(num_features: number, options: BatchNormOptions = {}) {
    super(num_features, options, 4);
  }
}
export class InstanceNorm3d extends InstanceNorm {
  constructor(num_features: number, options: BatchNormOptions = {}) {
    super(num_features, options, 5);
  }
}

export class GroupNorm extends Module {
  weight: Parameter | undefined;
  bias: Parameter | undefined;

  constructor(
    private readonly num_groups: number,
    num_channels: number,
    private readonly options: { eps?: number; affine?: boolean } = {},
  ) {
    super();
    if (num_channels % num_groups !== 0) {
      throw new RangeError(
        `num_channels (${num_channels}) must be divisible by num_groups (${num_groups})`,
      );
    }
    const affine = options.affine ?? true;
    this.weight = affine ? new Parameter(ones([num_channels])) : undefined;
    this.bias = affine ? new Parameter(zeros([num_channels])) : undefined;
  }

  override forward(input: Tensor): Tensor {
    return f.group_norm(input, this.num_groups, this.weight, this.bias, this.options.eps);
  }
}

/** A layer that drops elements in training. */
export type Dropping = new (p?: number) => { forward(input: Tensor): Tensor } & Module;

const dropping = (call: (input: Tensor, p?: number, train?: boolean) => Tensor): Dropping =>
  class extends Module {
    constructor(private readonly p = 0.5) {
      super();
      if (p < 0 || p > 1) {
        throw new RangeError(`dropout probability has to be between 0 and 1, but got ${p}`);
      }
    }

    override forward(input: Tensor): Tensor {
      return call(input, this.p, this.training);
    }
  };
export const Dropout = dropping(f.dropout);
export const Dropout1d = dropping(f.dropout1d);
export const Dropout2d = dropping(f.dropout2d);
export const Dropout3d = dropping(f.dropout3d);
export const AlphaDropout = dropping(f.alpha_dropout);
export const FeatureAlphaDropout = dropping(f.feature_alpha_dropout);

export class RReLU extends Module {
  constructor(
    private readonly lower = 1 / 8,
    private readonly upper = 1 / 3,
  ) {
    super();
  }

  override forward(input: Tensor): Tensor {
    return f.rrelu(input, this.lower, this.upper, this.training);
  }
}

export class Bilinear extends Module {
  weight: Parameter;
  bias: Parameter | undefined;

  constructor(
    in1_features: number,
    in2_features: number,
    out_features: number,
    { bias = true }: Bias = {},
  ) {
    super();
    check(in1_features > 0, () => `in1_features must be > 0, but got ${in1_features}`);
    const bound = 1 / Math.sqrt(in1_features);
    this.weight = uniform([out_features, in1_features, in2_features], bound);
    this.bias = bias ? uniform([out_features], bound) : undefined;
  }

  override forward(input1: Tensor, input2: Tensor): Tensor {
    return f.bilinear(input1, input2, this.weight, this.bias);
  }
}

export type UpsamplingSize = Pick<f.Resampling, "size" | "scale_factor">;

/** A layer of one function: `args` follow its input. */
export type Activation<A extends unknown[]> = new (
  ...args: A
) => { forward(input: Tensor): Tensor } & Module;

function activation<A extends unknown[]>(
  call: (input: Tensor, ...args: A) => Tensor,
): Activation<A> {
  return class extends Module {
    private readonly args: A;

    constructor(...args: A) {
      super();
      this.args = args;
    }

    override forward(input: Tensor): Tensor {
      return call(input, ...this.args);
    }
  };
}

export const ReLU = activation(f.relu);
export const ReLU6 = activation(f.relu6);
export const GELU = activation(f.gelu);
export const Tanh = activation(f.tanh);
export const Sigmoid = activation(f.sigmoid);
export const SiLU = activation(f.silu);
export const Mish = activation(f.mish);
export const ELU = activation(f.elu);
export const SELU = activation(f.selu);
export const LeakyReLU = activation(f.leaky_relu);
export const Softplus = activation(f.softplus);
export const Hardswish = activation(f.hardswish);
export const Hardsigmoid = activation(f.hardsigmoid);
export const Softmax = activation(f.softmax);
export const LogSoftmax = activation(f.log_softmax);
export const Flatten = activation((input: Tensor, start_dim?: number, end_dim?: number) =>
  input.flatten(start_dim ?? 1, end_dim),
);
export const PixelShuffle = activation(f.pixel_shuffle);
export const PixelUnshuffle = activation(f.pixel_unshuffle);
export const ChannelShuffle = activation(f.channel_shuffle);
export const LocalResponseNorm = activation(f.local_response_norm);
export const LPPool1d = activation(f.lp_pool1d);
export const LPPool2d = activation(f.lp_pool2d);
export const LPPool3d = activation(f.lp_pool3d);
export const Fold = activation(f.fold);
export const Unfold = activation(f.unfold);
export const Softmax2d = activation((input: Tensor) => f.softmax(input, -3));
export const CELU = activation(f.celu);
export const GLU = activation(f.glu);
export const Hardshrink = activation(f.hardshrink);
export const Hardtanh = activation(f.hardtanh);
export const LogSigmoid = activation(f.logsigmoid);
export const Softmin = activation(f.softmin);
export const Softshrink = activation(f.softshrink);
export const Softsign = activation(f.softsign);
export const Tanhshrink = activation(f.tanhshrink);
export const Threshold = activation(f.threshold);
export const Unflatten = activation((input: Tensor, dim: number, sizes: readonly number[]) =>
  input.unflatten(dim, sizes),
);
export const MaxPool1d = activation(f.max_pool1d);
export const MaxPool2d = activation(f.max_pool2d);
export const MaxPool3d = activation(f.max_pool3d);
export const AvgPool1d = activation(f.avg_pool1d);
export const AvgPool2d = activation(f.avg_pool2d);
export const AvgPool3d = activation(f.avg_pool3d);
export const AdaptiveAvgPool1d = activation(f.adaptive_avg_pool1d);
export const AdaptiveAvgPool2d = activation(f.adaptive_avg_pool2d);
export const AdaptiveAvgPool3d = activation(f.adaptive_avg_pool3d);
export const AdaptiveMaxPool1d = activation(f.adaptive_max_pool1d);
export const AdaptiveMaxPool2d = activation(f.adaptive_max_pool2d);
export const AdaptiveMaxPool3d = activation(f.adaptive_max_pool3d);

/** Layers that pad. `value` is that of a constant. */
const padding = (dims: number, mode: PadMode) =>
  activation((input: Tensor, sizes: Sizes, value?: number) =>
    f.pad(input, listOf(sizes, 2 * dims, "padding"), mode, value),
  );
export const ConstantPad1d = padding(1, "constant");
export const ConstantPad2d = padding(2, "constant");
export const ConstantPad3d = padding(3, "constant");
export const ZeroPad1d = padding(1, "constant");
export const ZeroPad2d = padding(2, "constant");
export const ZeroPad3d = padding(3, "constant");
export const ReflectionPad1d = padding(1, "reflect");
export const ReflectionPad2d = padding(2, "reflect");
export const ReflectionPad3d = padding(3, "reflect");
export const ReplicationPad1d = padding(1, "replicate");
export const ReplicationPad2d = padding(2, "replicate");
export const ReplicationPad3d = padding(3, "replicate");
export const CircularPad1d = padding(1, "circular");
export const CircularPad2d = padding(2, "circular");
export const CircularPad3d = padding(3, "circular");

/** Resampling: `new nn.Upsample({ scale_factor: 2, mode: "bilinear" })`. */
export class Upsample extends Module {
  constructor(private readonly options: f.Resampling = {}) {
    super();
  }

  override forward(input: Tensor): Tensor {
    return f.interpolate(input, this.options);
  }
}
export const UpsamplingNearest2d = activation((input: Tensor, options: UpsamplingSize) =>
  f.interpolate(input, { ...options, mode: "nearest" }),
);
export const UpsamplingBilinear2d = activation((input: Tensor, options: UpsamplingSize) =>
  f.interpolate(input, { ...options, mode: "bilinear", align_corners: true }),
);

/** A layer of two tensors. */
export type Pairwise<A extends unknown[]> = new (
  ...args: A
) => { forward(first: Tensor, second: Tensor): Tensor } & Module;

function pairwise<A extends unknown[]>(
  call: (first: Tensor, second: Tensor, ...args: A) => Tensor,
): Pairwise<A> {
  return class extends Module {
    private readonly args: A;

    constructor(...args: A) {
      super();
      this.args = args;
    }

    override forward(first: Tensor, second: Tensor): Tensor {
      return call(first, second, ...this.args);
    }
  };
}
export const CosineSimilarity = pairwise(f.cosine_similarity);
export const PairwiseDistance = pairwise(f.pairwise_distance);

const unpooling = (
  call: typeof f.max_unpool1d,
): new (
  kernel_size: Sizes,
  stride?: Sizes,
  padding?: Sizes,
) => {
  forward(input: Tensor, indices: Tensor, output_size?: readonly number[]): Tensor;
} & Module =>
  class extends Module {
    constructor(
      private readonly kernel_size: Sizes,
      private readonly stride?: Sizes,
      private readonly padding?: Sizes,
    ) {
      super();
    }

    override forward(input: Tensor, indices: Tensor, output_size?: readonly number[]): Tensor {
      return call(input, indices, this.kernel_size, this.stride, this.padding, output_size);
    }
  };
export const MaxUnpool1d = unpooling(f.max_unpool1d);
export const MaxUnpool2d = unpooling(f.max_unpool2d);
export const MaxUnpool3d = unpooling(f.max_unpool3d);

export class PReLU extends Module {
  weight: Parameter;

  constructor({
    num_parameters = 1,
    init = 0.25,
  }: { num_parameters?: number; init?: number } = {}) {
    super();
    this.weight = new Parameter(full([num_parameters], init, { dtype: "float32" }));
  }

  override forward(input: Tensor): Tensor {
    return f.prelu(input, this.weight);
  }
}

function checkModule(module: unknown): void {
  if (!(module instanceof Module)) {
    throw new TypeError(`${String(module)} is not a Module subclass`);
  }
}

export class Sequential extends Module {
  readonly length: number;

  constructor(...modules: Module[]) {
    super();
    this.length = modules.length;
    modules.forEach(checkModule);
    modules.forEach((module, k) => Object.assign(this, { [String(k)]: module }));
  }

  override forward(input: Tensor): Tensor {
    return this.named_children().reduce((x, [, module]) => module.forward(x) as Tensor, input);
  }
}

export class ModuleList extends Module implements Iterable<Module> {
  constructor(modules: readonly Module[] = []) {
    super();
    modules.forEach((module) => this.append(module));
  }

  get length(): number {
    return this.named_children().length;
  }

  append(module: Module): this {
    checkModule(module);
    return Object.assign(this, { [String(this.length)]: module });
  }

  [Symbol.iterator](): Iterator<Module> {
    return new Set(this.named_children().map(([, module]) => module)).values();
  }

  override forward(): never {
    throw new NotImplementedError("a ModuleList has no forward()");
  }
}

export class ParameterList extends Module implements Iterable<Parameter> {
  constructor(parameters: readonly Tensor[] = []) {
    super();
    parameters.forEach((one) => this.append(one));
  }

  private all(): Parameter[] {
    return Object.values(this).filter((one): one is Parameter => one instanceof Parameter);
  }

  get length(): number {
    return this.all().length;
  }

  /** A tensor becomes a parameter. */
  append(parameter: Tensor): this {
    const own = parameter instanceof Parameter ? parameter : new Parameter(parameter);
    return Object.assign(this, { [String(this.length)]: own });
  }

  [Symbol.iterator](): Iterator<Parameter> {
    return this.all().values();
  }

  override forward(): never {
    throw new NotImplementedError("a ParameterList has no forward()");
  }
}

export class ModuleDict extends Module implements Iterable<string> {
  constructor(modules: Record<string, Module> = {}) {
    super();
    this.update(modules);
  }

  get length(): number {
    return this.named_children().length;
  }

  /** The module of a name. */
  get(name: string): Module {
    const found = new Map(this.named_children()).get(name);
    if (found === undefined) {
      throw new RangeError(`the ModuleDict has no ${name}`);
    }
    return found;
  }

  update(modules: Record<string, Module>): this {
    for (const [name, module] of Object.entries(modules)) {
      checkModule(module);
      // A member of this name would be lost.
      check(
        !(name in this) || this.named_children().some(([other]) => other === name),
        () => `attribute '${name}' already exists`,
      );
      Object.assign(this, { [name]: module });
    }
    return this;
  }

  keys(): string[] {
    return this.named_children().map(([name]) => name);
  }

  values(): Module[] {
    return this.named_children().map(([, module]) => module);
  }

  items(): [string, Module][] {
    return this.named_children();
  }

  [Symbol.iterator](): Iterator<string> {
    return this.keys().values();
  }

  override forward(): never {
    throw new NotImplementedError("a ModuleDict has no forward()");
  }
}

// Losses as modules.
export interface WithReduction {
  reduction?: "mean" | "sum" | "none";
}
/** A loss as a layer, with the options of its function. */
export type Loss<O> = new (
  options?: O,
) => { forward(input: Tensor, target: Tensor): Tensor } & Module;

function lossModule<O extends object>(
  call: (input: Tensor, target: Tensor, options?: O) => Tensor,
): Loss<O> {
  return class extends Module {
    constructor(private readonly options?: O) {
      super();
    }

    override forward(input: Tensor, target: Tensor): Tensor {
      return call(input, target, this.options);
    }
  };
}

export const MSELoss = lossModule<WithReduction>(f.mse_loss);
export const L1Loss = lossModule<WithReduction>(f.l1_loss);
export const SmoothL1Loss = lossModule<WithReduction & { beta?: number }>(f.smooth_l1_loss);
export const HuberLoss = lossModule<WithReduction & { delta?: number }>(f.huber_loss);
export const BCELoss = lossModule<WithReduction & { weight?: Tensor }>(f.binary_cross_entropy);
export const BCEWithLogitsLoss = lossModule<
  WithReduction & { weight?: Tensor; pos_weight?: Tensor }
>(f.binary_cross_entropy_with_logits);
export const NLLLoss = lossModule<ClassLoss>(f.nll_loss);
export const CrossEntropyLoss = lossModule<ClassLoss & { label_smoothing?: number }>(
  f.cross_entropy,
);
export const KLDivLoss = lossModule<{
  reduction?: WithReduction["reduction"] | "batchmean";
  log_target?: boolean;
}>(f.kl_div);
export const SoftMarginLoss = lossModule<WithReduction>(f.soft_margin_loss);
export const MultiLabelSoftMarginLoss = lossModule<WithReduction & { weight?: Tensor }>(
  f.multilabel_soft_margin_loss,
);
export const MultiMarginLoss = lossModule<
  WithReduction & { p?: number; margin?: number; weight?: Tensor }
>(f.multi_margin_loss);
export const HingeEmbeddingLoss = lossModule<WithReduction & { margin?: number }>(
  f.hinge_embedding_loss,
);
export const PoissonNLLLoss = lossModule<Parameters<typeof f.poisson_nll_loss>[2] & object>(
  f.poisson_nll_loss,
);

/** A loss of three tensors. */
export type TripleLoss<O> = new (
  options?: O,
) => { forward(a: Tensor, b: Tensor, c: Tensor): Tensor } & Module;

function tripleLossModule<O extends object>(
  call: (a: Tensor, b: Tensor, c: Tensor, options?: O) => Tensor,
): TripleLoss<O> {
  return class extends Module {
    constructor(private readonly options?: O) {
      super();
    }

    override forward(a: Tensor, b: Tensor, c: Tensor): Tensor {
      return call(a, b, c, this.options);
    }
  };
}

export const CosineEmbeddingLoss = tripleLossModule<WithReduction & { margin?: number }>(
  f.cosine_embedding_loss,
);
export const MarginRankingLoss = tripleLossModule<WithReduction & { margin?: number }>(
  f.margin_ranking_loss,
);
export const TripletMarginLoss = tripleLossModule<f.Triplet>(f.triplet_margin_loss);
export const TripletMarginWithDistanceLoss = tripleLossModule<
  WithReduction & { distance_function?: f.Distance; margin?: number; swap?: boolean }
>(f.triplet_margin_with_distance_loss);
export const GaussianNLLLoss = tripleLossModule<WithReduction & { full?: boolean; eps?: number }>(
  f.gaussian_nll_loss,
);
