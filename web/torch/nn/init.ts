// First values of parameters.
import { rand } from "../ops/random";
import { Parameter } from "./module";

/** From -bound to bound. A layer without inputs has no bound: its parameters are zero. */
export const uniform = (shape: readonly number[], bound: number): Parameter => {
  const most = Number.isFinite(bound) ? bound : 0;
  return new Parameter(
    rand(shape)
      .mul(2 * most)
      .sub(most),
  );
};
