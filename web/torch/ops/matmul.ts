// Matrix products (csrc/ops/matmul): gemm in tiles, or one invocation an element for thin matrices.
import { record, saved } from "../autograd";
import { isFloating } from "../dtype";
import { check, NotImplementedError } from "../errors";
import { launch } from "../launch";
import { numelOf, Tensor } from "../tensor";
import { broadcastShapes } from "./collapse";

const TILE = 8;

// A @ B for tensors of three dimensions; the batch of either may be expanded.
function product(label: string, a: Tensor, b: Tensor, out: Tensor, bias?: Tensor): void {
  const [batch, m, n] = out.shape as [number, number, number];
  const k = a.shape[2]!;
  const tilesM = Math.ceil(m / (4 * TILE));
  const tilesN = Math.ceil(n / (4 * TILE));
  const direct = m < 8 || n < 8;
  launch({
    label,
    kernel: direct ? "gemm_direct" : "gemm",
    operands: { c: out, a, b, d: bias },
    consts: {
      ...(direct ? {} : { tile: TILE }),
      ...{ scaled: false, flipped: false, fused_text: 0, fused_page: 0 },
    },
    params: {
      ...{ m, n, k, batch, tiles_m: tilesM, tiles_n: tilesN, splits: 1, k_piece: k },
      ...{ a_batch: a.strides[0]!, a_row: a.strides[1]!, a_column: a.strides[2]! },
      ...{ b_batch: b.strides[0]!, b_row: b.strides[1]!, b_column: b.strides[2]! },
      ...{ c_batch: out.strides[0]!, c_row: out.strides[1]!, c_column: out.strides[2]! },
      ...{ d_batch: bias?.strides[0] ?? 0, d_row: bias?.strides[1] ?? 0 },
      d_column: bias?.strides[2] ?? 0,
      ...{ a_along_k: a.strides[2] === 1 ? 1 : 0, b_along_k: b.strides[1] === 1 ? 1 : 0, lanes: 1 },
    },
    workgroups: direct ? Math.ceil((m * n * batch) / 64) : tilesM * tilesN * batch,
  });
}

function sameDType(label: string, a: Tensor, b: Tensor): void {
  check(
    a.dtype === b.dtype,
    () => `expected m1 and m2 to have the same dtype, but got: ${a.dtype} != ${b.dtype}`,
  );
  if (a.dtype === "bool") {
    throw new NotImplementedError(`"${label}" not implemented for 'Bool'`);
  }
}

export function bmm(self: Tensor, mat2: Tensor): Tensor {
  return batched("bmm", self, mat2);
}

function batched(label: string, a: Tensor, b: Tensor, bias?: Tensor): Tensor {
  sameDType(label, a, b);
  check(a.dim() === 3 && b.dim() === 3, () => `batch1 must be a 3D tensor`);
  check(
    a.shape[0] === b.shape[0] && a.shape[2] === b.shape[1],
    () =>
      `Expected size for first two dimensions of batch2 tensor to be: [${a.shape[0]!}, ${a.shape[2]!}] ` +
      `but got: [${b.shape[0]!}, ${b.shape[1]!}].`,
  );
  const out = Tensor.empty([a.shape[0]!, a.shape[1]!, b.shape[2]!], a.dtype);
  if (out.numel() > 0) {
    product(label, a, b, out, bias?.expand(out.shape));
  }
  const [readA, readB] = [saved(a), saved(b)];
  return record(out, "BmmBackward0", [a, b, bias], (g) => [
    a.requires_grad ? bmm(g, readB().transpose(1, 2)) : undefined,
    b.requires_grad ? bmm(readA().transpose(1, 2), g) : undefined,
    bias?.requires_grad === true ? g : undefined,
  ]);
}

export function mm(self: Tensor, mat2: Tensor): Tensor {
  check(self.dim() === 2 && mat2.dim() === 2, () => "self must be a matrix");
  checkInner(self, mat2);
  return batched("mm", self.unsqueeze(0), mat2.unsqueeze(0)).squeeze(0);
}

function checkInner(a: Tensor, b: Tensor): void {
  check(
    a.shape[1] === b.shape[0],
    () =>
      `mat1 and mat2 shapes cannot be multiplied (${a.shape[0]!}x${a.shape[1]!} and ${b.shape[0]!}x${b.shape[1]!})`,
  );
}

export function mv(self: Tensor, vec: Tensor): Tensor {
  check(
    self.dim() === 2 && vec.dim() === 1 && self.shape[1] === vec.shape[0],
    () => `size mismatch, got input (${self.shape.join("x")}), vec (${vec.shape.join("x")})`,
  );
  return mm(self, vec.unsqueeze(1)).squeeze(1);
}

