// Attention and the layers of transformers, with batches first.
import { isFloating } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { full, zeros } from "../ops/factory";
import { where } from "../ops/pointwise";
import type { Tensor } from "../tensor";
import * as f from "./functional";
import { uniform } from "./init";
import { Dropout, LayerNorm, Linear, ModuleList, type Dropping } from "./layers";
import { Module, Parameter } from "./module";

type DropoutLayer = InstanceType<Dropping>;

export interface AttentionOptions {
  /** Of attention weights, in training. */
  dropout?: number;
  bias?: boolean;
  batch_first: true;
}

function checkBatchFirst(name: string, options: { batch_first?: boolean } | undefined): void {
  if (options?.batch_first !== true) {
    throw new NotImplementedError(`${name}: batch_first must be true`);
  }
}

const filled = (shape: readonly number[], value: number): Tensor =>
  full(shape, value, { dtype: "float32" });

// What is added to the scores: a mask of booleans is -Infinity where it holds.
function additive(name: string, mask: Tensor, shapes: readonly (readonly number[])[]): Tensor {
  check(
    mask.dtype === "bool" || isFloating(mask.dtype),
    () => `only bool and floating types of ${name} are supported`,
  );
  check(
    shapes.some((shape) => shape.join() === mask.shape.join()),
    () =>
      `The shape of ${name} is [${mask.shape.join(", ")}], but should be ` +
      shapes.map((shape) => `[${shape.join(", ")}]`).join(" or "),
  );
  return mask.dtype === "bool" ? where(mask, filled([], -Infinity), filled([], 0)) : mask;
}

/** Self- and cross-attention with PyTorch's packed projection. */
export class MultiheadAttention extends Module {
  in_proj_weight: Parameter;
  in_proj_bias: Parameter | undefined;
  out_proj: Linear;
  private readonly dropout: number;

  constructor(
    private readonly embed_dim: number,
    private readonly num_heads: number,
    options: AttentionOptions,
  ) {
    super();
    check(embed_dim % num_heads === 0, () => "embed_dim must be divisible by num_heads");
    checkBatchFirst("MultiheadAttention", options);
    const { dropout = 0, bias = true } = options;
    check(
      dropout >= 0 && dropout <= 1,
      () => `dropout probability has to be between 0 and 1, but got ${dropout}`,
    );
    this.dropout = dropout;
    this.in_proj_weight = uniform([3 * embed_dim, embed_dim], Math.sqrt(6 / (4 * embed_dim)));
    this.in_proj_bias = bias ? new Parameter(zeros([3 * embed_dim])) : undefined;
    this.out_proj = new Linear(embed_dim, embed_dim, { bias });
    this.out_proj.bias?.detach().zero_();
  }

  /**
   * [batch, length, embed_dim] each. Masks are boolean, true where attention is not allowed, or are added:
   * `attn_mask` of [queries, keys] or [batch * num_heads, queries, keys], `key_padding_mask` of [batch, keys].
   * Without a batch, [length, embed_dim] each, and `key_padding_mask` of [keys].
   */
  override forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask?: Tensor,
    key_padding_mask?: Tensor,
  ): Tensor {
    const dims = query.dim();
    check(
      (dims === 2 || dims === 3) && key.dim() === dims && value.dim() === dims,
      () =>
        "query, key and value should be unbatched 2D or batched 3D tensors, but got " +
        `${dims}-D, ${key.dim()}-D and ${value.dim()}-D`,
    );
    if (dims === 2) {
      const [one, two, three] = [query, key, value].map((x) => x.unsqueeze(0)) as [
        ...[Tensor, Tensor, Tensor],
      ];
      check(
        key_padding_mask === undefined || key_padding_mask.dim() === 1,
        () => "For unbatched (2-D) query expected key_padding_mask to be None or 1-D",
      );
      return this.forward(one, two, three, attn_mask, key_padding_mask?.unsqueeze(0)).squeeze(0);
    }
    const weights = this.in_proj_weight.chunk(3);
    const biases = this.in_proj_bias?.chunk(3);
    const heads = [query, key, value].map((x, k) =>
      f
        .linear(x, weights[k]!, biases?.[k])
        .unflatten(-1, [this.num_heads, this.embed_dim / this.num_heads])
        .transpose(1, 2),
    ) as [Tensor, Tensor, Tensor];
    const [batch, queries] = query.shape as [number, number];
    const keys = key.shape[1]!;
    check(
      key.shape[0] === batch && value.shape[0] === batch && value.shape[1] === keys,
      () =>
        `query, key and value of shapes [${query.shape.join(", ")}], [${key.shape.join(", ")}] and ` +
        `[${value.shape.join(", ")}] must have one size of the batch, and key and value one length`,
    );
    const own =
      attn_mask &&
      additive("attn_mask", attn_mask, [
        [queries, keys],
        [batch * this.num_heads, queries, keys],
      ]);
    const padding =
      key_padding_mask && additive("key_padding_mask", key_padding_mask, [[batch, keys]]);
    const masks = [
      own?.dim() === 3 ? own.unflatten(0, [batch, this.num_heads]) : own,
      padding?.unsqueeze(1).unsqueeze(1),
    ].filter((one) => one !== undefined);
    const mask = masks.length === 0 ? undefined : masks.reduce((sum, one) => sum.add(one));
    const rate = this.training ? this.dropout : 0;
    const out = f.scaled_dot_product_attention(...heads, mask, rate);
    return this.out_proj.forward(out.transpose(1, 2).flatten(2));
  }
}

