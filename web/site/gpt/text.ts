/** What the GPT writes, token by token. */

import type { PlayerOf } from "../../player";
import type { Functions } from "./gpt.twg";
import { choose } from "./sample";

const TOP_K = 40;

/** A text that grows. The cache on the device has all of its tokens but the last. */
export class Text {
  private readonly decoder = new TextDecoder();
  private position = 0;
  private last = 0;
  written = 0;

  constructor(private readonly player: PlayerOf<Functions>) {}

  /** Reads a prompt of at least one token; of a long one, the end. */
  async begin(prompt: Uint8Array, context: number): Promise<void> {
    const tokens = prompt.subarray(-context);
    for (const token of tokens.subarray(0, -1)) {
      await this.player.step({ token: [token], position: [this.position++] }, { read: [] });
    }
    this.last = tokens.at(-1)!;
  }

  /**
   * Writes a token and returns the text that is new: none in the middle of a character. `random` is
   * from 0 to 1.
   */
  async next(temperature: number, random: number): Promise<string> {
    const { logits } = await this.player.step({ token: [this.last], position: [this.position] });
    this.position += 1;
    this.last = choose(logits, temperature, TOP_K, random);
    this.written += 1;
    return this.decoder.decode(Uint8Array.of(this.last), { stream: true });
  }
}
