// The few opcodes of pickle that a state dict of tensors needs. Nothing of the file is ever called: a name that the
// file asks for is looked up among five, and all other opcodes and names are refused.
import { RuntimeError } from "../errors";

/** Where a tensor's elements are: what torch._utils._rebuild_tensor_v2 is given. */
export interface TensorPlace {
  /** The class of the storage, such as FloatStorage. */
  storageType: string;
  key: string;
  storageElements: number;
  offset: number;
  shape: number[];
  strides: number[];
}

function refuse(why: string): never {
  throw new RuntimeError(`the pickle has ${why}, which no state dict of tensors needs`);
}

/** A name of a module, such as "torch float32". It is never looked up in anything. */
export class Global {
  constructor(readonly global: string) {}
}
class Mark {
  readonly mark = true;
}
class Dict extends Map<unknown, unknown> {}

const STORAGE = /^torch (Float|Half|Int|Long|Bool|Double|BFloat16|Byte|Char|Short)Storage$/;
const REBUILD_TENSOR = "torch._utils _rebuild_tensor_v2";
const REBUILD_PARAMETER = "torch._utils _rebuild_parameter";
const ORDERED_DICT = "collections OrderedDict";
const SIZE = "torch Size";

interface StorageId {
  storageType: string;
  key: string;
  elements: number;
}

const isStorage = (value: unknown): value is StorageId =>
  typeof value === "object" && value !== null && "storageType" in value && "elements" in value;
const isCounts = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && (n as number) >= 0);

function rebuild(callable: unknown, args: unknown): unknown {
  if (!(callable instanceof Global) || !Array.isArray(args)) {
    refuse("a call of something that is no name");
  }
  if (callable.global === ORDERED_DICT && args.length === 0) {
    return new Dict();
  }
  if (callable.global === SIZE && args.length === 1 && Array.isArray(args[0])) {
    return args[0];
  }
  if (callable.global === REBUILD_PARAMETER) {
    return args[0];
  }
  if (callable.global === REBUILD_TENSOR) {
    const [storage, offset, shape, strides] = args as unknown[];
    if (
      !isStorage(storage) ||
      !isCounts([offset]) ||
      !isCounts(shape) ||
      !isCounts(strides) ||
      shape.length !== strides.length
    ) {
      refuse("a tensor with wrong arguments");
    }
    const place: TensorPlace = {
      ...{ storageType: storage.storageType, key: storage.key, storageElements: storage.elements },
      ...{ offset: offset as number, shape, strides },
    };
    return place;
  }
  refuse(`a call of ${callable.global}`);
}

function persistent(id: unknown): StorageId {
  if (
    !Array.isArray(id) ||
    id[0] !== "storage" ||
    !(id[1] instanceof Global) ||
    typeof id[2] !== "string" ||
    !isCounts([id[4]])
  ) {
    refuse("a persistent id that is no storage");
  }
  const match = STORAGE.exec(id[1].global);
  if (match === null) {
    refuse(`a storage of type ${id[1].global}`);
  }
  return { storageType: match[1]!, key: id[2], elements: id[4] as number };
}

