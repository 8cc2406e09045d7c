// Recurrent layers: a step is made of other operators, and the products with the inputs of all steps are one.
import { check } from "../errors";
import { zeros } from "../ops/factory";
import { cat, flip, stack } from "../ops/movement";
import { dropout } from "../ops/random";
import { linear } from "../ops/matmul";
import type { Tensor } from "../tensor";
import { uniform } from "./init";
import { Module, type Parameter } from "./module";

/** What a layer does in each step. */
interface Kind {
  /** Parts of hidden_size that the weights have. */
  gates: number;
  /** Tensors that go from step to step, the output first. */
  states: number;
  /** The next states, from the products of input and output with the weights, each in its gates. */
  next: (x: Tensor[], h: Tensor[], state: readonly Tensor[]) => Tensor[];
}

const KINDS = {
  lstm: {
    ...{ gates: 4, states: 2 },
    next(x, h, [, cell]) {
      const [input, forget, change, output] = x.map((part, k) => part.add(h[k]!)) as [
        ...[Tensor, Tensor, Tensor, Tensor],
      ];
      const kept = forget.sigmoid().mul(cell!).add(input.sigmoid().mul(change.tanh()));
      return [output.sigmoid().mul(kept.tanh()), kept];
    },
  },
  gru: {
    ...{ gates: 3, states: 1 },
    next(x, h, [before]) {
      const reset = x[0]!.add(h[0]!).sigmoid();
      const update = x[1]!.add(h[1]!).sigmoid();
      const change = x[2]!.add(reset.mul(h[2]!)).tanh();
      return [change.add(update.mul(before!.sub(change)))];
    },
  },
  tanh: { gates: 1, states: 1, next: (x, h) => [x[0]!.add(h[0]!).tanh()] },
  relu: { gates: 1, states: 1, next: (x, h) => [x[0]!.add(h[0]!).relu()] },
} satisfies Record<string, Kind>;

type Nonlinearity = "tanh" | "relu";

function kindOf(nonlinearity: Nonlinearity): Kind {
  if (!["tanh", "relu"].includes(nonlinearity)) {
    throw new RangeError(`Unknown nonlinearity '${nonlinearity}'. Select from 'tanh' or 'relu'.`);
  }
  return KINDS[nonlinearity];
}

export interface RecurrentOptions {
  num_layers?: number;
  bias?: boolean;
  batch_first?: boolean;
  dropout?: number;
  bidirectional?: boolean;
}

export interface LSTMOptions extends RecurrentOptions {
  /** The size to which outputs are projected; 0 for none. */
  proj_size?: number;
}

export interface RNNOptions extends RecurrentOptions {
  nonlinearity?: Nonlinearity;
}

// All states, or none: zeros would stand for one that is missing.
function checkStates(given: readonly Tensor[] | undefined, count: number): void {
  check(
    given === undefined || (Array.isArray(given) && given.length === count),
    () => "expected hx to be [h_0, c_0]",
  );
}

abstract class Recurrent extends Module {
  private readonly layers: number;
  private readonly directions: number;
  /** The size of outputs. */
  private readonly output_size: number;

  constructor(
    private readonly kind: Kind,
    private readonly input_size: number,
    private readonly hidden_size: number,
    private readonly options: LSTMOptions,
  ) {
    super();
    const { proj_size = 0 } = options;
    this.layers = options.num_layers ?? 1;
    this.directions = options.bidirectional === true ? 2 : 1;
    this.output_size = proj_size > 0 ? proj_size : hidden_size;
    check(this.layers > 0, () => "num_layers must be greater than zero");
    check(hidden_size > 0, () => "hidden_size must be greater than zero");
    if (proj_size < 0) {
      throw new RangeError("proj_size should be a positive integer or zero to disable projections");
    }
    if (proj_size >= hidden_size) {
      throw new RangeError("proj_size has to be smaller than hidden_size");
    }
    const rate = options.dropout ?? 0;
    check(rate >= 0 && rate <= 1, () => "dropout should be a number in range [0, 1]");
    const bound = 1 / Math.sqrt(hidden_size);
    const rows = kind.gates * hidden_size;
    this.eachCell((layer, name) => {
      const width = layer === 0 ? input_size : this.directions * this.output_size;
      const own: Record<string, Parameter> = {
        [`weight_ih_${name}`]: uniform([rows, width], bound),
        [`weight_hh_${name}`]: uniform([rows, this.output_size], bound),
      };
      if (options.bias ?? true) {
        own[`bias_ih_${name}`] = uniform([rows], bound);
        own[`bias_hh_${name}`] = uniform([rows], bound);
      }
      if (proj_size > 0) {
        own[`weight_hr_${name}`] = uniform([proj_size, hidden_size], bound);
      }
      Object.assign(this, own);
    });
  }

