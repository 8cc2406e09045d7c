// What functions and classes take. JavaScript drops arguments that nothing reads, so that a wrong name, or a value in
// the place of the options, would change nothing without a word: here they are errors. Only what users call is checked;
// the operators call each other without it.

/** Parameters by place, and behind a bar the names in a last object of options; `...` are any number of them. */
type Signature = string;

const TYPED = "dtype requires_grad";
const LOSS = "input target | reduction";

/** Functions, and methods without the tensor itself, that take options. No other takes an object. */
const FUNCTIONS: Record<string, Signature> = {
  // Factories and random numbers
  arange: `... | ${TYPED}`,
  empty: `size | ${TYPED}`,
  empty_like: `input | ${TYPED}`,
  eye: `n m | ${TYPED}`,
  full: `size fill_value | ${TYPED}`,
  full_like: `input fill_value | ${TYPED}`,
  linspace: `start end steps | ${TYPED}`,
  ones: `size | ${TYPED}`,
  ones_like: `input | ${TYPED}`,
  rand: `size | ${TYPED}`,
  rand_like: `input | ${TYPED}`,
  randint: `... | ${TYPED}`,
  randn: `size | ${TYPED}`,
  randn_like: `input | ${TYPED}`,
  randperm: `n | ${TYPED}`,
  tensor: `data | ${TYPED}`,
  zeros: `size | ${TYPED}`,
  zeros_like: `input | ${TYPED}`,
  // Arithmetic
  add: "input other | alpha",
  add_: "input other | alpha",
  addcdiv: "input tensor1 tensor2 | value",
  addcdiv_: "input tensor1 tensor2 | value",
  addcmul: "input tensor1 tensor2 | value",
  addcmul_: "input tensor1 tensor2 | value",
  div: "input other | rounding_mode",
  div_: "input other | rounding_mode",
  sub: "input other | alpha",
  sub_: "input other | alpha",
  // Indexing
  index_add: "input dim index source | alpha",
  scatter: "input dim index src | reduce",
  // Reductions
  mean: "input dim keepdim | dtype",
  std: "input dim | correction keepdim",
  sum: "input dim keepdim | dtype",
  var: "input dim | correction keepdim",
  var_mean: "input dim | correction keepdim",
  variance: "input dim | correction keepdim",
  // Comparison
  allclose: "input other | rtol atol equal_nan",
  isclose: "input other | rtol atol equal_nan",
  nonzero: "input | as_tuple",
  meshgrid: "... | indexing",
  // Products
  addbmm: "input batch1 batch2 | beta alpha",
  addmm: "input mat1 mat2 | beta alpha",
  addmv: "input mat vec | beta alpha",
  baddbmm: "input batch1 batch2 | beta alpha",
  // Normalization
  log_softmax: "input dim | dtype",
  softmax: "input dim | dtype",
  // Losses and attention
  binary_cross_entropy: `${LOSS} weight`,
  binary_cross_entropy_with_logits: `${LOSS} weight pos_weight`,
  cosine_embedding_loss: `input1 input2 target | margin reduction`,
  cross_entropy: `${LOSS} weight ignore_index label_smoothing`,
  gaussian_nll_loss: "input target var | full eps reduction",
  hinge_embedding_loss: `${LOSS} margin`,
  huber_loss: `${LOSS} delta`,
  kl_div: `${LOSS} log_target`,
  l1_loss: LOSS,
  margin_ranking_loss: "input1 input2 target | margin reduction",
  mse_loss: LOSS,
  nll_loss: `${LOSS} weight ignore_index`,
  poisson_nll_loss: `${LOSS} log_input full eps`,
  scaled_dot_product_attention: "query key value attn_mask dropout_p is_causal | scale",
  smooth_l1_loss: `${LOSS} beta`,
  triplet_margin_loss: "anchor positive negative | margin p eps swap reduction",
  // Gradients
  "autograd.grad": "outputs inputs grad_outputs | retain_graph create_graph allow_unused",
};

const WEIGHTED = "input weight bias stride padding";

