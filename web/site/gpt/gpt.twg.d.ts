// The functions of gpt.twg, as torch.webgpu.export wrote it.
import type { InputOf, OutputOf, RunOptions } from "../../player";

export type Functions = {
  step(
    inputs: {
      /** I64[1] */
      token: InputOf<"I64">;
      /** I64[1] */
      position: InputOf<"I64">;
    },
    options?: RunOptions,
  ): Promise<{
    /** F32[256] */
    logits: OutputOf<"F32">;
  }>;
};

export type States = "model" | "cache";
