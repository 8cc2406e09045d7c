// The functions of digits.twg, as torch.webgpu.export wrote it.
import type { InputOf, OutputOf, RunOptions } from "../../player";

export type Functions = {
  step(
    inputs: {
      /** F32[64, 1, 8, 8] */
      images: InputOf<"F32">;
      /** I64[64] */
      labels: InputOf<"I64">;
      /** F32[] */
      lr?: InputOf<"F32">;
      seed0?: bigint | number;
      offset0?: bigint | number;
    },
    options?: RunOptions,
  ): Promise<{
    /** F32[] */
    loss: OutputOf<"F32">;
  }>;
  classify(
    inputs: {
      /** F32[1, 1, 8, 8] */
      image: InputOf<"F32">;
    },
    options?: RunOptions,
  ): Promise<{
    /** F32[1, 10] */
    probabilities: OutputOf<"F32">;
  }>;
  recognize(
    inputs: {
      /** F32[450, 1, 8, 8] */
      images: InputOf<"F32">;
    },
    options?: RunOptions,
  ): Promise<{
    /** I64[450] */
    digits: OutputOf<"I64">;
  }>;
};

export type States = "model" | "optimizer";
