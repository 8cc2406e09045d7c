// The operators as methods of Tensor: x.add(y) is torch.add(x, y).
import * as asynchronous from "./ops/asynchronous";
import * as compose from "./ops/compose";
import * as indexing from "./ops/indexing";
import { changed } from "./ops/inplace";
import * as matmul from "./ops/matmul";
import * as members from "./ops/members";
import * as movement from "./ops/movement";
import * as normalize from "./ops/normalize";
import * as pointwise from "./ops/pointwise";
import * as random from "./ops/random";
import * as reduce from "./ops/reduce";
import * as sort from "./ops/sort";
import type { Dims, ValuesAndIndices } from "./ops/reduce";
import { addMissing } from "./missing";
import { checkedFunction } from "./signatures";
import { Tensor } from "./tensor";

// Functions of the modules that are no methods: they take no tensor first, or help others.
const NOT_INDEXING = ["embedding", "one_hot"] as const;
const NOT_ASYNCHRONOUS = ["nonzero"] as const;
const NOT_COMPOSE = [
  "aliases",
  "atleast_1d",
  "atleast_2d",
  "atleast_3d",
  "block_diag",
  "cartesian_prod",
  "cdist",
  "column_stack",
  "cumulative_trapezoid",
  "dstack",
  "isin",
  "logspace",
  "row_stack",
  "std_mean",
  "tensordot",
  "trapezoid",
  "trapz",
  "tril_indices",
  "triu_indices",
  "vander",
] as const;
const NOT_MATMUL = ["bilinear", "einsum", "linear"] as const;
const NOT_MOVEMENT = [
  "Slice",
  "broadcast_tensors",
  "cat",
  "concat",
  "concatenate",
  "hstack",
  "meshgrid",
  "stack",
  "vstack",
] as const;
const NOT_NORMALIZE = [
  "batch_norm",
  "cosine_similarity",
  "group_norm",
  "instance_norm",
  "layer_norm",
  "normalize",
  "rms_norm",
] as const;
const NOT_POINTWISE = [
  "binary",
  "binaryInPlace",
  "promote_types",
  "refuseBool",
  "result_type",
  "unary",
  "unaryInPlace",
] as const;
const NOT_RANDOM = [
  "alpha_dropout",
  "dropout",
  "dropout1d",
  "dropout2d",
  "dropout3d",
  "feature_alpha_dropout",
  "gumbel_softmax",
  "initial_seed",
  "manual_seed",
  "rand",
  "rand_like",
  "randint",
  "randn",
  "randn_like",
  "randperm",
  "rrelu",
] as const;
const NOT_REDUCE = ["max", "min", "reducedDims", "variance"] as const;
const NOT_SORT = ["median"] as const;

type Method<F> = F extends (self: Tensor, ...args: infer A) => infer R ? (...args: A) => R : never;
type MethodsOf<Module, Not extends string> = {
  [Name in Exclude<keyof Module, Not>]: Method<Module[Name]>;
};

interface Overloaded {
  max(other?: Tensor): Tensor;
  max(dim: number, keepdim?: boolean): ValuesAndIndices;
  min(other?: Tensor): Tensor;
  min(dim: number, keepdim?: boolean): ValuesAndIndices;
  median(): Tensor;
  median(dim: number, keepdim?: boolean): ValuesAndIndices;
  nonzero(options?: { as_tuple?: false }): Promise<Tensor>;
  nonzero(options: { as_tuple: true }): Promise<Tensor[]>;
  var(dim?: Dims, options?: reduce.Correction): Tensor;
}

type Named = MethodsOf<typeof pointwise.unary, never> &
  MethodsOf<typeof pointwise.unaryInPlace, never> &
  MethodsOf<typeof pointwise.binary, never> &
  MethodsOf<typeof pointwise.binaryInPlace, never>;

export type Methods = Overloaded &
  Named &
  MethodsOf<typeof compose.aliases, never> &
  MethodsOf<typeof members, never> &
  MethodsOf<typeof compose, (typeof NOT_COMPOSE)[number]> &
  MethodsOf<typeof changed, never> &
  MethodsOf<typeof asynchronous, (typeof NOT_ASYNCHRONOUS)[number]> &
  MethodsOf<typeof indexing, (typeof NOT_INDEXING)[number]> &
  MethodsOf<typeof matmul, (typeof NOT_MATMUL)[number]> &
  MethodsOf<typeof movement, (typeof NOT_MOVEMENT)[number]> &
  MethodsOf<typeof normalize, (typeof NOT_NORMALIZE)[number]> &
  MethodsOf<typeof pointwise, (typeof NOT_POINTWISE)[number]> &
  MethodsOf<typeof random, (typeof NOT_RANDOM)[number]> &
  MethodsOf<typeof reduce, (typeof NOT_REDUCE)[number]> &
  MethodsOf<typeof sort, (typeof NOT_SORT)[number]>;

function add(functions: object, not: readonly string[]): void {
  for (const [name, operator] of Object.entries(functions)) {
    if (!not.includes(name)) {
      const call = checkedFunction(
        name,
        operator as (self: Tensor, ...args: unknown[]) => unknown,
        true,
      );
      Object.defineProperty(Tensor.prototype, name, {
        value(this: Tensor, ...args: unknown[]) {
          return call(this, ...args);
        },
      });
    }
  }
}

/** Adds the operators to Tensor. index.ts calls it once. */
export function addMethods(): void {
  add(asynchronous, NOT_ASYNCHRONOUS);
  add(compose.aliases, []);
  add(members, []);
  add(compose, NOT_COMPOSE);
  add(changed, []);
  add(indexing, NOT_INDEXING);
  add(matmul, NOT_MATMUL);
  add(movement, NOT_MOVEMENT);
  add(normalize, NOT_NORMALIZE);
  add(pointwise, NOT_POINTWISE);
  add(random, NOT_RANDOM);
  add(reduce, NOT_REDUCE);
  add(sort, NOT_SORT);
  add(pointwise.unary, []);
  add(pointwise.unaryInPlace, []);
  add(pointwise.binary, []);
  add(pointwise.binaryInPlace, []);
  add({ max: reduce.max, min: reduce.min, var: reduce.variance }, []);
  add({ median: sort.median, nonzero: asynchronous.nonzero }, []);
  addMissing(Tensor.prototype, "Tensor");
}
