// The tape: nodes between tensors, and the pass that follows them back.
import { check, NotImplementedError, RuntimeError } from "./errors";
import { isFloating } from "./dtype";
import type { Storage } from "./storage";
import type { Tensor } from "./tensor";
import { sum_to_size } from "./ops/reduce";
import { ones_like } from "./ops/factory";

/** The gradients of a node's inputs from that of its output; undefined for an input without one. */
export type Backward = (grad: Tensor) => (Tensor | undefined)[];

export interface Node {
  name: string;
  inputs: readonly (Tensor | undefined)[];
  /** Undefined when the graph was freed. */
  backward: Backward | undefined;
}

let enabled = true;

export const is_grad_enabled = (): boolean => enabled;

/** Calls `work` (which may be asynchronous) with gradients recorded or not. */
export function set_grad_enabled<T>(mode: boolean, work: () => T): T {
  const before = enabled;
  const restore = (): void => {
    enabled = before;
  };
  enabled = mode;
  let result: T;
  try {
    result = work();
  } catch (error) {
    restore();
    throw error;
  }
  if (result instanceof Promise) {
    return result.finally(restore) as T;
  }
  restore();
  return result;
}

export const no_grad = <T>(work: () => T): T => set_grad_enabled(false, work);
export const enable_grad = <T>(work: () => T): T => set_grad_enabled(true, work);

export const needsGrad = (tensor: Tensor | undefined): boolean =>
  tensor !== undefined && (tensor.requires_grad || tensor.grad_fn !== undefined);

/** Whether an operator on these inputs has to be recorded. */
export const records = (inputs: readonly (Tensor | undefined)[]): boolean =>
  enabled && inputs.some(needsGrad);

/** Makes `out` the output of a node, if one of the inputs needs a gradient. */
export function record(
  out: Tensor,
  name: string,
  inputs: readonly (Tensor | undefined)[],
  backward: Backward | undefined,
): Tensor {
  if (!records(inputs) || !isFloating(out.dtype)) {
    return out;
  }
  if (backward === undefined) {
    throw new NotImplementedError(`the derivative for '${name}' is not implemented`);
  }
  out.grad_fn = { name, inputs: inputs.map((t) => (needsGrad(t) ? t : undefined)), backward };
  return out;
}

/** Reads a tensor that a gradient needs; raises if it was changed in place since. */
export function saved(tensor: Tensor): () => Tensor {
  const { storage } = tensor;
  const { version } = storage;
  return () => {
    check(
      tensor.storage === storage,
      () =>
        "one of the variables needed for gradient computation is no longer what it was: a tensor of shape " +
        `[${tensor.shape.join(", ")}] belongs to a module that was cast between the forward pass and backward()`,
    );
    check(
      storage.version === version,
      () =>
        "one of the variables needed for gradient computation has been modified by an inplace " +
        `operation: a tensor of shape [${tensor.shape.join(", ")}] is at version ` +
        `${tensor.storage.version}; expected version ${version} instead`,
    );
    return tensor;
  };
}

// Nodes behind `roots`, each before those that it leads to.
function sorted(roots: readonly Node[]): Node[] {
  const order: Node[] = [];
  const state = new Set<Node>();
  const stack: { node: Node; next: number }[] = [];
  const enter = (node: Node | undefined): void => {
    if (node !== undefined && !state.has(node)) {
      state.add(node);
      stack.push({ node, next: 0 });
    }
  };
  for (const root of roots) {
    enter(root);
    while (stack.length > 0) {
      const top = stack.at(-1)!;
      if (top.next < top.node.inputs.length) {
        enter(top.node.inputs[top.next++]?.grad_fn);
      } else {
        order.push(top.node);
        stack.pop();
      }
    }
  }
  return order.reverse();
}

function fitted(grad: Tensor, input: Tensor): Tensor {
  const sized = sum_to_size(grad, input.shape);
  return sized.dtype === input.dtype ? sized : sized.to(input.dtype);
}

interface Pass {
  retain_graph: boolean;
  create_graph: boolean;
}