export interface TransformerOptions {
  dim_feedforward?: number;
  dropout?: number;
  activation?: "relu" | "gelu" | ((x: Tensor) => Tensor);
  layer_norm_eps?: number;
  batch_first: true;
  norm_first?: boolean;
  bias?: boolean;
}

function activationOf({ activation = "relu" }: TransformerOptions): (x: Tensor) => Tensor {
  if (typeof activation === "function") {
    return activation;
  }
  if (!["relu", "gelu"].includes(activation)) {
    throw new RangeError(`activation should be relu/gelu, not ${String(activation)}`);
  }
  return activation === "relu" ? f.relu : (x) => f.gelu(x);
}

/** Where keys are after the query. */
const causal = (length: number): Tensor => filled([length, length], -Infinity).triu(1);

// What encoder and decoder layers have in common: attention, a network of two layers, and a norm for each. Members are
// declared, and set in PyTorch's order, which is that of state dicts.
abstract class TransformerLayer extends Module {
  declare self_attn: MultiheadAttention;
  declare linear1: Linear;
  declare linear2: Linear;
  private readonly activation: (x: Tensor) => Tensor;
  private readonly normFirst: boolean;

  constructor(
    name: string,
    d_model: number,
    nhead: number,
    protected readonly options: TransformerOptions,
  ) {
    super();
    checkBatchFirst(name, options);
    this.activation = activationOf(options);
    this.normFirst = options.norm_first ?? false;
    this.self_attn = this.attention(d_model, nhead);
  }

  protected attention(d_model: number, nhead: number): MultiheadAttention {
    const { dropout = 0.1, bias = true } = this.options;
    return new MultiheadAttention(d_model, nhead, { dropout, bias, batch_first: true });
  }

  protected addNetwork(d_model: number): void {
    const { dim_feedforward = 2048, bias = true } = this.options;
    this.linear1 = new Linear(d_model, dim_feedforward, { bias });
    this.linear2 = new Linear(dim_feedforward, d_model, { bias });
  }

  protected norm(d_model: number): LayerNorm {
    const { layer_norm_eps: eps = 1e-5, bias = true } = this.options;
    return new LayerNorm(d_model, { eps, bias });
  }

  protected dropping(): DropoutLayer {
    return new Dropout(this.options.dropout ?? 0.1);
  }

  protected network(x: Tensor, dropout: DropoutLayer): Tensor {
    return this.linear2.forward(dropout.forward(this.activation(this.linear1.forward(x))));
  }

  /** x and what a part makes of it, with the norm before the part or behind the sum. */
  protected beside(
    x: Tensor,
    norm: LayerNorm,
    dropout: DropoutLayer,
    part: (x: Tensor) => Tensor,
  ): Tensor {
    return this.normFirst
      ? x.add(dropout.forward(part(norm.forward(x))))
      : norm.forward(x.add(dropout.forward(part(x))));
  }
}

export class TransformerEncoderLayer extends TransformerLayer {
  declare dropout: DropoutLayer;
  declare norm1: LayerNorm;
  declare norm2: LayerNorm;
  declare dropout1: DropoutLayer;
  declare dropout2: DropoutLayer;

  constructor(d_model: number, nhead: number, options: TransformerOptions) {
    super("TransformerEncoderLayer", d_model, nhead, options);
    this.addNetwork(d_model);
    this.dropout = this.dropping();
    this.norm1 = this.norm(d_model);
    this.norm2 = this.norm(d_model);
    this.dropout1 = this.dropping();
    this.dropout2 = this.dropping();
  }

  override forward(
    src: Tensor,
    src_mask?: Tensor,
    src_key_padding_mask?: Tensor,
    is_causal = false,
  ): Tensor {
    const mask = src_mask ?? (is_causal ? causal(src.size(-2)) : undefined);
    const x = this.beside(src, this.norm1, this.dropout1, (y) =>
      this.self_attn.forward(y, y, y, mask, src_key_padding_mask),
    );
    return this.beside(x, this.norm2, this.dropout2, (y) => this.network(y, this.dropout));
  }
}