export function dot(self: Tensor, other: Tensor): Tensor {
  check(
    self.dim() === 1 && other.dim() === 1,
    () => `1D tensors expected, but got ${self.dim()}D and ${other.dim()}D tensors`,
  );
  check(
    self.shape[0] === other.shape[0],
    () =>
      `inconsistent tensor size, expected tensor [${self.shape[0]!}] and src [${other.shape[0]!}] to have the same number of elements, but got ${self.shape[0]!} and ${other.shape[0]!} elements respectively`,
  );
  return mm(self.unsqueeze(0), other.unsqueeze(1)).reshape([]);
}

export function outer(self: Tensor, vec2: Tensor): Tensor {
  check(self.dim() === 1 && vec2.dim() === 1, () => "outer: Expected 1-D arguments");
  return self.unsqueeze(1).mul(vec2);
}
export const ger = outer;

/** Products of vectors, matrices and batches of them, which broadcast. */
export function matmul(self: Tensor, other: Tensor): Tensor {
  const [a, b] = [self, other];
  check(
    a.dim() > 0 && b.dim() > 0,
    () =>
      `both arguments to matmul need to be at least 1D, but they are ${a.dim()}D and ${b.dim()}D`,
  );
  if (a.dim() === 1 && b.dim() === 1) {
    return dot(a, b);
  }
  const left = a.dim() === 1 ? a.unsqueeze(0) : a;
  const right = b.dim() === 1 ? b.unsqueeze(1) : b;
  const [m, k] = left.shape.slice(-2) as [number, number];
  const [k2, n] = right.shape.slice(-2) as [number, number];
  check(k === k2, () => `mat1 and mat2 shapes cannot be multiplied (${m}x${k} and ${k2}x${n})`);
  const batch = broadcastShapes(left.shape.slice(0, -2), right.shape.slice(0, -2));
  let result: Tensor;
  if (right.dim() === 2 && left.dim() > 2) {
    // One product of all rows.
    result = mm(left.reshape(numelOf(left.shape.slice(0, -1)), k), right).reshape([...batch, m, n]);
  } else {
    const count = numelOf(batch);
    const as3d = (x: Tensor, rows: number, columns: number): Tensor =>
      x.expand([...batch, rows, columns]).reshape(count, rows, columns);
    result = batched("matmul", as3d(left, m, k), as3d(right, k, n)).reshape([...batch, m, n]);
  }
  result = a.dim() === 1 ? result.squeeze(-2) : result;
  return b.dim() === 1 ? result.squeeze(-1) : result;
}

export interface BetaAlpha {
  beta?: number;
  alpha?: number;
}

function combined(self: Tensor, result: Tensor, { beta = 1, alpha = 1 }: BetaAlpha): Tensor {
  if (!isFloating(result.dtype) && !(Number.isInteger(beta) && Number.isInteger(alpha))) {
    throw new NotImplementedError("fractions as beta or alpha of integer matrices");
  }
  check(
    self.dtype === result.dtype,
    () => `self and mat2 must have the same dtype, but got ${self.dtype} and ${result.dtype}`,
  );
  check(
    broadcastShapes(self.shape, result.shape).join() === result.shape.join(),
    () =>
      `The expanded size of the tensor must match the existing size. Target sizes: ` +
      `[${result.shape.join(", ")}]. Tensor sizes: [${self.shape.join(", ")}]`,
  );
  const scaled = alpha === 1 ? result : result.mul(alpha);
  return beta === 0 ? scaled : scaled.add(beta === 1 ? self : self.mul(beta));
}

export const addmm = (self: Tensor, mat1: Tensor, mat2: Tensor, options: BetaAlpha = {}): Tensor =>
  combined(self, mm(mat1, mat2), options);
export const addmv = (self: Tensor, mat: Tensor, vec: Tensor, options: BetaAlpha = {}): Tensor =>
  combined(self, mv(mat, vec), options);
export const baddbmm = (self: Tensor, b1: Tensor, b2: Tensor, options: BetaAlpha = {}): Tensor =>
  combined(self, bmm(b1, b2), options);
export const addbmm = (self: Tensor, b1: Tensor, b2: Tensor, options: BetaAlpha = {}): Tensor =>
  combined(self, bmm(b1, b2).sum(0, false, { dtype: b1.dtype }), options);