// Follows the graph back from `outputs`; calls `leaf` with each gradient that arrives at a tensor without a node, or
// at one of `stops`.
function run(
  outputs: readonly Tensor[],
  grads: readonly (Tensor | undefined)[],
  pass: Pass,
  stops: ReadonlySet<Tensor>,
  leaf: (tensor: Tensor, grad: Tensor) => void,
): void {
  const atNode = new Map<Node, Tensor>();
  const deliver = (tensor: Tensor, grad: Tensor): void => {
    const node = tensor.grad_fn;
    if (node === undefined || stops.has(tensor)) {
      leaf(tensor, grad);
    }
    if (node !== undefined) {
      const before = atNode.get(node);
      atNode.set(node, before === undefined ? grad : before.add(grad));
    }
  };
  set_grad_enabled(pass.create_graph, () => {
    outputs.forEach((output, k) => {
      check(
        needsGrad(output),
        () => "element 0 of tensors does not require grad and does not have a grad_fn",
      );
      let grad = grads[k];
      if (grad === undefined) {
        check(output.numel() === 1, () => "grad can be implicitly created only for scalar outputs");
        grad = ones_like(output);
      }
      check(
        grad.shape.join() === output.shape.join(),
        () =>
          `Mismatch in shape: grad_output[${k}] has a shape of [${grad.shape.join(", ")}] and ` +
          `output[${k}] has a shape of [${output.shape.join(", ")}].`,
      );
      deliver(output, grad);
    });
    for (const node of sorted(outputs.flatMap((output) => output.grad_fn ?? []))) {
      const grad = atNode.get(node);
      if (grad === undefined) {
        continue;
      }
      if (node.backward === undefined) {
        throw new RuntimeError(
          "Trying to backward through the graph a second time. Specify retain_graph=True if you " +
            "need to backward through the graph a second time.",
        );
      }
      const results = node.backward(grad);
      node.inputs.forEach((input, k) => {
        const result = results[k];
        if (input !== undefined && result !== undefined) {
          deliver(input, fitted(result, input));
        }
      });
      atNode.delete(node);
      if (!pass.retain_graph) {
        node.backward = undefined;
      }
    }
  });
}

/** Tensor.backward: adds the gradients of all leaves to their `grad`. */
export function backward(
  output: Tensor,
  gradient?: Tensor,
  options: { retain_graph?: boolean; create_graph?: boolean } = {},
): void {
  const create_graph = options.create_graph ?? false;
  const pass = { retain_graph: options.retain_graph ?? create_graph, create_graph };
  const given = new Set<Storage>(gradient === undefined ? [] : [gradient.storage]);
  run([output], [gradient], pass, new Set(), (leaf, grad) => {
    if (leaf.grad !== undefined) {
      if (create_graph) {
        leaf.grad = leaf.grad.add(grad);
      } else {
        leaf.grad.detach().add_(grad);
      }
    } else {
      // No two gradients share memory, so that changing one in place leaves the others.
      const own = given.has(grad.storage) ? grad.clone() : grad.contiguous();
      given.add(own.storage);
      leaf.grad = create_graph ? own : own.detach();
    }
    leaf.grad.storage.kept = true;
  });
}

/** Forgets the gradients of parameters, or zeroes them. */
export function zeroGrads(parameters: readonly Tensor[], set_to_none: boolean): void {
  for (const parameter of parameters) {
    if (set_to_none) {
      parameter.grad?.dispose();
      parameter.grad = undefined;
    } else if (parameter.grad !== undefined) {
      // The same Tensor, which programs may hold; only its history goes.
      const { grad } = parameter;
      grad.grad_fn = undefined;
      grad.requires_grad_(false).zero_();
    }
  }
}

/** torch.autograd.grad: the gradients of `inputs`; undefined for one that the outputs do not use. */
export function grad(
  outputs: Tensor | readonly Tensor[],
  inputs: Tensor | readonly Tensor[],
  grad_outputs?: Tensor | readonly (Tensor | undefined)[],
  options: { retain_graph?: boolean; create_graph?: boolean; allow_unused?: boolean } = {},
): (Tensor | undefined)[] {
  const from = "storage" in outputs ? [outputs] : outputs;
  const create_graph = options.create_graph ?? false;
  const found = new Map<Tensor, Tensor>();
  const to = "storage" in inputs ? [inputs] : inputs;
  check(to.length > 0, () => "`inputs` argument to `grad()` cannot be empty.");
  check(to.every(needsGrad), () => "One of the differentiated Tensors does not require grad");
  const given =
    grad_outputs === undefined || "storage" in grad_outputs ? [grad_outputs] : grad_outputs;
  const wanted = new Set(to);
  const pass = { retain_graph: options.retain_graph ?? create_graph, create_graph };
  run(from, given, pass, wanted, (tensor, grad) => {
    if (wanted.has(tensor)) {
      const before = found.get(tensor);
      found.set(tensor, before === undefined ? grad : before.add(grad));
    }
  });
  return to.map((input) => {
    const result = found.get(input);
    check(
      result !== undefined || options.allow_unused === true,
      () => "One of the differentiated Tensors appears to not have been used in the graph.",
    );
    return result;
  });
}
