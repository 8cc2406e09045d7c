// torch.nn.utils
import { no_grad } from "../autograd";
import { stack } from "../ops/movement";
import { zeros } from "../ops/factory";
import { checkArgument } from "../signatures";
import type { Tensor } from "../tensor";

/** Scales gradients so that their common norm is at most max_norm; gives the norm before. */
export function clip_grad_norm_(
  parameters: Iterable<Tensor>,
  max_norm: number,
  norm_type = 2,
): Tensor {
  checkArgument("clip_grad_norm_", "max_norm", "number", max_norm);
  checkArgument("clip_grad_norm_", "norm_type", "number", norm_type);
  return no_grad(() => {
    const grads = [...parameters].flatMap((parameter) => parameter.grad ?? []);
    if (grads.length === 0) {
      return zeros([]);
    }
    const total = stack(grads.map((grad) => grad.norm(norm_type))).norm(norm_type);
    const scale = total.add(1e-6).reciprocal().mul(max_norm).clamp(undefined, 1);
    for (const grad of grads) {
      grad.mul_(scale);
    }
    return total;
  });
}
