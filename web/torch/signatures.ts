// What functions and classes take. JavaScript drops arguments that nothing reads, so that a wrong name, or a value in
// the place of the options, would change nothing without a word: here they are errors. Only what users call is checked;
// the operators call each other without it.

/**
 * Parameters by place, and behind a bar the names in a last object of options; `...` are any number of them. What they are, KINDS
 * says by their names, and `name:kind` where it is something else. Tensors and operands by place must be given, unless `?`
 * follows, others where `!` does. A name before `...` is of all that follow, one by one or as lists.
 */
type Signature = string;

const isTensor = (value: unknown): boolean =>
  typeof value === "object" && value !== null && "storage_offset" in value;
const isNumber = (value: unknown): boolean =>
  typeof value === "number" || typeof value === "bigint" || typeof value === "boolean";
const isInt = (value: unknown): boolean => Number.isInteger(value) || typeof value === "bigint";

/** Whether it is an object without a class, as options and dicts are. */
const isPlain = (value: unknown): value is object => {
  if (typeof value !== "object" || value === null) {
    return false;
  }
  const kind: unknown = Object.getPrototypeOf(value);
  return kind === null || kind === Object.prototype;
};

/** What PyTorch calls the kinds of arguments, and which values are of them. */
const CHECKS = {
  tensor: ["Tensor", isTensor],
  operand: ["Tensor or Number", (value: unknown) => isNumber(value) || isTensor(value)],
  tensors: ["a list of Tensors", (value: unknown) => Array.isArray(value) && value.every(isTensor)],
  text: ["str", (value: unknown) => typeof value === "string"],
  number: ["Number", isNumber],
  int: ["int", isInt],
  ints: [
    "int or a list of ints",
    (value: unknown) => (Array.isArray(value) ? value.every(isInt) : isInt(value)),
  ],
  bool: ["bool", (value: unknown) => typeof value === "boolean"],
  dict: ["dict", (value: unknown) => value instanceof Map || isPlain(value)],
  any: ["anything", () => true],
} satisfies Record<string, [name: string, holds: (value: unknown) => boolean]>;

type Kind = keyof typeof CHECKS;

/** Names in no list are of any kind: what they take is checked where it is used. */
const KINDS: Partial<Record<Kind, string>> = {
  tensor: `
    input condition mask tensor1 tensor2 mat mat1 mat2 vec vec1 vec2 batch1 batch2 source index indices weight bias target query
    key x1 x2 input1 input2 anchor positive negative var grid theta logits y attn_mask pos_weight running_mean running_var prepend
    append
  `,
  operand: "other exponent elements test_elements",
  tensors: "tensors",
  number: `
    eps p alpha beta lambd negative_slope threshold value margin delta min_val max_val lower upper nan posinf neginf tau
    mean std from to correction divisor_override dx rtol atol label_smoothing scale dropout_p dropout layer_norm_eps init fill_value base
  `,
  int: `
    dim0 dim1 dim2 offset diagonal chunks n m N k num_classes groups upscale_factor downscale_factor num_groups start_dim end_dim
    dimension length storage_offset step row col num_features in_channels out_channels in_features out_features in1_features
    in2_features num_embeddings embedding_dim padding_idx input_size hidden_size num_layers proj_size embed_dim num_heads d_model
    nhead num_encoder_layers num_decoder_layers dim_feedforward num_channels num_parameters ignore_index steps
  `,
  ints: "dim dims shifts size normalized_shape pad sizes split_sizes split_size indices_or_sections",
  bool: `
    keepdim descending largest sorted increasing accumulate hard include_self equal_nan ceil_mode count_include_pad training
    is_causal use_input_stats log_target log_input full swap affine track_running_stats batch_first bidirectional
    elementwise_affine norm_first assume_unique invert as_tuple
  `,
};

const TYPED = "dtype requires_grad";
const LOSS = "input target | reduction";