  private eachCell(visit: (layer: number, name: string, reverse: boolean) => void): void {
    for (let layer = 0; layer < this.layers; layer++) {
      for (let direction = 0; direction < this.directions; direction++) {
        visit(layer, `l${layer}${direction === 1 ? "_reverse" : ""}`, direction === 1);
      }
    }
  }

  // The outputs of one direction of a layer, and its last states.
  private run(
    name: string,
    reverse: boolean,
    input: Tensor,
    first: readonly Tensor[],
  ): [Tensor, readonly Tensor[]] {
    const of = (part: string): Tensor | undefined =>
      (this as unknown as Record<string, Tensor | undefined>)[`${part}_${name}`];
    const [weight, bias, projection] = [of("weight_hh")!, of("bias_hh"), of("weight_hr")];
    const { gates, next } = this.kind;
    const products = linear(input, of("weight_ih")!, of("bias_ih")).unbind(0);
    let state = first;
    const outputs = (reverse ? products.reverse() : products).map((product) => {
      const own = linear(state[0]!, weight, bias);
      const [full, ...rest] = next(product.chunk(gates, -1), own.chunk(gates, -1), state);
      const output = projection === undefined ? full! : linear(full!, projection);
      state = [output, ...rest];
      return output;
    });
    const output = stack(outputs);
    return [reverse ? flip(output, 0) : output, state];
  }

  /** The outputs of the last layer, and the last states of all layers and directions. */
  protected through(input: Tensor, given: readonly Tensor[] | undefined): [Tensor, Tensor[]] {
    check(
      input.dim() === 2 || input.dim() === 3,
      () => `expected input to be 2D or 3D, got ${input.dim()}D tensor`,
    );
    check(
      input.shape.at(-1) === this.input_size,
      () =>
        `input.size(-1) must be equal to input_size. Expected ${this.input_size}, got ${String(input.shape.at(-1))}`,
    );
    checkStates(given, this.kind.states);
    const batched = input.dim() === 3;
    const first = this.options.batch_first === true && batched;
    let x = batched ? input : input.unsqueeze(1);
    x = first ? x.transpose(0, 1) : x;
    check(x.shape[0]! > 0, () => "Expected sequence length to be larger than 0 in RNN");
    const cells = this.layers * this.directions;
    const start = Array.from({ length: this.kind.states }, (_, k) => {
      const shape = [cells, x.shape[1]!, k === 0 ? this.output_size : this.hidden_size];
      const one = given?.[k];
      if (one === undefined) {
        return zeros(shape, { dtype: input.dtype });
      }
      const wanted = batched ? shape : shape.toSpliced(1, 1);
      check(
        one.shape.join() === wanted.join(),
        () => `Expected hidden size [${wanted.join(", ")}], got [${one.shape.join(", ")}]`,
      );
      return batched ? one : one.unsqueeze(1);
    });
    const last: (readonly Tensor[])[] = [];
    let outputs: Tensor[] = [];
    this.eachCell((layer, name, reverse) => {
      if (!reverse && layer > 0) {
        x = dropout(cat(outputs, -1), this.options.dropout ?? 0, this.training);
        outputs = [];
      }
      const own = start.map((one) => one.select(0, last.length));
      const [output, state] = this.run(name, reverse, x, own);
      outputs.push(output);
      last.push(state);
    });
    let output = outputs.length === 1 ? outputs[0]! : cat(outputs, -1);
    output = first ? output.transpose(0, 1) : output;
    const states = start.map((_, k) => stack(last.map((state) => state[k]!)));
    return batched
      ? [output, states]
      : [output.squeeze(1), states.map((state) => state.squeeze(1))];
  }
}

