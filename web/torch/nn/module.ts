// nn.Module: a tree of parameters and buffers with PyTorch's names.
import { no_grad, zeroGrads } from "../autograd";
import { isDType, isFloating, type DType } from "../dtype";
import { check, RuntimeError } from "../errors";
import { checkArgument } from "../signatures";
import { Tensor } from "../tensor";

/** A tensor that a module trains. Its memory outlives scopes. */
export class Parameter extends Tensor {
  constructor(data: Tensor, requires_grad = true) {
    checkArgument("Parameter", "data", "tensor", (data as Tensor | undefined) ?? null);
    super(data.storage, data.dtype, data.shape, data.strides, data.storage_offset);
    this.storage.kept = true;
    this.requires_grad_(requires_grad);
  }
}

export type StateDict = Map<string, Tensor>;

/** The first of the names of each. */
function* once<T>(named: Iterable<[string, T]>): Generator<[string, T]> {
  const seen = new Set<T>();
  for (const [name, one] of named) {
    if (!seen.has(one)) {
      seen.add(one);
      yield [name, one];
    }
  }
}

export abstract class Module {
  training = true;
  /** Whether each buffer is a part of the state. */
  private readonly bufferNames = new Map<string, boolean>();

  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- modules take what they need
  abstract forward(...inputs: any[]): unknown;

  /** Makes a tensor part of the module without training it; of its state too, if it is persistent. */
  protected register_buffer(
    name: string,
    tensor: Tensor | undefined,
    { persistent = true }: { persistent?: boolean } = {},
  ): void {
    this.bufferNames.set(name, persistent);
    tensor?.keep();
    Object.assign(this, { [name]: tensor });
  }

  /** Direct submodules by name. */
  named_children(): [string, Module][] {
    return Object.entries(this).filter(
      (entry): entry is [string, Module] => entry[1] instanceof Module,
    );
  }

  /** All modules with their names; one that has several names, with its first. */
  *named_modules(prefix = ""): Generator<[string, Module]> {
    yield* once(this.places(prefix));
  }

  // With all their names, as a state dict has them.
  private *places(prefix: string): Generator<[string, Module]> {
    yield [prefix, this];
    for (const [name, child] of this.named_children()) {
      yield* child.places(prefix === "" ? name : `${prefix}.${name}`);
    }
  }

  modules(): Module[] {
    return [...this.named_modules()].map(([, module]) => module);
  }

  private *members(
    wanted: (value: Tensor, persistent: boolean) => boolean,
  ): Generator<[string, Tensor]> {
    for (const [prefix, module] of this.places("")) {
      const own = Object.entries(module).filter(
        (entry): entry is [string, Tensor] =>
          entry[1] instanceof Tensor && module.owns(...(entry as [string, Tensor]), wanted),
      );
      // PyTorch lists a module's parameters first, whatever was assigned first.
      const isBuffer = ([, value]: [string, Tensor]) => !(value instanceof Parameter);
      for (const [name, value] of [
        ...own.filter((one) => !isBuffer(one)),
        ...own.filter(isBuffer),
      ]) {
        yield [prefix === "" ? name : `${prefix}.${name}`, value];
      }
    }
  }

  private owns(
    name: string,
    value: Tensor,
    wanted: (value: Tensor, persistent: boolean) => boolean,
  ): boolean {
    const persistent = value instanceof Parameter || this.bufferNames.get(name);
    return persistent !== undefined && wanted(value, persistent);
  }

  *named_parameters(): Generator<[string, Parameter]> {
    yield* once(this.members((one) => one instanceof Parameter)) as Generator<[string, Parameter]>;
  }

  parameters(): Parameter[] {
    return [...this.named_parameters()].map(([, parameter]) => parameter);
  }

  named_buffers(): [string, Tensor][] {
    return [...once(this.members((value) => !(value instanceof Parameter)))];
  }

  buffers(): Tensor[] {
    return this.named_buffers().map(([, buffer]) => buffer);
  }

  private inState(): Generator<[string, Tensor]> {
    return this.members((_, persistent) => persistent);
  }