/** input @ weight.T + bias */
export function linear(input: Tensor, weight: Tensor, bias?: Tensor): Tensor {
  if (weight.dim() === 1 && bias === undefined) {
    return matmul(input, weight);
  }
  check(weight.dim() === 2, () => "linear: the weight must be a matrix");
  const [outs, ins] = weight.shape as [number, number];
  check(
    input.shape.at(-1) === ins,
    () =>
      `mat1 and mat2 shapes cannot be multiplied (${numelOf(input.shape.slice(0, -1))}x${String(input.shape.at(-1))} and ${ins}x${outs})`,
  );
  const rows = input.reshape(1, numelOf(input.shape.slice(0, -1)), ins);
  const out = batched("linear", rows, weight.t().unsqueeze(0), bias?.reshape(1, 1, -1));
  return out.reshape([...input.shape.slice(0, -1), outs]);
}

// The labels of an operand, with dots as those of the dimensions that an ellipsis stands for, from the last.
function labelsOf(text: string, rank: number): string[] {
  const [before, after] = text.split("...") as [string, string | undefined];
  const named = before.length + (after?.length ?? 0);
  check(
    after === undefined ? named === rank : named <= rank,
    () =>
      `einsum(): the number of subscripts in the equation (${named}) does not match the number of ` +
      `dimensions (${rank}) for an operand`,
  );
  const open = Array.from({ length: rank - named }, (_, k) => `.${rank - named - 1 - k}`);
  return [...before, ...open, ...(after ?? "")];
}

// Where the first character is that is no subscript: behind the arrow, a comma or another arrow is none either.
function invalidAt(equation: string): number {
  const arrow = equation.indexOf("->");
  const end = arrow < 0 ? equation.length : arrow;
  const before = equation.slice(0, end).search(/[^a-zA-Z.,\s]/);
  return before >= 0 ? before : end + 2 + equation.slice(end + 2).search(/[^a-zA-Z.\s]/);
}

interface Labelled {
  tensor: Tensor;
  labels: string[];
}

// With one dimension for each label: the diagonal of those that are repeated.
function distinct({ tensor, labels }: Labelled): Labelled {
  const again = labels.findIndex((label, k) => labels.indexOf(label) < k);
  if (again < 0) {
    return { tensor, labels };
  }
  const label = labels[again]!;
  const first = labels.indexOf(label);
  check(
    tensor.shape[first] === tensor.shape[again],
    () =>
      `einsum(): subscript ${label} is repeated for an operand but the sizes don't match, ` +
      `${tensor.shape[again]!} != ${tensor.shape[first]!}`,
  );
  // diagonal() puts its dimension last.
  return distinct({
    tensor: tensor.diagonal(0, first, again),
    labels: [...labels.filter((one, k) => k !== first && k !== again), label],
  });
}

// Sums over the labels that nothing else has.
function summed({ tensor, labels }: Labelled, needed: ReadonlySet<string>): Labelled {
  const dims = labels.flatMap((label, d) => (needed.has(label) ? [] : [d]));
  return dims.length === 0
    ? { tensor, labels }
    : { tensor: tensor.sum(dims), labels: labels.filter((label) => needed.has(label)) };
}

// The dimensions in the order of `labels`; those that are missing have size 1.
function ordered({ tensor, labels }: Labelled, wanted: readonly string[]): Tensor {
  const present = wanted.filter((label) => labels.includes(label));
  const moved = tensor.permute(present.map((label) => labels.indexOf(label)));
  const sizes = new Map(present.map((label, d) => [label, moved.shape[d]!]));
  return moved.reshape(wanted.map((label) => sizes.get(label) ?? 1));
}

// Both summed over the labels that neither the result nor a later operand needs: one batch of products.
function contracted(a: Labelled, b: Labelled, needed: ReadonlySet<string>): Labelled {
  const both = a.labels.filter((label) => b.labels.includes(label));
  const sums = both.filter((label) => !needed.has(label));
  const batch = both.filter((label) => needed.has(label));
  const left = a.labels.filter((label) => !both.includes(label));
  const right = b.labels.filter((label) => !both.includes(label));
  const labels = [...batch, ...left, ...right];
  const size = (label: string): number =>
    [a, b]
      .flatMap(({ tensor, labels: own }) =>
        own.includes(label) ? [tensor.shape[own.indexOf(label)]!] : [],
      )
      .find((length) => length !== 1) ?? 1;
  const sized = (from: Labelled, list: string[]): Tensor =>
    ordered(from, list).expand(
      list.map((label) => (from.labels.includes(label) ? size(label) : 1)),
    );
  const count = (list: string[]): number => numelOf(list.map(size));
  if (sums.length === 0) {
    return { tensor: ordered(a, labels).mul(ordered(b, labels)), labels };
  }
  const first = sized(a, [...batch, ...left, ...sums]);
  const second = sized(b, [...batch, ...sums, ...right]);
  const product = bmm(
    first.reshape(count(batch), count(left), count(sums)),
    second.reshape(count(batch), count(sums), count(right)),
  );
  return { tensor: product.reshape(labels.map(size)), labels };
}