/** Functions and methods without options, by what they take. Those that are in no table take any. */
const PLAIN: Record<Signature, string> = {
  input: `
    deg2rad rad2deg trace fliplr flipud nelement ndimension element_size is_complex is_signed
    acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10
    log1p log2 reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh special_entr special_erfcx special_i0e
    special_i1 special_i1e special_log_ndtr special_ndtri special_bessel_j0 special_bessel_j1
    special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_spherical_bessel_j0 special_airy_ai abs
    ceil floor frac neg round trunc hardsigmoid hardswish mish silu isneginf isposinf logical_not signbit
    square positive sign bitwise_not isnan isinf isfinite relu relu_ relu6 selu tanhshrink softsign
    logsigmoid clone contiguous zero_ argwhere ravel t msort bernoulli is_floating_dtype float half int long
    bool acos_ acosh_ asin_ asinh_ atan_ atanh_ cos_ cosh_ digamma_ erf_ erfc_ erfinv_ exp_ exp2_ expm1_ i0_
    lgamma_ log_ log10_ log1p_ log2_ reciprocal_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ tan_ tanh_ abs_
    ceil_ floor_ frac_ neg_ round_ trunc_ hardsigmoid_ hardswish_ mish_ silu_
  `,
  "input other:tensor": `
    inner kron vdot type_as is_same_size igamma igammac ldexp equal view_as reshape_as expand_as dot matmul
    atan2 atan2_ fmax fmin gcd heaviside hypot lcm logaddexp logaddexp2 logical_and logical_or logical_xor
    maximum minimum nextafter
  `,
  "input other": `
    eq ge gt le lt ne bitwise_and_ bitwise_or_ bitwise_xor_ fmod fmod_ copysign copysign_ rsub mul_
  `,
  "input:operand other": `
    mul true_divide floor_divide bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift xlogy
    remainder remainder_ float_power special_zeta special_xlog1py result_type
  `,
  "input:operand exponent": "pow pow_",
  "input mat2": "mm bmm",
  "input vec": "mv",
  "input vec2": "outer ger",
  "input end:tensor weight:operand": "lerp lerp_",
  "input min:operand? max:operand?": "clamp clamp_ clip",
  "input min:operand": "clamp_min",
  "input max:operand": "clamp_max",
  "input nan posinf neginf": "nan_to_num",
  "condition input:operand other": "where",
  "input mask value:operand": "masked_fill masked_fill_",
  "input mask": "masked_select",
  "n input": "polygamma",
  "input eps": "logit",
  "input min_val max_val": "hardtanh",
  "input approximate": "gelu",
  "input alpha": "elu celu",
  "input negative_slope": "leaky_relu",
  "input beta threshold": "softplus",
  "input threshold! value!": "threshold",
  "input lambd": "hardshrink softshrink exponential_",
  "input weight": "prelu",
  "input dtype": "to cast",
  "input source": "copy_",
  "input value": "fill_",
  "dtype1 dtype2": "promote_types",
  "bytes shape dtype": "from_bytes",
  "input dim:int index": "index_select gather",
  "input dim:int index:int": "select",
  "input dim:int index source": "index_copy",
  "input dim:int index value:any": "index_fill",
  "input dim:int index src:tensor": "scatter_add scatter_add_",
  "input indices dim:int": "take_along_dim",
  "input index": "take",
  "input indices:any": "index_get",
  "input indices:any! values:tensor accumulate": "index_put index_put_",
  "input weight padding_idx": "embedding",
  "input num_classes": "one_hot",
  "x1 x2 p eps keepdim": "pairwise_distance",
  "input weight bias?": "linear",
  "input start_dim end_dim": "flatten",
  "input dim:int sizes": "unflatten",
  "input dim0 dim1": "transpose swapaxes swapdims",
  "input source:ints destination:ints": "movedim moveaxis",
  "input size": "broadcast_to",
  "input dim:int!": "unsqueeze softmin cumsum cumprod logcumsumexp cummax cummin",
  "input dim:int": "unbind glu",
  "input dim": "squeeze count_nonzero",
  "input dim:int start:int end:int step": "slice",
  "input dim:int start! length!": "narrow",
  "input diagonal": "diag tril triu",
  "input split_size! dim:int": "split",
  "input chunks dim:int": "chunk",
  "input dimension size:int step": "unfold",
  "input size stride:ints storage_offset": "as_strided",
  "tensors dim:int": "cat concat concatenate stack",
  tensors: "vstack hstack row_stack dstack column_stack",
  "input repeats dim:int": "repeat_interleave",
  "input shifts! dims": "roll",
  "input pad value": "constant_pad",
  "input normalized_shape! weight? bias? eps": "layer_norm",
  "input normalized_shape! weight? eps": "rms_norm",
  "input p dim eps": "normalize",
  "x1 x2 dim:int eps": "cosine_similarity",
  "input num_groups weight? bias? eps": "group_norm",
  "input running_mean? running_var? weight? bias? training momentum eps": "batch_norm",
  "input running_mean? running_var? weight? bias? use_input_stats momentum eps": "instance_norm",
  "seed:number!": "manual_seed",
  "": "initial_seed",
  "input from to": "uniform_",
  "input mean std": "normal_",
  "input p": "bernoulli_",
  "input dim keepdim": "nanmean nansum all any amax amin logsumexp",
  "input dim:int keepdim": "prod argmax argmin median",
  // Of another tensor too.
  "input dim:any keepdim": "max min",
  "input dim:int descending": "sort argsort",
  "input k dim:int largest sorted": "topk",
  "input k dim:int keepdim": "kthvalue",
  "input p:any dim keepdim": "norm",
  "input p training": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout",
  "input lower upper training": "rrelu",
  "input1 input2 weight bias?": "bilinear",
  "input upscale_factor": "pixel_shuffle",
  "input downscale_factor": "pixel_unshuffle",
  "input groups": "channel_shuffle",
  // Composed
  "input n": "matrix_power",
  "input n dim:int prepend? append?": "diff",
  "input other:tensor p": "dist",
  "x1 x2 p": "cdist",
  "input other:tensor dim:int": "cross",
  "a:tensor b:tensor dims:any": "tensordot",
  "input sizes...": "view reshape expand repeat sum_to_size",
  "input dims...": "permute tile flip",
  "tensors...": "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod",
  "equation:text! operands:tensors...": "einsum",
  "input k dims": "rot90",
  "input indices_or_sections! dim:int": "tensor_split",
  "input indices_or_sections!": "hsplit vsplit dsplit",
  "input split_sizes! dim:int": "split_with_sizes",
  "input src:tensor dim:int index:int": "select_scatter",
  "input src:tensor dim:int start:int end:int step": "slice_scatter",
  "input src:tensor offset dim1 dim2": "diagonal_scatter",
  "input offset dim1 dim2": "diagonal diag_embed",
  "input offset": "diagflat",
  "input mask source": "masked_scatter",
  "x:tensor N increasing": "vander",
};

