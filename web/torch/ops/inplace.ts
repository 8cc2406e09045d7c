// Operators that change their first tensor: computed by the form without `_`, whose result is copied there.
import { records } from "../autograd";
import { dtypeInfo } from "../dtype";
import { check } from "../errors";
import type { Tensor } from "../tensor";
import * as compose from "./compose";
import { copyInto, isTensor, refuseInPlace, type Operand } from "./elementwise";
import { index_add, index_copy, index_fill, scatter_reduce } from "./indexing";
import { addbmm, addmm, addmv, baddbmm } from "./matmul";
import { checkBeside, checkWritable } from "./memory";
import { tril, triu } from "./movement";
import * as pointwise from "./pointwise";
import { cumprod, cumsum } from "./reduce";

const { unary, binary } = pointwise;

const FORMS = {
  ...compose.aliases,
  ...{ addbmm, addmm, addmv, baddbmm, cumprod, cumsum, tril, triu },
  ...{ index_add, index_copy, index_fill, scatter_reduce },
  ...{ addr: compose.addr, deg2rad: compose.deg2rad, rad2deg: compose.rad2deg },
  masked_scatter: compose.masked_scatter,
  bitwise_left_shift: pointwise.bitwise_left_shift,
  bitwise_not: pointwise.bitwise_not,
  bitwise_right_shift: pointwise.bitwise_right_shift,
  clamp_max: pointwise.clamp_max,
  clamp_min: pointwise.clamp_min,
  clip: pointwise.clip,
  eq: binary.eq,
  floor_divide: pointwise.floor_divide,
  gcd: binary.gcd,
  ge: binary.ge,
  gt: binary.gt,
  heaviside: binary.heaviside,
  hypot: binary.hypot,
  igamma: pointwise.igamma,
  igammac: pointwise.igammac,
  lcm: binary.lcm,
  ldexp: pointwise.ldexp,
  le: binary.le,
  logical_and: binary.logical_and,
  logical_not: unary.logical_not,
  logical_or: binary.logical_or,
  logical_xor: binary.logical_xor,
  logit: pointwise.logit,
  lt: binary.lt,
  nan_to_num: pointwise.nan_to_num,
  ne: binary.ne,
  nextafter: binary.nextafter,
  sign: pointwise.sign,
  square: pointwise.square,
  true_divide: pointwise.true_divide,
  xlogy: binary.xlogy,
};

type Forms = typeof FORMS;
type InPlace = { [Name in keyof Forms as `${Name}_`]: Forms[Name] };

/** Those that write elements in another order than they read them: no operand may be what is written. */
const ANY_ORDER = new Set(["index_add", "index_copy", "index_fill", "scatter_reduce"]);
/** Those whose operands PyTorch does not compare with what is written. Here their results are those of copies. */
const UNCHECKED = new Set(["addbmm", "addmm", "addmv", "baddbmm", "masked_scatter"]);

type Call = (self: Tensor, ...args: unknown[]) => Tensor;

function inPlace(name: string, form: Call): Call {
  return (self, ...args) => {
    const tensors = (args as Operand[]).filter(
      (one): one is Tensor => isTensor(one) && "storage" in one,
    );
    if (records([self, ...tensors])) {
      refuseInPlace(self, name);
    }
    const result = form(self.detach(), ...args);
    check(
      result.shape.join() === self.shape.join(),
      () =>
        `output with shape [${self.shape.join(", ")}] doesn't match the broadcast shape ` +
        `[${result.shape.join(", ")}]`,
    );
    check(
      dtypeInfo(result.dtype).category <= dtypeInfo(self.dtype).category,
      () =>
        `result type ${dtypeInfo(result.dtype).name} can't be cast to the desired output type ` +
        dtypeInfo(self.dtype).name,
    );
    checkWritable(self, name);
    if (!UNCHECKED.has(name)) {
      for (const tensor of tensors) {
        checkBeside(self, tensor, name, ANY_ORDER.has(name));
      }
    }
    copyInto(self, result, name);
    return self;
  };
}

/** add_ and the like that have no kernel of their own. */
export const changed = Object.fromEntries(
  Object.entries(FORMS).map(([name, form]) => [`${name}_`, inPlace(name, form as Call)]),
) as InPlace;