/** The other functions of nn.functional: as many arguments as here, and no options. */
const FUNCTIONAL: Record<string, Signature> = {
  adaptive_avg_pool1d: "input output_size",
  adaptive_avg_pool2d: "input output_size",
  adaptive_max_pool1d: "input output_size",
  adaptive_max_pool2d: "input output_size",
  avg_pool1d: "input kernel_size stride padding ceil_mode count_include_pad",
  avg_pool2d: "input kernel_size stride padding ceil_mode count_include_pad divisor_override",
  batch_norm: "input running_mean running_var weight bias training momentum eps",
  celu: "input alpha",
  conv1d: `${WEIGHTED} dilation groups`,
  conv2d: `${WEIGHTED} dilation groups`,
  conv_transpose1d: `${WEIGHTED} output_padding groups dilation`,
  conv_transpose2d: `${WEIGHTED} output_padding groups dilation`,
  cosine_similarity: "x1 x2 dim eps",
  dropout: "input p training",
  elu: "input alpha",
  embedding: "input weight padding_idx",
  fold: "input output_size kernel_size dilation padding stride",
  gelu: "input approximate",
  glu: "input dim",
  group_norm: "input num_groups weight bias eps",
  hardshrink: "input lambd",
  hardsigmoid: "input",
  hardswish: "input",
  hardtanh: "input min_val max_val",
  instance_norm: "input running_mean running_var weight bias use_input_stats momentum eps",
  layer_norm: "input normalized_shape weight bias eps",
  leaky_relu: "input negative_slope",
  linear: "input weight bias",
  logsigmoid: "input",
  max_pool1d: "input kernel_size stride padding dilation ceil_mode",
  max_pool2d: "input kernel_size stride padding dilation ceil_mode",
  max_pool2d_with_indices: "input kernel_size stride padding dilation ceil_mode",
  maximum: "input other",
  minimum: "input other",
  mish: "input",
  normalize: "input p dim eps",
  one_hot: "tensor num_classes",
  pad: "input pad mode value",
  pairwise_distance: "x1 x2 p eps keepdim",
  prelu: "input weight",
  relu: "input",
  relu6: "input",
  rms_norm: "input normalized_shape weight eps",
  selu: "input",
  sigmoid: "input",
  silu: "input",
  softmin: "input dim",
  softplus: "input beta threshold",
  softshrink: "input lambd",
  softsign: "input",
  tanh: "input",
  tanhshrink: "input",
  threshold: "input threshold value",
  unfold: "input kernel_size dilation padding stride",
};

const CONVOLUTION = "in_channels out_channels kernel_size | stride padding dilation groups bias";

const RECURRENT = "input_size hidden_size | num_layers bias batch_first dropout bidirectional";

/** Classes of nn. */
const CLASSES: Record<string, Signature> = {
  AdaptiveAvgPool1d: "output_size",
  AdaptiveAvgPool2d: "output_size",
  AdaptiveMaxPool1d: "output_size",
  AdaptiveMaxPool2d: "output_size",
  AvgPool1d: "kernel_size stride padding ceil_mode count_include_pad",
  AvgPool2d: "kernel_size stride padding ceil_mode count_include_pad divisor_override",
  BCELoss: "| weight reduction",
  BCEWithLogitsLoss: "| weight pos_weight reduction",
  BatchNorm1d: "num_features | eps momentum affine track_running_stats",
  BatchNorm2d: "num_features | eps momentum affine track_running_stats",
  CELU: "alpha",
  Conv1d: CONVOLUTION,
  Conv2d: CONVOLUTION,
  ConvTranspose1d: `${CONVOLUTION} output_padding`,
  ConvTranspose2d: `${CONVOLUTION} output_padding`,
  CosineEmbeddingLoss: "| margin reduction",
  CrossEntropyLoss: "| weight ignore_index label_smoothing reduction",
  Dropout: "p",
  ELU: "alpha",
  Embedding: "num_embeddings embedding_dim | padding_idx",
  Flatten: "start_dim end_dim",
  GELU: "approximate",
  GLU: "dim",
  GRU: RECURRENT,
  GaussianNLLLoss: "| full eps reduction",
  GroupNorm: "num_groups num_channels | eps affine",
  Hardshrink: "lambd",
  Hardsigmoid: "",
  Hardswish: "",
  Hardtanh: "min_val max_val",
  HingeEmbeddingLoss: "| margin reduction",
  HuberLoss: "| delta reduction",
  InstanceNorm1d: "num_features | eps momentum affine track_running_stats",
  InstanceNorm2d: "num_features | eps momentum affine track_running_stats",
  KLDivLoss: "| log_target reduction",
  L1Loss: "| reduction",
  LSTM: RECURRENT,
  LayerNorm: "normalized_shape | eps elementwise_affine bias",
  LeakyReLU: "negative_slope",
  Linear: "in_features out_features | bias",
  LogSigmoid: "",
  LogSoftmax: "dim",
  MSELoss: "| reduction",
  MarginRankingLoss: "| margin reduction",
  MaxPool1d: "kernel_size stride padding dilation ceil_mode",
  MaxPool2d: "kernel_size stride padding dilation ceil_mode",
  Mish: "",
  ModuleList: "modules",
  MultiheadAttention: "embed_dim num_heads | batch_first",
  NLLLoss: "| weight ignore_index reduction",
  PReLU: "| num_parameters init",
  PoissonNLLLoss: "| log_input full eps reduction",
  RMSNorm: "normalized_shape | eps elementwise_affine",
  RNN: `${RECURRENT} nonlinearity`,
  ReLU6: "",
  ReLU: "",
  SELU: "",
  SiLU: "",
  Sigmoid: "",
  SmoothL1Loss: "| beta reduction",
  Softmax: "dim",
  Softmin: "dim",
  Softplus: "beta threshold",
  Softshrink: "lambd",
  Softsign: "",
  Tanh: "",
  Tanhshrink: "",
  Threshold: "threshold value",
  TripletMarginLoss: "| margin p eps swap reduction",
  Unflatten: "dim sizes",
};