/** Functions, and methods without the tensor itself, that take options. No other takes an object. */
const FUNCTIONS: Record<string, Signature> = {
  // Factories and random numbers
  arange: `... | ${TYPED}`,
  empty: `size | ${TYPED}`,
  empty_like: `input | ${TYPED}`,
  eye: `n m | ${TYPED}`,
  full: `size fill_value! | ${TYPED}`,
  full_like: `input fill_value! | ${TYPED}`,
  linspace: `start:number end:number steps | ${TYPED}`,
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
  add: "input:operand other | alpha",
  add_: "input other | alpha",
  addcdiv: "input tensor1 tensor2 | value",
  addcdiv_: "input tensor1 tensor2 | value",
  addcmul: "input tensor1 tensor2 | value",
  addcmul_: "input tensor1 tensor2 | value",
  div: "input:operand other | rounding_mode",
  div_: "input other | rounding_mode",
  sub: "input:operand other | alpha",
  sub_: "input other | alpha",
  // Indexing
  index_add: "input dim:int index source | alpha",
  scatter: "input dim:int index src:operand | reduce",
  scatter_reduce: "input dim:int index src:tensor reduce | include_self",
  // Reductions
  mean: "input dim keepdim | dtype",
  std: "input dim | correction keepdim",
  sum: "input dim keepdim | dtype",
  var: "input dim | correction keepdim",
  var_mean: "input dim | correction keepdim",
  variance: "input dim | correction keepdim",
  aminmax: "input | dim:int keepdim",
  std_mean: "input dim | correction keepdim",
  trapezoid: "y x:tensor? | dx dim:int",
  trapz: "y x:tensor? | dx dim:int",
  cumulative_trapezoid: "y x:tensor? | dx dim:int",
  // Factories
  logspace: `start:number end:number steps base | ${TYPED}`,
  new_empty: `input size! | ${TYPED}`,
  new_full: `input size! fill_value! | ${TYPED}`,
  new_ones: `input size! | ${TYPED}`,
  new_zeros: `input size! | ${TYPED}`,
  tril_indices: `row col offset | ${TYPED}`,
  triu_indices: `row col offset | ${TYPED}`,
  // Comparison
  isin: "elements test_elements | assume_unique invert",
  allclose: "input other:tensor | rtol atol equal_nan",
  isclose: "input other:tensor | rtol atol equal_nan",
  nonzero: "input | as_tuple",
  meshgrid: "... | indexing",
  // Products
  addbmm: "input batch1 batch2 | beta alpha",
  addmm: "input mat1 mat2 | beta alpha",
  addmv: "input mat vec | beta alpha",
  addr: "input vec1 vec2 | beta alpha",
  baddbmm: "input batch1 batch2 | beta alpha",
  // Normalization
  log_softmax: "input dim:int | dtype",
  softmax: "input dim:int | dtype",
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
  scaled_dot_product_attention: "query key value:tensor attn_mask? dropout_p is_causal | scale",
  smooth_l1_loss: `${LOSS} beta`,
  multi_margin_loss: `${LOSS} p margin weight`,
  multilabel_soft_margin_loss: `${LOSS} weight`,
  soft_margin_loss: LOSS,
  gumbel_softmax: "logits tau | hard dim:int",
  triplet_margin_with_distance_loss:
    "anchor positive negative | distance_function margin swap reduction",
  triplet_margin_loss: "anchor positive negative | margin p eps swap reduction",
  // Gradients
  clip_grad_norm_: "parameters! max_norm:number! norm_type | error_if_nonfinite:bool",
  "autograd.grad": "outputs inputs grad_outputs | retain_graph create_graph allow_unused",
};

