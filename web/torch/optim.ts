// torch.optim: SGD, Adam and AdamW with PyTorch's arithmetic and state names.
import { no_grad, zeroGrads } from "./autograd";
import { check } from "./errors";
import { tensor, zeros_like } from "./ops/factory";
import { checkOptions } from "./signatures";
import { Tensor } from "./tensor";

type Group<Options> = Options & { params: Tensor[] };
type GivenGroup<Options> = Partial<Options> & { params: Iterable<Tensor> | Tensor };
export type Params<Options> = Iterable<Tensor> | readonly GivenGroup<Options>[];

// Options without those that are undefined: they stand for the default.
const given = <Options extends object>(options: Partial<Options>): Partial<Options> =>
  Object.fromEntries(
    Object.entries(options).filter(([, value]) => value !== undefined),
  ) as Partial<Options>;

function checkIterable(params: unknown): void {
  const isText = typeof params === "string";
  if (
    isText ||
    typeof (params as Iterable<unknown> | undefined)?.[Symbol.iterator] !== "function"
  ) {
    throw new TypeError(
      "params argument given to the optimizer should be an iterable of Tensors or dicts, but got " +
        String(params),
    );
  }
}

/** Where a class of optimizers refuses a value: its message, and whether a value of the option is right. */
type Ranges<Options> = readonly (readonly [
  keyof Options,
  message: string,
  right: (value: number) => boolean,
])[];

// Not NaN either.
const isNotNegative = (value: number): boolean => value >= 0;
const isBeta = (value: number): boolean => value >= 0 && value < 1;

/** What an option must be whose default is `standard`. */
function kindOf(standard: unknown): string {
  if (Array.isArray(standard)) {
    return `a list of ${standard.length} numbers`;
  }
  return typeof standard === "boolean" ? "a boolean" : `a ${typeof standard}`;
}

/** A state dict with PyTorch's layout: parameters are counted through all groups. */
export interface OptimizerStateDict {
  state: Record<string, Record<string, Tensor | number | null>>;
  param_groups: (Record<string, unknown> & { params: number[] })[];
}

export abstract class Optimizer<Options extends object> {
  readonly param_groups: Group<Options>[] = [];
  /** Tensors of each parameter. */
  readonly state = new Map<Tensor, Record<string, Tensor | number>>();
  private readonly defaults: Options;
  /** Values of the kinds that the options have. */
  private readonly kinds: Options;
  /** What the state of a parameter must have. */
  protected readonly stateNames: readonly string[] = [];
  private loading = false;

  constructor(
    /** The name that errors have. */
    private readonly owner: string,
    params: Params<Options>,
    defaults: Options,
    options: Partial<Options>,
    private readonly ranges: Ranges<Options>,
  ) {
    checkOptions(owner, options, Object.keys(defaults));
    this.kinds = defaults;
    this.defaults = this.checked({ ...defaults, ...given(options) });
    checkIterable(params);
    const list = [...params] as (Tensor | GivenGroup<Options>)[];
    check(list.length > 0, () => "optimizer got an empty parameter list");
    const isGroup = (one: unknown): one is GivenGroup<Options> =>
      typeof one === "object" && one !== null && "params" in one;
    const groups = list.every(isGroup)
      ? list
      : [{ params: list } as unknown as GivenGroup<Options>];
    groups.forEach((group) => {
      this.add_param_group(group);
    });
  }

  /** Parameters to train from now on, with options of their own. */
  add_param_group(group: GivenGroup<Options>): void {
    const { params, ...options } = group;
    checkIterable(params instanceof Tensor ? [] : params);
    checkOptions(this.owner, options, Object.keys(this.defaults));
    const made = {
      ...this.checked({ ...this.defaults, ...given(options as Partial<Options>) }),
      params: params instanceof Tensor ? [params] : [...params],
    };
    const before = new Set(this.param_groups.flatMap((other) => other.params));
    for (const parameter of made.params) {
      if (!((parameter as unknown) instanceof Tensor)) {
        throw new TypeError(
          `optimizer can only optimize Tensors, but one of the params is ${String(parameter)}`,
        );
      }
      check(parameter.is_leaf, () => "can't optimize a non-leaf Tensor");
      check(
        !before.has(parameter),
        () => "some parameters appear in more than one parameter group",
      );
    }
    this.param_groups.push(made);
  }

  private checked(options: Options): Options {
    for (const [name, message, right] of this.ranges) {
      [options[name] as number | readonly number[]].flat().forEach((value, k) => {
        if (typeof value !== "number" || !right(value)) {
          throw new RangeError(`${message.replace("INDEX", String(k))}: ${String(value)}`);
        }
      });
    }
    for (const [name, standard] of Object.entries(this.kinds)) {
      const value = options[name as keyof Options] as unknown;
      const right = Array.isArray(standard)
        ? Array.isArray(value) && value.length === standard.length
        : typeof value === typeof standard;
      if (!right) {
        throw new TypeError(
          `${this.owner}(): argument '${name}' must be ${kindOf(standard)}, not ${JSON.stringify(value)}`,
        );
      }
    }
    return options;
  }

  zero_grad(set_to_none = true): void {
    zeroGrads(
      this.param_groups.flatMap(({ params }) => params),
      set_to_none,
    );
  }

  /** Options, and the tensors of the states, which share memory with the optimizer. */
  state_dict(): OptimizerStateDict {
    const indices = new Map<Tensor, number>();
    const param_groups = this.param_groups.map(({ params, ...options }) => {
      params.forEach((parameter) => indices.set(parameter, indices.size));
      return { ...options, params: params.map((parameter) => indices.get(parameter)!) };
    });
    const state: OptimizerStateDict["state"] = {};
    for (const [parameter, values] of this.state) {
      state[String(indices.get(parameter)!)] = Object.fromEntries(
        Object.entries(values).map(([name, value]) => [
          name,
          typeof value === "number" ? tensor(value, { dtype: "float32" }) : value.detach(),
        ]),
      );
    }
    return { state, param_groups };
  }