interface Parsed {
  names: string[];
  options: string[];
}

function parse(signature: Signature): Parsed {
  const [names = "", options = ""] = signature.split("|");
  const words = (text: string): string[] => text.split(" ").filter((word) => word !== "");
  return { names: words(names), options: words(options) };
}

const isPlain = (value: unknown): value is object => {
  if (typeof value !== "object" || value === null) {
    return false;
  }
  const kind: unknown = Object.getPrototypeOf(value);
  return kind === null || kind === Object.prototype;
};

const shown = (value: unknown): string =>
  typeof value === "string" ? JSON.stringify(value) : String(value);

/** Raises for what is no object of these options. */
export function checkOptions(owner: string, options: unknown, names: readonly string[]): void {
  if (options === undefined) {
    return;
  }
  if (!isPlain(options)) {
    throw new TypeError(
      `${owner}(): expected an object of options, { ${names.join(", ")} }, but got ${shown(options)}`,
    );
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) {
      throw new TypeError(
        `${owner}() got an unexpected keyword argument '${name}'; ` +
          (names.length === 0 ? "it takes none" : `it takes ${names.join(", ")}`),
      );
    }
  }
}

function checkArguments(owner: string, { names, options }: Parsed, args: unknown[]): void {
  // Made for errors only: this runs with every call.
  const form = (): string => {
    const object = options.length === 0 ? [] : [`{ ${options.join(", ")} }`];
    return `${owner}(${[...names, ...object].join(", ")})`;
  };
  const takesOptions = options.length > 0;
  const any = names[0] === "...";
  const most = any ? args.length : names.length + (takesOptions ? 1 : 0);
  if (args.length > most) {
    throw new TypeError(`${form()} takes at most ${most} arguments, but ${args.length} were given`);
  }
  args.forEach((value, k) => {
    const inPlace = takesOptions && (any ? k === args.length - 1 : k === names.length);
    if (inPlace && (isPlain(value) || !any || typeof value === "string")) {
      checkOptions(owner, value, options);
    } else if (isPlain(value)) {
      throw new TypeError(
        any
          ? `${owner}(): argument ${k + 1} is an object; its arguments are given by place`
          : `${form()}: argument ${k + 1} is an object, where ${names[k]!} belongs`,
      );
    }
  });
}

const NO_OPTIONS: Parsed = { names: ["..."], options: [] };

type Call = (...args: unknown[]) => unknown;

/** The function with its arguments checked; as a method, its signature is without the tensor. */
export function checkedFunction<F>(
  name: string,
  call: F,
  isMethod = false,
  signature = FUNCTIONS[name],
): F {
  const parsed = signature === undefined ? NO_OPTIONS : parse(signature);
  if (isMethod && signature !== undefined) {
    parsed.names.shift();
  }
  return ((...args: unknown[]) => {
    checkArguments(name, parsed, isMethod ? args.slice(1) : args);
    return (call as Call)(...args);
  }) as F;
}

/** All functions of a table, checked; what is none stays as it is. */
export function checkedFunctions<T extends object>(members: T): T {
  return Object.fromEntries(
    Object.entries(members).map(([name, member]: [string, unknown]) => [
      name,
      typeof member === "function" && !/^[A-Z]/.test(name) ? checkedFunction(name, member) : member,
    ]),
  ) as T;
}

/** nn.functional, checked. */
export const checkedFunctional = <T extends object>(members: T): T =>
  Object.fromEntries(
    Object.entries(members).map(([name, member]: [string, unknown]) => [
      name,
      checkedFunction(name, member, false, FUNCTIONAL[name] ?? FUNCTIONS[name]),
    ]),
  ) as T;

/** All classes of a table that CLASSES has, with the arguments of their constructors checked; what else is in it stays. */
export function checkedClasses<T extends object>(members: T): T {
  return Object.fromEntries(
    Object.entries(members).map(([name, member]: [string, unknown]) => {
      const signature = CLASSES[name];
      if (signature === undefined) {
        return [name, member];
      }
      const parsed = parse(signature);
      const checked = new Proxy(member as new (...args: unknown[]) => object, {
        construct(target, args: unknown[], newTarget) {
          checkArguments(name, parsed, args);
          return Reflect.construct(target, args, newTarget) as object;
        },
      });
      return [name, checked];
    }),
  ) as T;
}