export class TransformerDecoderLayer extends TransformerLayer {
  declare multihead_attn: MultiheadAttention;
  declare dropout: DropoutLayer;
  declare norm1: LayerNorm;
  declare norm2: LayerNorm;
  declare norm3: LayerNorm;
  declare dropout1: DropoutLayer;
  declare dropout2: DropoutLayer;
  declare dropout3: DropoutLayer;

  constructor(d_model: number, nhead: number, options: TransformerOptions) {
    super("TransformerDecoderLayer", d_model, nhead, options);
    this.multihead_attn = this.attention(d_model, nhead);
    this.addNetwork(d_model);
    this.dropout = this.dropping();
    this.norm1 = this.norm(d_model);
    this.norm2 = this.norm(d_model);
    this.norm3 = this.norm(d_model);
    this.dropout1 = this.dropping();
    this.dropout2 = this.dropping();
    this.dropout3 = this.dropping();
  }

  override forward(
    tgt: Tensor,
    memory: Tensor,
    tgt_mask?: Tensor,
    memory_mask?: Tensor,
    tgt_key_padding_mask?: Tensor,
    memory_key_padding_mask?: Tensor,
    tgt_is_causal = false,
  ): Tensor {
    const mask = tgt_mask ?? (tgt_is_causal ? causal(tgt.size(-2)) : undefined);
    let x = this.beside(tgt, this.norm1, this.dropout1, (y) =>
      this.self_attn.forward(y, y, y, mask, tgt_key_padding_mask),
    );
    x = this.beside(x, this.norm2, this.dropout2, (y) =>
      this.multihead_attn.forward(y, memory, memory, memory_mask, memory_key_padding_mask),
    );
    return this.beside(x, this.norm3, this.dropout3, (y) => this.network(y, this.dropout));
  }
}

/** Layers after each other, and a last norm. */
abstract class Stack extends Module {
  layers: ModuleList;
  norm: LayerNorm | undefined;

  /** `make` gives the layers, where PyTorch copies one. */
  constructor(make: () => Module, num_layers: number, norm?: LayerNorm) {
    super();
    this.layers = new ModuleList(Array.from({ length: num_layers }, make));
    this.norm = norm;
  }

  protected through(x: Tensor, ...others: unknown[]): Tensor {
    const out = [...this.layers].reduce((y, layer) => layer.forward(y, ...others) as Tensor, x);
    return this.norm === undefined ? out : this.norm.forward(out);
  }
}

export class TransformerEncoder extends Stack {
  override forward(
    src: Tensor,
    mask?: Tensor,
    src_key_padding_mask?: Tensor,
    is_causal = false,
  ): Tensor {
    return this.through(src, mask, src_key_padding_mask, is_causal);
  }
}

export class TransformerDecoder extends Stack {
  override forward(
    tgt: Tensor,
    memory: Tensor,
    tgt_mask?: Tensor,
    memory_mask?: Tensor,
    tgt_key_padding_mask?: Tensor,
    memory_key_padding_mask?: Tensor,
    tgt_is_causal = false,
  ): Tensor {
    return this.through(
      ...([tgt, memory, tgt_mask, memory_mask] as const),
      ...([tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal] as const),
    );
  }
}

export interface WholeOptions extends TransformerOptions {
  d_model?: number;
  nhead?: number;
  num_encoder_layers?: number;
  num_decoder_layers?: number;
}

export class Transformer extends Module {
  encoder: TransformerEncoder;
  decoder: TransformerDecoder;

  constructor(options: WholeOptions) {
    super();
    checkBatchFirst("Transformer", options);
    const {
      d_model = 512,
      nhead = 8,
      num_encoder_layers = 6,
      num_decoder_layers = 6,
      ...own
    } = options;
    const norm = (): LayerNorm =>
      new LayerNorm(d_model, { eps: own.layer_norm_eps ?? 1e-5, bias: own.bias ?? true });
    const layer = (make: typeof TransformerEncoderLayer | typeof TransformerDecoderLayer) => () =>
      new make(d_model, nhead, own);
    this.encoder = new TransformerEncoder(
      layer(TransformerEncoderLayer),
      num_encoder_layers,
      norm(),
    );
    this.decoder = new TransformerDecoder(
      layer(TransformerDecoderLayer),
      num_decoder_layers,
      norm(),
    );
    for (const parameter of this.parameters()) {
      if (parameter.dim() > 1) {
        const [outs, ins] = parameter.shape as [number, number];
        const bound = Math.sqrt(6 / (ins + outs));
        parameter.detach().uniform_(-bound, bound);
      }
    }
  }

  override forward(
    src: Tensor,
    tgt: Tensor,
    src_mask?: Tensor,
    tgt_mask?: Tensor,
    memory_mask?: Tensor,
  ): Tensor {
    const memory = this.encoder.forward(src, src_mask);
    return this.decoder.forward(tgt, memory, tgt_mask, memory_mask);
  }

  /** A mask that lets each place see itself and those before. */
  static generate_square_subsequent_mask(size: number): Tensor {
    return causal(size);
  }
}
