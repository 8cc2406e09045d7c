// First values of parameters.
import { rand } from "../ops/random";
import { Parameter } from "./module";

/** From -bound to bound. */
export const uniform = (shape: readonly number[], bound: number): Parameter =>
  new Parameter(
    rand(shape)
      .mul(2 * bound)
      .sub(bound),
  );
