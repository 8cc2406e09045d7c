/** BERT's tokenizer for uncased text: normalization, words, then WordPiece (Wu et al., 2016,
 * arXiv:1609.08144). Gives the ids that the tokenizers of Python's transformers give. Those know marks
 * and punctuation as of Unicode 8 (2015), a browser younger ones too: of 1.1 million characters
 * about 700 are treated in another way, none of which the vocabulary has. */

const SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] as const;
const MAX_WORD = 100; // code points; a longer word is unknown
const SPECIAL_IN_TEXT = /(\[(?:PAD|UNK|CLS|SEP|MASK)\])/;

// Controls, formats and private characters say nothing; neither do the signs of damaged text.
const REMOVED = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\0\uFFFD]/gu;
const WHITE_SPACE = /\p{White_Space}+/u;
// Each ideograph is a word.
const IDEOGRAPH =
  /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/gu;
const ACCENTS = /\p{Mn}/gu;
// Of ASCII the signs count too, as + and $.
const PUNCTUATION = /([!-/:-@[-`{-~\p{P}])/u;

/** Small letters without accents. */
function normalize(text: string): string {
  const plain = text.replace(REMOVED, "").replace(IDEOGRAPH, " $& ");
  const bare = plain.normalize("NFD").replace(ACCENTS, "");
  // One by one: a word's last sigma is like the others.
  return Array.from(bare, (character) => character.toLowerCase()).join("");
}

const wordsOf = (text: string): string[] =>
  normalize(text)
    .split(WHITE_SPACE)
    .flatMap((part) => part.split(PUNCTUATION))
    .filter((word) => word !== "");

export class WordPiece {
  private readonly tokens: readonly string[];
  private readonly ids: ReadonlyMap<string, number>;

  /** `vocabulary` has a token a line; a token's id is the number of its line, from 0. */
  constructor(vocabulary: string) {
    this.tokens = vocabulary.replace(/\n$/, "").split("\n");
    this.ids = new Map(this.tokens.map((token, id) => [token, id]));
    for (const token of SPECIAL) {
      if (!this.ids.has(token)) {
        throw new Error(`the vocabulary has no ${token}`);
      }
    }
  }

  /** The ids of a text between [CLS] and [SEP], at most `maxTokens` in all; what is longer is cut. */
  encode(text: string, maxTokens = Infinity): number[] {
    const found: number[] = [];
    for (const [k, part] of text.split(SPECIAL_IN_TEXT).entries()) {
      // What the expression captures stands at odd places.
      if (k % 2 === 1) {
        found.push(this.id(part));
      } else {
        for (const word of wordsOf(part)) {
          found.push(...this.pieces(word));
        }
      }
    }
    return [this.id("[CLS]"), ...found.slice(0, maxTokens - 2), this.id("[SEP]")];
  }

  /** The tokens of ids, as the vocabulary has them. */
  decode(ids: readonly number[]): string[] {
    return ids.map((id) => this.tokens[id]!);
  }

  private id(token: string): number {
    return this.ids.get(token)!;
  }

  // The longest tokens from the left; those that do not begin the word begin with ##.
  private pieces(word: string): number[] {
    const characters = Array.from(word);
    if (characters.length > MAX_WORD) {
      return [this.id("[UNK]")];
    }
    const found: number[] = [];
    let begin = 0;
    while (begin < characters.length) {
      let end = characters.length;
      let id: number | undefined;
      for (; end > begin; end--) {
        const piece = characters.slice(begin, end).join("");
        id = this.ids.get(begin > 0 ? `##${piece}` : piece);
        if (id !== undefined) {
          break;
        }
      }
      if (id === undefined) {
        return [this.id("[UNK]")];
      }
      found.push(id);
      begin = end;
    }
    return found;
  }
}
