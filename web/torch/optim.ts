// torch.optim: SGD, Adam and AdamW with PyTorch's arithmetic and state names.
import { no_grad } from "./autograd";
import { check, RuntimeError } from "./errors";
import { zeros_like } from "./ops/factory";
import type { Tensor } from "./tensor";

type Group<Options> = Options & { params: Tensor[] };
export type Params<Options> =
  Iterable<Tensor> | (Partial<Options> & { params: Iterable<Tensor> })[];

abstract class Optimizer<Options extends object> {
  readonly param_groups: Group<Options>[];
  /** Tensors of each parameter. */
  readonly state = new Map<Tensor, Record<string, Tensor | number>>();

  constructor(params: Params<Options>, defaults: Options) {
    const list = [...params] as (Tensor | (Partial<Options> & { params: Iterable<Tensor> }))[];
    check(list.length > 0, () => "optimizer got an empty parameter list");
    const groups = list.every((one) => "params" in one)
      ? (list as (Partial<Options> & { params: Iterable<Tensor> })[])
      : [{ ...({} as Partial<Options>), params: list as Tensor[] }];
    this.param_groups = groups.map((group) => ({
      ...{ ...defaults, ...group },
      params: [...group.params],
    }));
    for (const parameter of this.param_groups.flatMap((group) => group.params)) {
      check(parameter.is_leaf, () => "can't optimize a non-leaf Tensor");
    }
  }

  zero_grad(): void {
    for (const group of this.param_groups) {
      for (const parameter of group.params) {
        parameter.grad?.dispose();
        parameter.grad = undefined;
      }
    }
  }

  step(): void {
    no_grad(() => {
      for (const group of this.param_groups) {
        for (const parameter of group.params) {
          if (parameter.grad !== undefined) {
            this.update(parameter, parameter.grad, group);
          }
        }
      }
    });
  }

  protected abstract update(parameter: Tensor, grad: Tensor, group: Group<Options>): void;

  protected stateOf(parameter: Tensor): Record<string, Tensor | number> {
    let state = this.state.get(parameter);
    if (state === undefined) {
      state = {};
      this.state.set(parameter, state);
    }
    return state;
  }

  // A tensor of the state, zeros at first.
  protected tensorOf(parameter: Tensor, name: string): Tensor {
    const state = this.stateOf(parameter);
    state[name] ??= zeros_like(parameter.detach()).keep();
    return state[name] as Tensor;
  }
}

export interface SGDOptions {
  lr: number;
  momentum: number;
  dampening: number;
  weight_decay: number;
  nesterov: boolean;
  maximize: boolean;
}

export class SGD extends Optimizer<SGDOptions> {
  constructor(params: Params<SGDOptions>, options: Partial<SGDOptions> = {}) {
    super(params, {
      ...{ lr: 1e-3, momentum: 0, dampening: 0, weight_decay: 0, nesterov: false, maximize: false },
      ...options,
    });
    for (const group of this.param_groups) {
      if (group.nesterov && (group.momentum <= 0 || group.dampening !== 0)) {
        throw new RuntimeError("Nesterov momentum requires a momentum and zero dampening");
      }
    }
  }

  protected override update(parameter: Tensor, grad: Tensor, group: Group<SGDOptions>): void {
    let step = group.maximize ? grad.neg() : grad;
    if (group.weight_decay !== 0) {
      step = step.add(parameter, { alpha: group.weight_decay });
    }
    if (group.momentum !== 0) {
      const state = this.stateOf(parameter);
      if (state.momentum_buffer === undefined) {
        state.momentum_buffer = step.clone().keep();
      } else {
        (state.momentum_buffer as Tensor)
          .mul_(group.momentum)
          .add_(step, { alpha: 1 - group.dampening });
      }
      const buffer = state.momentum_buffer as Tensor;
      step = group.nesterov ? step.add(buffer, { alpha: group.momentum }) : buffer;
    }
    parameter.add_(step, { alpha: -group.lr });
  }
}

export interface AdamOptions {
  lr: number;
  betas: readonly [number, number];
  eps: number;
  weight_decay: number;
  amsgrad: boolean;
  maximize: boolean;
}

export class Adam extends Optimizer<AdamOptions> {
  /** Decay is added to the gradient, or taken from the parameter itself (AdamW). */
  protected readonly decoupled: boolean = false;

  constructor(params: Params<AdamOptions>, options: Partial<AdamOptions> = {}) {
    super(params, {
      ...{ lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0 },
      ...{ amsgrad: false, maximize: false },
      ...options,
    });
  }

  protected override update(parameter: Tensor, grad: Tensor, group: Group<AdamOptions>): void {
    const [beta1, beta2] = group.betas;
    const state = this.stateOf(parameter);
    const count = ((state.step as number | undefined) ?? 0) + 1;
    state.step = count;
    let step = group.maximize ? grad.neg() : grad;
    if (group.weight_decay !== 0) {
      if (this.decoupled) {
        parameter.mul_(1 - group.lr * group.weight_decay);
      } else {
        step = step.add(parameter, { alpha: group.weight_decay });
      }
    }
    const mean = this.tensorOf(parameter, "exp_avg").lerp_(step, 1 - beta1);
    const square = this.tensorOf(parameter, "exp_avg_sq")
      .mul_(beta2)
      .addcmul_(step, step, { value: 1 - beta2 });
    let largest = square;
    if (group.amsgrad) {
      largest = this.tensorOf(parameter, "max_exp_avg_sq");
      largest.copy_(largest.maximum(square));
    }
    const correction = Math.sqrt(1 - beta2 ** count);
    const scale = largest.sqrt().div(correction).add(group.eps);
    parameter.addcdiv_(mean, scale, { value: -group.lr / (1 - beta1 ** count) });
  }
}

export class AdamW extends Adam {
  protected override readonly decoupled = true;

  constructor(params: Params<AdamOptions>, options: Partial<AdamOptions> = {}) {
    super(params, { weight_decay: 1e-2, ...options });
  }
}