/** Other names of operators, which take the same. */
const ALIASES = `
  absolute=abs arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctan2=atan2 arctanh=atanh divide=div
  fix=trunc greater=gt greater_equal=ge less=lt less_equal=le multiply=mul negative=neg not_equal=ne sgn=sign
  subtract=sub
`;
const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== "");

for (const [signature, names] of Object.entries(PLAIN)) {
  for (const name of words(names)) {
    FUNCTIONS[name] = signature;
  }
}

for (const pair of words(ALIASES)) {
  const [name, of] = pair.split("=") as [string, string];
  FUNCTIONS[name] = FUNCTIONS[of]!;
}

const WEIGHTED = "input weight bias? stride padding";

/** Functions of nn.functional alone, or that differ there. */
const FUNCTIONAL: Record<string, Signature> = {
  affine_grid: "theta size align_corners",
  fold: "input output_size kernel_size dilation padding stride",
  grid_sample: "input grid mode padding_mode align_corners",
  local_response_norm: "input size:int alpha beta k:number",
  interpolate: "input | size:any scale_factor mode align_corners recompute_scale_factor antialias",
  one_hot: "tensor num_classes",
  pad: "input pad mode value",
  unfold: "input kernel_size dilation padding stride",
  unfold_image: "input kernel_size dilation padding stride",
};

// What exists of one to three dimensions.
const MAX_POOL = "kernel_size stride padding dilation ceil_mode";
const AVG_POOL = "kernel_size stride padding ceil_mode count_include_pad";
for (const dims of [1, 2, 3]) {
  Object.assign(FUNCTIONAL, {
    [`conv${dims}d`]: `${WEIGHTED} dilation groups`,
    [`conv_transpose${dims}d`]: `${WEIGHTED} output_padding groups dilation`,
    [`max_pool${dims}d`]: `input ${MAX_POOL}`,
    [`max_pool${dims}d_with_indices`]: `input ${MAX_POOL}`,
    [`avg_pool${dims}d`]: `input ${AVG_POOL}${dims === 1 ? "" : " divisor_override"}`,
    [`lp_pool${dims}d`]: "input norm_type kernel_size stride ceil_mode",
    [`max_unpool${dims}d`]: "input indices kernel_size stride padding output_size",
    [`adaptive_avg_pool${dims}d`]: "input output_size!",
    [`adaptive_max_pool${dims}d`]: "input output_size!",
    [`adaptive_max_pool${dims}d_with_indices`]: "input output_size!",
  });
}

