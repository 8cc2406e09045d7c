// torch.nn.utils
import { no_grad } from "../autograd";
import { stack } from "../ops/movement";
import { zeros } from "../ops/factory";
import { checkArgument } from "../signatures";
import { Tensor } from "../tensor";

/** What Python's float() makes of a text of a norm: a number, or one of its names of the infinite. */
function order(norm_type: number | string): number {
  const text = typeof norm_type === "string" ? norm_type.trim() : "";
  const infinite = /^([+-]?)inf(inity)?$/i.exec(text);
  const found = infinite === null ? Number(text) : infinite[1] === "-" ? -Infinity : Infinity;
  const isNumber = text !== "" && !Number.isNaN(found);
  return isNumber ? found : (norm_type as number);
}

/**
 * Scales gradients so that their common norm is at most max_norm; gives the norm before. The norm of Infinity, or "inf", is
 * the largest absolute value.
 */
export function clip_grad_norm_(
  parameters: Iterable<Tensor> | Tensor,
  max_norm: number,
  norm_type: number | "inf" | "-inf" = 2,
): Tensor {
  const p = order(norm_type);
  checkArgument("clip_grad_norm_", "max_norm", "number", max_norm);
  checkArgument("clip_grad_norm_", "norm_type", "number", p);
  return no_grad(() => {
    const all = parameters instanceof Tensor ? [parameters] : [...parameters];
    const grads = all.flatMap((parameter) => parameter.grad ?? []);
    if (grads.length === 0) {
      return zeros([]);
    }
    const total = stack(grads.map((grad) => grad.norm(p))).norm(p);
    const scale = total.add(1e-6).reciprocal().mul(max_norm).clamp(undefined, 1);
    for (const grad of grads) {
      grad.mul_(scale);
    }
    return total;
  });
}
