// @if, @elif and @else of kernel files, in the syntax of WESL (csrc/wgsl/README.md). Texts have no comments.

type Holds = (name: string) => boolean;

const isWord = (c: string | undefined): boolean => c !== undefined && /\w/.test(c);

class Resolver {
  constructor(
    private readonly text: string,
    private readonly holds: Holds,
  ) {}

  resolve(): string {
    const pattern = /@if\b/g;
    let out = "";
    let copied = 0;
    for (let found = pattern.exec(this.text); found !== null; found = pattern.exec(this.text)) {
      out += this.text.slice(copied, found.index);
      const [end, branch] = this.chain(found.index);
      out += branch;
      copied = end;
      pattern.lastIndex = end;
    }
    return out + this.text.slice(copied);
  }

  private fail(why: string, at: number): never {
    throw new Error(`conditional WGSL: ${why} before: ${this.text.slice(at, at + 60)}`);
  }

  private space(at: number): number {
    while (/\s/.test(this.text[at] ?? "")) {
      at++;
    }
    return at;
  }

  // From an @if to the end of its last branch, and the branch that holds.
  private chain(start: number): [number, string] {
    let at = start;
    let branch = "";
    let taken = false;
    for (let name = "if"; ;) {
      at += 1 + name.length;
      let wanted = !taken;
      if (name !== "else") {
        const [end, value] = this.condition(at);
        at = end;
        wanted &&= value;
      }
      at = this.space(at);
      const end = this.endOfDecorated(at);
      if (wanted) {
        taken = true;
        branch = new Resolver(this.text.slice(at, end), this.holds).resolve();
      }
      const next = this.space(end);
      const follows = /^@(elif|else)\b/.exec(this.text.slice(next, next + 6));
      if (name === "else" || follows === null) {
        return [end, branch];
      }
      name = follows[1]!;
      at = next;
    }
  }

  // Behind the declaration, statement or block at `start`.
  private endOfDecorated(start: number): number {
    let depth = 0;
    for (let at = start; at < this.text.length;) {
      const c = this.text[at++]!;
      depth += "([{".includes(c) ? 1 : ")]}".includes(c) ? -1 : 0;
      if (depth < 0) {
        break;
      }
      if (depth > 0 || (c !== ";" && c !== "}")) {
        continue;
      }
      const next = this.space(at);
      const goesOn = this.text.startsWith("else", next) && !isWord(this.text[next + 4]);
      if (c === ";" || !goesOn) {
        return at;
      }
    }
    return this.fail("a decorated part has no end", start);
  }

  private condition(start: number): [number, boolean] {
    const open = this.space(start);
    let depth = 0;
    let end = open;
    do {
      depth += this.text[end] === "(" ? 1 : this.text[end] === ")" ? -1 : 0;
      end++;
    } while (depth > 0 && end < this.text.length);
    return [end, holdsCondition(this.text.slice(open, end), this.holds)];
  }
}

/** Whether a condition over names, `!`, `&&`, `||`, `==`, `!=`, numbers and sums of names holds. */
export function holdsCondition(text: string, value: (name: string) => boolean | number): boolean {
  const tokens = text.match(/\w+|&&|\|\||==|!=|<=|>=|[!()+<>]/g) ?? [];
  let at = 0;
  const accept = (token: string): boolean => tokens[at] === token && ++at > 0;
  const term = (): number => {
    if (accept("!")) {
      return term() === 0 ? 1 : 0;
    }
    if (accept("(")) {
      const inner = disjunction();
      if (!accept(")")) {
        throw new Error(`no ) in the condition ${text}`);
      }
      return inner;
    }
    const name = tokens[at++] ?? "";
    return /^\d+u?$/.test(name) ? parseInt(name) : name === "true" ? 1 : Number(value(name));
  };
  const sum = (): number => {
    let total = term();
    while (accept("+")) {
      total += term();
    }
    return total;
  };
  const comparison = (): number => {
    const left = sum();
    const sign = tokens[at];
    const compare: Record<string, (right: number) => boolean> = {
      "==": (right) => left === right,
      "!=": (right) => left !== right,
      "<": (right) => left < right,
      "<=": (right) => left <= right,
      ">": (right) => left > right,
      ">=": (right) => left >= right,
    };
    if (sign !== undefined && Object.hasOwn(compare, sign)) {
      at++;
      return Number(compare[sign]!(sum()));
    }
    return left;
  };
  const conjunction = (): number => {
    let all = comparison();
    while (accept("&&")) {
      all = Math.min(comparison(), all === 0 ? 0 : 1);
    }
    return all;
  };
  const disjunction = (): number => {
    let any = conjunction();
    while (accept("||")) {
      any = Math.max(conjunction(), any);
    }
    return any;
  };
  const result = disjunction();
  if (at !== tokens.length) {
    throw new Error(`cannot read the condition ${text}`);
  }
  return result !== 0;
}

/** The text with the branches that hold; `holds` answers for the names in conditions. */
export const resolveConditions = (text: string, holds: Holds): string =>
  new Resolver(text, holds).resolve();