export class LSTM extends Recurrent {
  constructor(input_size: number, hidden_size: number, options: LSTMOptions = {}) {
    super(KINDS.lstm, input_size, hidden_size, options);
  }

  /** `hx` is [h_0, c_0]. */
  override forward(input: Tensor, hx?: readonly [Tensor, Tensor]): [Tensor, [Tensor, Tensor]] {
    const [output, states] = this.through(input, hx);
    return [output, states as [Tensor, Tensor]];
  }
}

/** A layer with one state. */
abstract class SingleState extends Recurrent {
  override forward(input: Tensor, hx?: Tensor): [Tensor, Tensor] {
    const [output, [state]] = this.through(input, hx && [hx]);
    return [output, state!];
  }
}

export class GRU extends SingleState {
  constructor(input_size: number, hidden_size: number, options: RecurrentOptions = {}) {
    super(KINDS.gru, input_size, hidden_size, options);
  }
}

export class RNN extends SingleState {
  constructor(input_size: number, hidden_size: number, options: RNNOptions = {}) {
    super(kindOf(options.nonlinearity ?? "tanh"), input_size, hidden_size, options);
  }
}

/** One step of a layer. */
abstract class Cell extends Module {
  weight_ih: Parameter;
  weight_hh: Parameter;
  bias_ih: Parameter | undefined;
  bias_hh: Parameter | undefined;

  constructor(
    private readonly kind: Kind,
    private readonly input_size: number,
    private readonly hidden_size: number,
    { bias = true }: { bias?: boolean },
  ) {
    super();
    const bound = hidden_size > 0 ? 1 / Math.sqrt(hidden_size) : 0;
    const rows = kind.gates * hidden_size;
    this.weight_ih = uniform([rows, input_size], bound);
    this.weight_hh = uniform([rows, hidden_size], bound);
    this.bias_ih = bias ? uniform([rows], bound) : undefined;
    this.bias_hh = bias ? uniform([rows], bound) : undefined;
  }

  /** The next states of a batch, or of one element. */
  protected step(input: Tensor, given: readonly Tensor[] | undefined): Tensor[] {
    check(
      [1, 2].includes(input.dim()) && input.shape.at(-1) === this.input_size,
      () =>
        `${this.constructor.name}: Expected input of [batch, ${this.input_size}] or [${this.input_size}], ` +
        `got [${input.shape.join(", ")}]`,
    );
    const shape = [...input.shape.slice(0, -1), this.hidden_size];
    const { gates, states, next } = this.kind;
    checkStates(given, states);
    const state = Array.from(
      { length: states },
      (_, k) => given?.[k] ?? zeros(shape, { dtype: input.dtype }),
    );
    for (const one of state) {
      check(
        one.shape.join() === shape.join(),
        () =>
          `${this.constructor.name}: Expected hidden of [${shape.join(", ")}], got [${one.shape.join(", ")}]`,
      );
    }
    const x = linear(input, this.weight_ih, this.bias_ih).chunk(gates, -1);
    return next(x, linear(state[0]!, this.weight_hh, this.bias_hh).chunk(gates, -1), state);
  }
}

export class LSTMCell extends Cell {
  constructor(input_size: number, hidden_size: number, options: { bias?: boolean } = {}) {
    super(KINDS.lstm, input_size, hidden_size, options);
  }

  /** `hx` is [h_0, c_0]. */
  override forward(input: Tensor, hx?: readonly [Tensor, Tensor]): [Tensor, Tensor] {
    return this.step(input, hx) as [Tensor, Tensor];
  }
}

abstract class SingleStateCell extends Cell {
  override forward(input: Tensor, hx?: Tensor): Tensor {
    return this.step(input, hx && [hx])[0]!;
  }
}

export class GRUCell extends SingleStateCell {
  constructor(input_size: number, hidden_size: number, options: { bias?: boolean } = {}) {
    super(KINDS.gru, input_size, hidden_size, options);
  }
}

export class RNNCell extends SingleStateCell {
  constructor(
    input_size: number,
    hidden_size: number,
    options: { bias?: boolean; nonlinearity?: Nonlinearity } = {},
  ) {
    super(kindOf(options.nonlinearity ?? "tanh"), input_size, hidden_size, options);
  }
}