  /** All parameters and persistent buffers by PyTorch's names, in its order; they share memory with the module. */
  state_dict(): StateDict {
    return new Map([...this.inState()].map(([name, one]) => [name, one.detach()]));
  }

  /** Copies values into the parameters and buffers. Raises for names or shapes that do not fit. */
  load_state_dict(
    state: StateDict | Record<string, Tensor>,
    options: { strict?: boolean } = {},
  ): { missing_keys: string[]; unexpected_keys: string[] } {
    const strict = options.strict ?? true;
    const given = state instanceof Map ? state : new Map(Object.entries(state));
    const own = new Map(this.inState());
    const missing_keys = [...own.keys()].filter((name) => !given.has(name));
    const unexpected_keys = [...given.keys()].filter((name) => !own.has(name));
    const problems: string[] = [];
    if (strict && unexpected_keys.length > 0) {
      problems.push(
        `Unexpected key(s) in state_dict: ${unexpected_keys.map((n) => `"${n}"`).join(", ")}.`,
      );
    }
    if (strict && missing_keys.length > 0) {
      problems.push(
        `Missing key(s) in state_dict: ${missing_keys.map((n) => `"${n}"`).join(", ")}.`,
      );
    }
    for (const [name, value] of own) {
      const source = given.get(name);
      if (source !== undefined && !((source as unknown) instanceof Tensor)) {
        problems.push(
          `While copying the parameter named "${name}", expected torch.Tensor or Tensor-like object ` +
            `from checkpoint but received ${String(source)}.`,
        );
      } else if (source !== undefined && source.shape.join() !== value.shape.join()) {
        problems.push(
          `size mismatch for ${name}: copying a param with shape [${source.shape.join(", ")}] from ` +
            `checkpoint, the shape in current model is [${value.shape.join(", ")}].`,
        );
      }
    }
    if (problems.length > 0) {
      throw new RuntimeError(
        `Error(s) in loading state_dict for ${this.constructor.name}:\n\t${problems.join("\n\t")}`,
      );
    }
    no_grad(() => {
      for (const [name, value] of own) {
        const source = given.get(name);
        if (source !== undefined) {
          value.copy_(source);
        }
      }
    });
    return { missing_keys, unexpected_keys };
  }

  /** Casts all parameters, their gradients and buffers that are floats. Optimizers keep the parameters. */
  to(dtype: DType): this {
    if (!isDType(dtype)) {
      // The name of a device: there is one, where all tensors are.
      check((dtype as string) === "webgpu", () => `no device or dtype ${String(dtype)} is here`);
      return this;
    }
    check(
      isFloating(dtype),
      () => `nn.Module.to only accepts floating point dtypes, but got desired dtype=${dtype}`,
    );
    for (const tensor of new Set([...this.members(() => true)].map(([, one]) => one))) {
      const { grad } = tensor;
      if (tensor.is_floating_point() && tensor.dtype !== dtype) {
        tensor.grad = undefined;
        tensor.become(no_grad(() => tensor.detach().to(dtype)).keep());
        tensor.grad = grad?.detach().to(dtype);
      }
    }
    return this;
  }

  half(): this {
    return this.to("float16");
  }

  float(): this {
    return this.to("float32");
  }

  train(mode = true): this {
    if (typeof mode !== "boolean") {
      throw new RangeError("training mode is expected to be boolean");
    }
    for (const module of this.modules()) {
      module.training = mode;
    }
    return this;
  }

  eval(): this {
    return this.train(false);
  }

  zero_grad(set_to_none = true): void {
    zeroGrads(this.parameters(), set_to_none);
  }

  requires_grad_(value = true): this {
    for (const parameter of this.parameters()) {
      parameter.requires_grad_(value);
    }
    return this;
  }

  apply(visit: (module: Module) => void): this {
    for (const module of this.modules()) {
      visit(module);
    }
    return this;
  }

  /** Gives all memory back at once. */
  dispose(): void {
    for (const [, tensor] of this.members(() => true)) {
      tensor.grad?.dispose();
      tensor.dispose();
    }
  }
}