/** The value that the bytes stand for: maps, lists, plain values and tensors' places. */
export function unpickle(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const stack: unknown[] = [];
  const memo = new Map<number, unknown>();
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  const decode = (part: Uint8Array): string => {
    try {
      return utf8.decode(part);
    } catch {
      throw new RuntimeError("the pickle has a text that is no UTF-8");
    }
  };
  let at = 0;
  const need = (count: number): number => {
    if (at + count > bytes.byteLength) {
      throw new RuntimeError("the pickle ends early");
    }
    at += count;
    return at - count;
  };
  const byte = (): number => view.getUint8(need(1));
  const line = (): string => {
    const end = bytes.indexOf(0x0a, at);
    if (end < 0) {
      throw new RuntimeError("the pickle ends early");
    }
    const text = decode(bytes.subarray(at, end));
    at = end + 1;
    return text;
  };
  const text = (length: number): string => decode(bytes.subarray(need(length), at));
  const pop = (): unknown => {
    if (stack.length === 0) {
      throw new RuntimeError("the pickle takes from an empty stack");
    }
    return stack.pop();
  };
  const top = (): unknown => {
    if (stack.length === 0) {
      throw new RuntimeError("the pickle keeps what an empty stack has");
    }
    return stack.at(-1);
  };
  const popToMark = (): unknown[] => {
    const place = stack.findLastIndex((value) => value instanceof Mark);
    if (place < 0) {
      throw new RuntimeError("the pickle has no mark");
    }
    const values = stack.splice(place);
    return values.slice(1);
  };
  const setItems = (items: unknown[]): void => {
    const dict = stack.at(-1);
    if (!(dict instanceof Dict) || items.length % 2 !== 0) {
      refuse("items for something that is no dict");
    }
    for (let k = 0; k < items.length; k += 2) {
      dict.set(items[k], items[k + 1]);
    }
  };
  const recall = (key: number): unknown => {
    if (!memo.has(key)) {
      throw new RuntimeError("the pickle recalls what it has not kept");
    }
    return memo.get(key);
  };
  for (;;) {
    const opcode = byte();
    switch (String.fromCharCode(opcode)) {
      case "\x80": // PROTO
        if (byte() > 4) {
          refuse("a newer protocol");
        }
        break;
      case "\x95": // FRAME
        need(8);
        break;
      case ".": // STOP
        return pop();
      case "(": // MARK
        stack.push(new Mark());
        break;
      case "}": // EMPTY_DICT
        stack.push(new Dict());
        break;
      case "]": // EMPTY_LIST
        stack.push([]);
        break;
      case ")": // EMPTY_TUPLE
        stack.push([]);
        break;
      case "N": // NONE
        stack.push(null);
        break;
      case "\x88": // NEWTRUE
        stack.push(true);
        break;
      case "\x89": // NEWFALSE
        stack.push(false);
        break;
      case "K": // BININT1
        stack.push(byte());
        break;
      case "M": // BININT2
        stack.push(view.getUint16(need(2), true));
        break;
      case "J": // BININT
        stack.push(view.getInt32(need(4), true));
        break;
      case "\x8a": {
        // LONG1
        const length = byte();
        const begin = need(length);
        let value = 0n;
        for (let k = length - 1; k >= 0; k--) {
          value = (value << 8n) | BigInt(bytes[begin + k]!);
        }
        const signed = BigInt.asIntN(Math.max(8 * length, 1), value);
        const number = Number(signed);
        stack.push(Number.isSafeInteger(number) ? number : signed);
        break;
      }
      case "\x8b": // LONG4, which Python's torch.load refuses as well
        return refuse("an integer of more than 255 bytes");
      case "G": // BINFLOAT
        stack.push(view.getFloat64(need(8), false));
        break;
      case "X": // BINUNICODE
        stack.push(text(view.getUint32(need(4), true)));
        break;
      case "\x8c": // SHORT_BINUNICODE
        stack.push(text(byte()));
        break;
      case "c": // GLOBAL
        stack.push(new Global(`${line()} ${line()}`));
        break;
      case "q": // BINPUT
        memo.set(byte(), top());
        break;
      case "r": // LONG_BINPUT
        memo.set(view.getUint32(need(4), true), top());
        break;
      case "\x94": // MEMOIZE
        memo.set(memo.size, top());
        break;
      case "h": // BINGET
        stack.push(recall(byte()));
        break;
      case "j": // LONG_BINGET
        stack.push(recall(view.getUint32(need(4), true)));
        break;
      case "\x85": // TUPLE1
        stack.push([pop()]);
        break;
      case "\x86": // TUPLE2
        stack.push([pop(), pop()].reverse());
        break;
      case "\x87": // TUPLE3
        stack.push([pop(), pop(), pop()].reverse());
        break;
      case "t": // TUPLE
        stack.push(popToMark());
        break;
      case "Q": // BINPERSID
        stack.push(persistent(pop()));
        break;
      case "R": {
        // REDUCE
        const args = pop();
        stack.push(rebuild(pop(), args));
        break;
      }
      case "s": // SETITEM
        setItems([pop(), pop()].reverse());
        break;
      case "u": // SETITEMS
        setItems(popToMark());
        break;
      case "a": // APPEND
      case "e": {
        // APPENDS
        const items = opcode === 0x61 ? [pop()] : popToMark();
        const list = stack.at(-1);
        if (!Array.isArray(list)) {
          refuse("elements for something that is no list");
        }
        // Not as arguments, of which there may be too many.
        for (const item of items) {
          list.push(item);
        }
        break;
      }
      case "b": // BUILD: attributes of an OrderedDict, such as _metadata, are not needed
        pop();
        if (!(stack.at(-1) instanceof Dict)) {
          refuse("attributes for something that is no dict");
        }
        break;
      default:
        refuse(`opcode 0x${opcode.toString(16)}`);
    }
  }
}