const CONVOLUTION =
  "in_channels out_channels kernel_size | stride padding dilation groups bias:any";

const RECURRENT = "input_size hidden_size | num_layers bias:any batch_first dropout bidirectional";

const TRANSFORMER =
  "dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias:any";

const CELL = "input_size hidden_size | bias:any";

/** Classes of nn. */
const CLASSES: Record<string, Signature> = {
  AlphaDropout: "p",
  BCELoss: "| weight reduction",
  BCEWithLogitsLoss: "| weight pos_weight reduction",
  Bilinear: "in1_features in2_features out_features | bias:any",
  CELU: "alpha",
  ChannelShuffle: "groups",
  CosineEmbeddingLoss: "| margin reduction",
  CosineSimilarity: "dim:int eps",
  CrossEntropyLoss: "| weight ignore_index label_smoothing reduction",
  Dropout: "p",
  ELU: "alpha",
  Embedding: "num_embeddings embedding_dim | padding_idx",
  FeatureAlphaDropout: "p",
  Flatten: "start_dim end_dim",
  Fold: "output_size kernel_size dilation padding stride",
  GELU: "approximate",
  GLU: "dim:int",
  GRU: RECURRENT,
  GRUCell: CELL,
  GaussianNLLLoss: "| full eps reduction",
  GroupNorm: "num_groups num_channels | eps affine",
  Hardshrink: "lambd",
  Hardsigmoid: "",
  Hardswish: "",
  Hardtanh: "min_val max_val",
  HingeEmbeddingLoss: "| margin reduction",
  HuberLoss: "| delta reduction",
  KLDivLoss: "| log_target reduction",
  L1Loss: "| reduction",
  LSTM: `${RECURRENT} proj_size`,
  LSTMCell: CELL,
  LayerNorm: "normalized_shape | eps elementwise_affine bias:any",
  LeakyReLU: "negative_slope",
  Linear: "in_features out_features | bias:any",
  LocalResponseNorm: "size:int alpha beta k:number",
  LogSigmoid: "",
  LogSoftmax: "dim:int",
  MSELoss: "| reduction",
  MarginRankingLoss: "| margin reduction",
  Mish: "",
  ModuleList: "modules",
  MultiLabelSoftMarginLoss: "| weight reduction",
  MultiMarginLoss: "| p margin weight reduction",
  MultiheadAttention: "embed_dim num_heads | dropout bias:any batch_first",
  NLLLoss: "| weight ignore_index reduction",
  PairwiseDistance: "p eps keepdim",
  ParameterList: "parameters",
  PixelShuffle: "upscale_factor",
  PixelUnshuffle: "downscale_factor",
  PReLU: "| num_parameters init",
  PoissonNLLLoss: "| log_input full eps reduction",
  RMSNorm: "normalized_shape | eps elementwise_affine",
  RNN: `${RECURRENT} nonlinearity`,
  RNNCell: `${CELL} nonlinearity`,
  RReLU: "lower upper",
  ReLU6: "",
  ReLU: "",
  SELU: "",
  SiLU: "",
  Sigmoid: "",
  SmoothL1Loss: "| beta reduction",
  SoftMarginLoss: "| reduction",
  Softmax2d: "",
  Softmax: "dim:int",
  Softmin: "dim:int",
  Softplus: "beta threshold",
  Softshrink: "lambd",
  Softsign: "",
  Tanh: "",
  Tanhshrink: "",
  Threshold: "threshold value",
  Transformer: `| d_model nhead num_encoder_layers num_decoder_layers ${TRANSFORMER}`,
  TransformerDecoder: "make num_layers norm",
  TransformerDecoderLayer: `d_model nhead | ${TRANSFORMER}`,
  TransformerEncoder: "make num_layers norm",
  TransformerEncoderLayer: `d_model nhead | ${TRANSFORMER}`,
  TripletMarginWithDistanceLoss: "| distance_function margin swap reduction",
  TripletMarginLoss: "| margin p eps swap reduction",
  Unfold: "kernel_size dilation padding stride",
  Unflatten: "dim:int sizes",
  Upsample: "| size:any scale_factor mode align_corners recompute_scale_factor",
  UpsamplingBilinear2d: "| size:any scale_factor",
  UpsamplingNearest2d: "| size:any scale_factor",
};