/** Products and sums by the names of dimensions: einsum("bij,bjk->bik", a, b). */
export function einsum(equation: string, ...operands: (Tensor | readonly Tensor[])[]): Tensor {
  const tensors = operands.flat() as Tensor[];
  // A second arrow is in what follows the first, where it is no letter.
  const [inputs, given] = equation.split(/->(.*)/s).map((part) => part.replaceAll(" ", "")) as [
    string,
    string | undefined,
  ];
  const terms = inputs.split(",");
  check(terms.length === tensors.length && tensors.length > 0, () =>
    terms.length > tensors.length
      ? "einsum(): more operands were specified in the equation than were provided"
      : "einsum(): fewer operands were provided than specified in the equation",
  );
  [...terms, given ?? ""].forEach((part, k) => {
    const letters = part.replace("...", "");
    check(
      !letters.includes("."),
      () =>
        `einsum(): found '.' for ${k < terms.length ? `operand ${k}` : "output"} that is not part of any ellipsis`,
    );
    check(
      /^[a-zA-Z]*$/.test(letters),
      () =>
        `einsum(): invalid subscript given at index ${invalidAt(equation)} in the equation ` +
        "string, subscripts must be in [a-zA-Z]",
    );
  });
  const parts = tensors.map((tensor, k) =>
    distinct({ tensor, labels: labelsOf(terms[k]!, tensor.dim()) }),
  );
  const all = tensors.flatMap((tensor, k) => labelsOf(terms[k]!, tensor.dim()));
  const dots = [...new Set(all.filter((label) => label.length > 1))].sort().reverse();
  let output: string[];
  if (given === undefined) {
    // What is there once, in the order of the alphabet.
    const once = all.filter(
      (label) => label.length === 1 && all.indexOf(label) === all.lastIndexOf(label),
    );
    output = [...dots, ...once.sort()];
  } else {
    const [before, after] = given.split("...") as [string, string | undefined];
    output = [...before, ...(after === undefined ? [] : dots), ...(after ?? "")];
  }
  output.forEach((label, k) => {
    check(
      all.includes(label),
      () =>
        `einsum(): output subscript ${label} does not appear in the equation for any input operand`,
    );
    check(
      output.indexOf(label) === k,
      () => `einsum(): output subscript ${label} appears more than once in the output`,
    );
  });
  const sizes = new Map<string, number>();
  for (const { tensor, labels } of parts) {
    labels.forEach((label, d) => {
      const [size, before] = [tensor.shape[d]!, sizes.get(label) ?? 1];
      check(
        size === before || size === 1 || before === 1,
        () =>
          `einsum(): subscript ${label} has size ${size} for an operand which does not broadcast with ` +
          `previously seen size ${before}`,
      );
      sizes.set(label, before === 1 ? size : before);
    });
  }
  const result = parts.reduce((made, part, k) => {
    const needed = new Set([...output, ...parts.slice(k + 1).flatMap(({ labels }) => labels)]);
    // What only one of both has and nobody needs is summed first, so that the product is small.
    return contracted(
      summed(made, new Set([...needed, ...part.labels])),
      summed(part, new Set([...needed, ...made.labels])),
      needed,
    );
  });
  const last = summed(result, new Set(output));
  return last.tensor.permute(output.map((label) => last.labels.indexOf(label)));
}

/** x1 @ weight[k] @ x2 for each output k, and a bias. */
export function bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias?: Tensor): Tensor {
  check(weight.dim() === 3, () => `bilinear(): weight must be 3D, got ${weight.dim()}D`);
  const [outs, ...ins] = weight.shape as [number, number, number];
  check(
    x1.dim() > 0 && x1.shape.slice(0, -1).join() === x2.shape.slice(0, -1).join(),
    () =>
      `bilinear(): input batch dimensions do not match: got [${x1.shape.join(", ")}] and [${x2.shape.join(", ")}]`,
  );
  [x1, x2].forEach((x, k) => {
    check(
      x.shape.at(-1) === ins[k],
      () =>
        `bilinear(): input${k + 1} size does not match weight size: got ${String(x.shape.at(-1))} but expected ${ins[k]!}`,
    );
  });
  check(
    bias === undefined || bias.shape.join() === String(outs),
    () =>
      `bilinear(): bias size does not match weight size: got [${bias!.shape.join(", ")}] but expected ${outs}`,
  );
  const out = einsum("...i,kij,...j->...k", x1, weight, x2);
  return bias === undefined ? out : out.add(bias);
}
