// Entries of a zip file that are stored without compression, as torch.save writes them. A library would mostly
// be the decompression that such files do not use.
import { NotImplementedError, RuntimeError } from "../errors";

function refuse(why: string): never {
  throw new RuntimeError(`not a zip file of torch.save: ${why}`);
}

const END = 0x06054b50;
const END_64 = 0x06064b50;
const LOCATOR_64 = 0x07064b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const UNKNOWN = 0xffffffff;

/** The entries by name. Offsets and sizes are checked against the file. */
export function readZip(bytes: Uint8Array): Map<string, Uint8Array> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = bytes.byteLength;
  const u64 = (at: number): number => {
    if (at + 8 > size) {
      refuse("it ends early");
    }
    const value = view.getBigUint64(at, true);
    return value > BigInt(size) ? refuse("an offset beyond its end") : Number(value);
  };
  let end = size - 22;
  while (end >= 0 && end > size - 22 - 65536 && view.getUint32(end, true) !== END) {
    end--;
  }
  if (end < 0 || view.getUint32(end, true) !== END) {
    refuse("no directory");
  }
  let count = view.getUint16(end + 10, true);
  let at = view.getUint32(end + 16, true);
  if (end >= 20 && view.getUint32(end - 20, true) === LOCATOR_64) {
    const wide = u64(end - 20 + 8);
    if (wide + 56 > size || view.getUint32(wide, true) !== END_64) {
      refuse("its 64-bit directory");
    }
    count = u64(wide + 32);
    at = u64(wide + 48);
  }
  const entries = new Map<string, Uint8Array>();
  for (let k = 0; k < count; k++) {
    if (at + 46 > size || view.getUint32(at, true) !== ENTRY) {
      refuse("its directory");
    }
    const method = view.getUint16(at + 10, true);
    const nameLength = view.getUint16(at + 28, true);
    const extraLength = view.getUint16(at + 30, true);
    const next = at + 46 + nameLength + extraLength + view.getUint16(at + 32, true);
    if (next > size) {
      refuse("its directory");
    }
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameLength));
    if (method !== 0) {
      throw new NotImplementedError(`${name} is compressed; torch.save stores entries as they are`);
    }
    const packed = view.getUint32(at + 20, true);
    const plain = view.getUint32(at + 24, true);
    let length = plain;
    let local = view.getUint32(at + 42, true);
    // Values that need 64 bits stand in an extra field, in this order.
    let extra = at + 46 + nameLength;
    const extraEnd = extra + extraLength;
    while (extra + 4 <= extraEnd) {
      const id = view.getUint16(extra, true);
      const bytesOfField = view.getUint16(extra + 2, true);
      if (id === 1) {
        let field = extra + 4;
        if (plain === UNKNOWN) {
          length = u64(field);
          field += 8;
        }
        if (packed === UNKNOWN) {
          field += 8;
        }
        if (local === UNKNOWN) {
          local = u64(field);
        }
      }
      extra += 4 + bytesOfField;
    }
    if (local + 30 > size || view.getUint32(local, true) !== LOCAL) {
      refuse(`the place of ${name}`);
    }
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (begin + length > size) {
      refuse(`the size of ${name}`);
    }
    entries.set(name, bytes.subarray(begin, begin + length));
    at = next;
  }
  return entries;
}
