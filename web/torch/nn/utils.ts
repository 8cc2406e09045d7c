// torch.nn.utils
import { no_grad } from "../autograd";
import { requireTrue } from "../ops/checks";
import { full, zeros } from "../ops/factory";
import { stack } from "../ops/movement";
import { isfinite, where } from "../ops/pointwise";
import { checkArgument } from "../signatures";
import { Tensor } from "../tensor";

const DIGITS = String.raw`\d+(?:_\d+)*`;
const FLOAT = new RegExp(
  String.raw`^[+-]?(?:${DIGITS}\.?(?:${DIGITS})?|\.${DIGITS})(?:e[+-]?${DIGITS})?$`,
  "i",
);

/** What Python's float() makes of a number or of a text of one; what it refuses stays as it is. */
function float(given: number | string): number | string {
  if (typeof given !== "string") {
    return given;
  }
  const text = given.trim();
  if (FLOAT.test(text)) {
    return Number(text.replaceAll("_", ""));
  }
  const [, sign, named] = /^([+-]?)(inf|infinity|nan)$/i.exec(text) ?? [];
  if (named === undefined) {
    return given;
  }
  return named.toLowerCase() === "nan" ? NaN : sign === "-" ? -Infinity : Infinity;
}

export interface Clipping {
  error_if_nonfinite?: boolean;
}

/**
 * Scales gradients so that their common norm is at most max_norm; gives the norm before. The norm of Infinity, or "inf", is
 * the largest absolute value. With error_if_nonfinite, gradients of a norm that is infinite or NaN stay as they are, and the
 * next await raises.
 */
export function clip_grad_norm_(
  parameters: Iterable<Tensor> | Tensor,
  max_norm: number,
  norm_type: number | string = 2,
  { error_if_nonfinite = false }: Clipping = {},
): Tensor {
  const order = float(norm_type);
  checkArgument("clip_grad_norm_", "norm_type", "number", order);
  const p = Number(order);
  return no_grad(() => {
    const all = parameters instanceof Tensor ? [parameters] : [...parameters];
    all.forEach((parameter) => {
      checkArgument("clip_grad_norm_", "parameters", "tensor", parameter);
    });
    const grads = all.flatMap((parameter) => parameter.grad ?? []);
    if (grads.length === 0) {
      return zeros([]);
    }
    const total = stack(grads.map((grad) => grad.norm(p))).norm(p);
    let scale = total.add(1e-6).reciprocal().mul(max_norm).clamp(undefined, 1);
    if (error_if_nonfinite) {
      const finite = isfinite(total);
      requireTrue(
        "clip_grad_norm_",
        finite,
        `The total norm of order ${p} for gradients from \`parameters\` is non-finite, so it cannot be clipped. To disable ` +
          "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`",
      );
      scale = where(finite, scale, full([], 1, { dtype: scale.dtype }));
    }
    for (const grad of grads) {
      grad.mul_(scale);
    }
    return total;
  });
}