  /** Takes over a state dict, of Python's optimizers as well. To be awaited, because it reads the number of steps. */
  async load_state_dict(given: OptimizerStateDict): Promise<void> {
    const groups = given.param_groups;
    const own = this.param_groups;
    const isDict = (one: unknown): boolean => typeof one === "object" && one !== null;
    check(
      Array.isArray(groups) && groups.every((one) => isDict(one) && Array.isArray(one.params)),
      () => "loaded state dict has no param_groups that are a list of groups with params",
    );
    check(
      isDict(given.state) && Object.values(given.state).every(isDict),
      () => "loaded state dict has no state that is a dict of the parameters' states",
    );
    if (groups.length !== own.length) {
      throw new RangeError("loaded state dict has a different number of parameter groups");
    }
    groups.forEach(({ params }, k) => {
      if (params.length !== own[k]!.params.length) {
        throw new RangeError(
          "loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        );
      }
    });
    const ids = groups.flatMap(({ params }) => params.map(String));
    const parameters = own.flatMap(({ params }) => params);
    const made = groups.map((group) =>
      this.checked({ ...this.defaults, ...(group as unknown as Partial<Options>) }),
    );
    this.loading = true;
    try {
      const loaded: [Tensor, Record<string, Tensor | number>][] = [];
      for (const [id, values] of Object.entries(given.state)) {
        const parameter = parameters[ids.indexOf(id)];
        check(
          parameter !== undefined,
          () => `loaded state dict has a state of parameter ${id}, which no group has`,
        );
        loaded.push([parameter, await this.stateFrom(id, parameter, values)]);
      }
      made.forEach((options, k) => {
        own[k] = { ...options, params: own[k]!.params };
      });
      this.state.clear();
      loaded.forEach(([parameter, values]) => this.state.set(parameter, values));
    } finally {
      this.loading = false;
    }
  }

  // Copies, so that steps leave what was given as it is. The state of a parameter has its dtype.
  private async stateFrom(
    id: string,
    parameter: Tensor,
    given: Record<string, Tensor | number | null>,
  ): Promise<Record<string, Tensor | number>> {
    const state: Record<string, Tensor | number> = {};
    for (const [name, value] of Object.entries(given)) {
      if (value === null) {
        continue;
      }
      check(
        typeof value === "number" || value instanceof Tensor,
        () => `loaded state dict has a ${name} for parameter ${id} that is no Tensor`,
      );
      if (name === "step" || typeof value === "number") {
        state[name] = typeof value === "number" ? value : Number(await value.item());
        continue;
      }
      check(
        value.shape.join() === parameter.shape.join(),
        () =>
          `loaded state dict has a ${name} of shape [${value.shape.join(", ")}] for parameter ${id}, ` +
          `which has shape [${parameter.shape.join(", ")}]`,
      );
      state[name] = value.detach().to(parameter.dtype).clone().keep();
    }
    const missing = this.stateNames.find((name) => !(name in state));
    check(missing === undefined, () => `loaded state dict has no ${missing!} for parameter ${id}`);
    return state;
  }

  step(): void {
    check(!this.loading, () => "load_state_dict() is not done: await it before step()");
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
    const defaults = { lr: 1e-3, momentum: 0, dampening: 0, weight_decay: 0 };
    super("SGD", params, { ...defaults, nesterov: false, maximize: false }, options, [
      ["lr", "Invalid learning rate", isNotNegative],
      ["momentum", "Invalid momentum value", isNotNegative],
      ["weight_decay", "Invalid weight_decay value", isNotNegative],
    ]);
    for (const group of this.param_groups) {
      if (group.nesterov && (group.momentum <= 0 || group.dampening !== 0)) {
        throw new RangeError("Nesterov momentum requires a momentum and zero dampening");
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
  /** Whether decay is taken from the parameter itself (AdamW), and not added to the gradient. */
  decoupled_weight_decay: boolean;
}

const ADAM: AdamOptions = {
  ...{ lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0 },
  ...{ amsgrad: false, maximize: false, decoupled_weight_decay: false },
};
const ADAM_RANGES: Ranges<AdamOptions> = [
  ["lr", "Invalid learning rate", isNotNegative],
  ["eps", "Invalid epsilon value", isNotNegative],
  ["betas", "Invalid beta parameter at index INDEX", isBeta],
  ["weight_decay", "Invalid weight_decay value", isNotNegative],
];

export class Adam extends Optimizer<AdamOptions> {
  protected static readonly title: string = "Adam";
  protected override readonly stateNames = ["step", "exp_avg", "exp_avg_sq"];
  protected static readonly defaults = ADAM;

  constructor(params: Params<AdamOptions>, options: Partial<AdamOptions> = {}) {
    super(new.target.title, params, new.target.defaults, options, ADAM_RANGES);
  }

  protected override update(parameter: Tensor, grad: Tensor, group: Group<AdamOptions>): void {
    const [beta1, beta2] = group.betas;
    const state = this.stateOf(parameter);
    const count = ((state.step as number | undefined) ?? 0) + 1;
    state.step = count;
    let step = group.maximize ? grad.neg() : grad;
    if (group.weight_decay !== 0) {
      if (group.decoupled_weight_decay) {
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
  protected static override readonly title = "AdamW";
  protected static override readonly defaults = {
    ...{ ...ADAM, weight_decay: 1e-2, decoupled_weight_decay: true },
  };
}
