// Conditions on values. Those of a tensor only the GPU knows (csrc/ops/checks): an error arrives with the next await.
import { isFloating } from "../dtype";
import { check } from "../errors";
import { launch } from "../launch";
import type { Tensor } from "../tensor";

function require(
  label: string,
  kernel: "check_range" | "check_true",
  tensor: Tensor,
  message: string,
): void {
  const count = tensor.numel();
  if (count > 0) {
    const x = tensor.detach().contiguous();
    launch({
      ...{ label, kernel, operands: { x } },
      consts: kernel === "check_range" ? { range: "probability" } : {},
      params: { count, error: x.storage.runtime.errorCode(message) },
      // Each looks at several elements.
      invocations: Math.min(count, 2 ** 16),
    });
  }
}

/** Raises for more elements than any device has room for, before JavaScript makes them. */
export function checkRoom(count: number): void {
  check(count < 2 ** 31, () => `can't allocate memory: you tried to allocate ${count} elements`);
}

/** RuntimeError with `message` unless all elements lie in [0, 1]. */
export function requireProbabilities(label: string, tensor: Tensor, message: string): void {
  if (isFloating(tensor.dtype)) {
    require(label, "check_range", tensor, message);
  }
}

/** RuntimeError with `message` unless all elements are true. */
export function requireTrue(label: string, tensor: Tensor, message: string): void {
  require(label, "check_true", tensor, message);
}
