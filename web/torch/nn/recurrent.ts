// Recurrent layers: a step is made of other operators, and the products with the inputs of all steps are one.
import { check } from "../errors";
import { zeros } from "../ops/factory";
import { cat, flip, stack } from "../ops/movement";
import { dropout } from "../ops/random";
import { linear } from "../ops/matmul";
import type { Tensor } from "../tensor";
import { uniform } from "./init";
import { Module, type Parameter } from "./module";

export interface RecurrentOptions {
  num_layers?: number;
  bias?: boolean;
  batch_first?: boolean;
  dropout?: number;
  bidirectional?: boolean;
}

abstract class Recurrent extends Module {
  private readonly layers: number;
  private readonly directions: number;

  /** `gates` parts of hidden_size have the weights; `states` tensors go from step to step, the output first. */
  constructor(
    private readonly gates: number,
    private readonly states: number,
    private readonly input_size: number,
    private readonly hidden_size: number,
    private readonly options: RecurrentOptions,
  ) {
    super();
    this.layers = options.num_layers ?? 1;
    this.directions = options.bidirectional === true ? 2 : 1;
    check(this.layers > 0, () => "num_layers must be greater than zero");
    const rate = options.dropout ?? 0;
    check(rate >= 0 && rate <= 1, () => "dropout should be a number in range [0, 1]");
    const bound = 1 / Math.sqrt(hidden_size);
    const rows = gates * hidden_size;
    this.eachCell((layer, name) => {
      const width = layer === 0 ? input_size : this.directions * hidden_size;
      const own: Record<string, Parameter> = {
        [`weight_ih_${name}`]: uniform([rows, width], bound),
        [`weight_hh_${name}`]: uniform([rows, hidden_size], bound),
      };
      if (options.bias ?? true) {
        own[`bias_ih_${name}`] = uniform([rows], bound);
        own[`bias_hh_${name}`] = uniform([rows], bound);
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

  /** The next states, from the products of input and output with the weights, each in its gates. */
  protected abstract next(x: Tensor[], h: Tensor[], state: readonly Tensor[]): Tensor[];

  // The outputs of one direction of a layer, and its last states.
  private run(
    name: string,
    reverse: boolean,
    input: Tensor,
    first: readonly Tensor[],
  ): [Tensor, readonly Tensor[]] {
    const of = (part: string): Tensor | undefined =>
      (this as unknown as Record<string, Tensor | undefined>)[`${part}_${name}`];
    const [weight, bias] = [of("weight_hh")!, of("bias_hh")];
    const products = linear(input, of("weight_ih")!, of("bias_ih")).unbind(0);
    let state = first;
    const outputs = (reverse ? products.reverse() : products).map((product) => {
      const own = linear(state[0]!, weight, bias);
      state = this.next(product.chunk(this.gates, -1), own.chunk(this.gates, -1), state);
      return state[0]!;
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
    const batched = input.dim() === 3;
    const first = this.options.batch_first === true && batched;
    let x = batched ? input : input.unsqueeze(1);
    x = first ? x.transpose(0, 1) : x;
    check(x.shape[0]! > 0, () => "Expected sequence length to be larger than 0 in RNN");
    const cells = this.layers * this.directions;
    const shape = [cells, x.shape[1]!, this.hidden_size];
    const start = Array.from({ length: this.states }, (_, k) => {
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
  constructor(input_size: number, hidden_size: number, options: RecurrentOptions = {}) {
    super(4, 2, input_size, hidden_size, options);
  }

  protected override next(x: Tensor[], h: Tensor[], [, cell]: readonly Tensor[]): Tensor[] {
    const [input, forget, change, output] = x.map((part, k) => part.add(h[k]!)) as [
      ...[Tensor, Tensor, Tensor, Tensor],
    ];
    const kept = forget.sigmoid().mul(cell!).add(input.sigmoid().mul(change.tanh()));
    return [output.sigmoid().mul(kept.tanh()), kept];
  }

  /** `hx` is [h_0, c_0]. */
  override forward(input: Tensor, hx?: readonly [Tensor, Tensor]): [Tensor, [Tensor, Tensor]] {
    const [output, states] = this.through(input, hx);
    return [output, states as [Tensor, Tensor]];
  }
}

export class GRU extends Recurrent {
  constructor(input_size: number, hidden_size: number, options: RecurrentOptions = {}) {
    super(3, 1, input_size, hidden_size, options);
  }

  protected override next(x: Tensor[], h: Tensor[], [before]: readonly Tensor[]): Tensor[] {
    const reset = x[0]!.add(h[0]!).sigmoid();
    const update = x[1]!.add(h[1]!).sigmoid();
    const change = x[2]!.add(reset.mul(h[2]!)).tanh();
    return [change.add(update.mul(before!.sub(change)))];
  }

  override forward(input: Tensor, hx?: Tensor): [Tensor, Tensor] {
    const [output, [state]] = this.through(input, hx && [hx]);
    return [output, state!];
  }
}

export class RNN extends Recurrent {
  private readonly isRelu: boolean;

  constructor(
    input_size: number,
    hidden_size: number,
    {
      nonlinearity = "tanh",
      ...options
    }: RecurrentOptions & { nonlinearity?: "tanh" | "relu" } = {},
  ) {
    super(1, 1, input_size, hidden_size, options);
    if (!["tanh", "relu"].includes(nonlinearity)) {
      throw new RangeError(`Unknown nonlinearity '${nonlinearity}'. Select from 'tanh' or 'relu'.`);
    }
    this.isRelu = nonlinearity === "relu";
  }

  protected override next(x: Tensor[], h: Tensor[]): Tensor[] {
    const sum = x[0]!.add(h[0]!);
    return [this.isRelu ? sum.relu() : sum.tanh()];
  }

  override forward(input: Tensor, hx?: Tensor): [Tensor, Tensor] {
    const [output, [state]] = this.through(input, hx && [hx]);
    return [output, state!];
  }
}