for (const dims of [1, 2, 3]) {
  const norm = "num_features | eps momentum affine track_running_stats";
  Object.assign(CLASSES, {
    [`AdaptiveAvgPool${dims}d`]: "output_size",
    [`AdaptiveMaxPool${dims}d`]: "output_size",
    [`AvgPool${dims}d`]: `${AVG_POOL}${dims === 1 ? "" : " divisor_override"}`,
    [`BatchNorm${dims}d`]: norm,
    [`CircularPad${dims}d`]: "padding",
    [`ConstantPad${dims}d`]: "padding value",
    [`Conv${dims}d`]: `${CONVOLUTION} padding_mode`,
    [`ConvTranspose${dims}d`]: `${CONVOLUTION} output_padding`,
    [`Dropout${dims}d`]: "p",
    [`InstanceNorm${dims}d`]: norm,
    [`LPPool${dims}d`]: "norm_type kernel_size stride ceil_mode",
    [`MaxPool${dims}d`]: MAX_POOL,
    [`MaxUnpool${dims}d`]: "kernel_size stride padding",
    [`ReflectionPad${dims}d`]: "padding",
    [`ReplicationPad${dims}d`]: "padding",
    [`ZeroPad${dims}d`]: "padding",
  });
}

/** Methods of Module and of optimizers. Those of tensors that are operators have their function's. */
const METHODS = {
  Module: {
    ...{
      apply: "visit!",
      eval: "",
      to: "dtype!",
      train: "mode",
      requires_grad_: "requires_grad:bool",
    },
    ...{ modules: "", named_children: "", named_modules: "prefix:text", half: "", float: "" },
    ...{ parameters: "", named_parameters: "", buffers: "", named_buffers: "", dispose: "" },
    ...{ state_dict: "", load_state_dict: "state_dict:dict! | strict:bool" },
    zero_grad: "set_to_none:bool",
    register_buffer: "name:text! tensor? | persistent:bool",
  },
  Optimizer: {
    ...{ step: "", zero_grad: "set_to_none:bool", state_dict: "" },
    ...{ load_state_dict: "state_dict:dict!", add_param_group: "param_group:dict!" },
  },
  Tensor: { backward: "gradient:tensor? | retain_graph:bool create_graph:bool" },
} satisfies Record<string, Record<string, Signature>>;

interface Parameter {
  name: string;
  kind: Kind;
  required: boolean;
  /** Whether it stands for all arguments from its place on. */
  rest: boolean;
}

interface Parsed {
  names: Parameter[];
  options: Parameter[];
}

const kinds = new Map(
  Object.entries(KINDS).flatMap(([kind, names]) =>
    words(names).map((name) => [name, kind as Kind] as const),
  ),
);

const MUST_BE_GIVEN: readonly Kind[] = ["tensor", "operand", "tensors"];

function parameter(text: string): Parameter {
  const [, name = "", own, mark] = /^(\w+|\.\.\.)(?::(\w+))?(\?|!|\.\.\.)?$/.exec(text)!;
  const kind = (own as Kind | undefined) ?? kinds.get(name) ?? "any";
  const required = mark === "!" || (mark === undefined && MUST_BE_GIVEN.includes(kind));
  return { name, kind, required, rest: mark === "..." };
}

function parse(signature: Signature): Parsed {
  const [names = "", options = ""] = signature.split("|");
  return { names: words(names).map(parameter), options: words(options).map(parameter) };
}

const shown = (value: unknown): string =>
  isTensor(value)
    ? "Tensor"
    : typeof value === "string" || Array.isArray(value)
      ? JSON.stringify(value)
      : String(value);

function checkKind(owner: string, { name, kind }: Parameter, value: unknown, place: string): void {
  const [called, holds] = CHECKS[kind];
  if (value !== undefined && !holds(value)) {
    throw new TypeError(
      `${owner}(): argument '${name}'${place} must be ${called}, not ${shown(value)}`,
    );
  }
}

/** Raises for an argument of another kind, where there is no signature. */
export function checkArgument(owner: string, name: string, kind: Kind, value: unknown): void {
  checkKind(owner, { name, kind, required: true, rest: false }, value, "");
}

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

