// The functions of minilm.twg, as torch.webgpu.export wrote it.
import type { InputOf, OutputOf, RunOptions } from "../../player";

export type Functions = {
  short(
    inputs: {
      /** I64[1, 32] */
      ids: InputOf<"I64">;
      /** I64[1, 32] */
      mask: InputOf<"I64">;
    },
    options?: RunOptions,
  ): Promise<{
    /** F32[384] */
    vector: OutputOf<"F32">;
  }>;
  long(
    inputs: {
      /** I64[1, 128] */
      ids: InputOf<"I64">;
      /** I64[1, 128] */
      mask: InputOf<"I64">;
    },
    options?: RunOptions,
  ): Promise<{
    /** F32[384] */
    vector: OutputOf<"F32">;
  }>;
};

export type States = "model";