const optionNames = (options: readonly Parameter[]): string[] => options.map(({ name }) => name);

function checkArguments(owner: string, { names, options }: Parsed, args: unknown[]): void {
  // Made for errors only: this runs with every call.
  const form = (): string => {
    const object = options.length === 0 ? [] : [`{ ${optionNames(options).join(", ")} }`];
    return `${owner}(${[...names.map(({ name }) => name), ...object].join(", ")})`;
  };
  const takesOptions = options.length > 0;
  const any = names[0]?.name === "...";
  const last = names.at(-1);
  const most = any || last?.rest === true ? args.length : names.length + (takesOptions ? 1 : 0);
  if (args.length > most) {
    throw new TypeError(`${form()} takes at most ${most} arguments, but ${args.length} were given`);
  }
  args.forEach((value, k) => {
    const inPlace = takesOptions && (any ? k === args.length - 1 : k === names.length);
    if (inPlace && (isPlain(value) || !any || typeof value === "string")) {
      checkOptions(owner, value, optionNames(options));
      for (const option of options) {
        checkKind(owner, option, (value as Record<string, unknown> | undefined)?.[option.name], "");
      }
    } else if (isPlain(value) && (any || (names[k] ?? last!).kind !== "dict")) {
      throw new TypeError(
        any
          ? `${owner}(): argument ${k + 1} is an object; its arguments are given by place`
          : `${form()}: argument ${k + 1} is an object, where ${(names[k] ?? last!).name} belongs`,
      );
    } else if (!any) {
      const own = names[k] ?? last!;
      // A list or one of its elements, where all that follow are one list.
      const whole = own.rest && !Array.isArray(value) ? [value] : value;
      checkKind(owner, own, whole, ` (position ${k + 1})`);
    }
  });
  for (let k = 0; k < names.length; k++) {
    if (names[k]!.required && args[k] === undefined) {
      throw new TypeError(`${form()} is missing its argument ${names[k]!.name}`);
    }
  }
}

const NO_OPTIONS = parse("...");

type Call = (...args: unknown[]) => unknown;

/** The function with its arguments checked; as a method, its signature is without the tensor. */
export function checkedFunction<F>(
  name: string,
  call: F,
  isMethod = false,
  // A form that changes its tensor takes what the other form takes.
  signature = FUNCTIONS[name] ?? FUNCTIONS[name.replace(/_$/, "")] ?? FUNCTIONAL[name],
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

/** Checks the arguments of a class's methods from now on. */
export function checkMethods(owner: keyof typeof METHODS, prototype: object): void {
  for (const [name, signature] of Object.entries(METHODS[owner])) {
    const parsed = parse(signature);
    const method = Object.getOwnPropertyDescriptor(prototype, name)!.value as Call;
    const value = function (this: unknown, ...args: unknown[]): unknown {
      checkArguments(name, parsed, args);
      return Reflect.apply(method, this, args);
    };
    Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
  }
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

// Classes of one family have one forward().
const withForward = new WeakSet<object>();

/** Raises for what is no tensor in a layer's first place, where JavaScript would name what it could not read of it. */
function checkForward(member: { prototype: object }): void {
  let owner: object | null = member.prototype;
  while (owner !== null && !Object.hasOwn(owner, "forward")) {
    owner = Object.getPrototypeOf(owner) as object | null;
  }
  const forward = (owner as { forward?: Call } | null)?.forward;
  if (owner === null || forward === undefined || forward.length === 0 || withForward.has(owner)) {
    return;
  }
  withForward.add(owner);
  const value = function (this: unknown, ...args: unknown[]): unknown {
    checkArgument("forward", "input", "tensor", args[0] ?? null);
    return Reflect.apply(forward, this, args);
  };
  Object.defineProperty(owner, "forward", { value, writable: true, configurable: true });
}

/** All classes of a table that CLASSES has, with the arguments of their constructors checked; what else is in it stays. */
export function checkedClasses<T extends object>(members: T): T {
  return Object.fromEntries(
    Object.entries(members).map(([name, member]: [string, unknown]) => {
      const signature = CLASSES[name];
      if (signature === undefined) {
        return [name, member];
      }
      const parsed = parse(signature);
      checkForward(member as { prototype: object });
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
