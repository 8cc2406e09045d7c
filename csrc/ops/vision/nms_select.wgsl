// Goes through the boxes in the order of their scores, 32 at a time, and keeps those that no kept box suppresses. One
// workgroup; parts of the boxes follow one another.
//
// @operand bits: in {bits32}  // of the boxes of this part, see nms_pairs.wgsl
// @operand state: out {bits32} // a bit for each box that is suppressed, then the number of kept ones
// @operand order: in {i64}
// @operand keep: out {i64}
// @grid groups 1

struct Params {
  first: u32, // the first box of this part, a multiple of 32
  rows: u32,  // boxes of this part
  words: u32, // of a box
}

var<workgroup> own_words: array<u32, 32>;
var<workgroup> kept: u32;
var<workgroup> number: u32;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) local: u32) {
  if (local == 0u) {
    number = load_state(p.state_at + p.words);
  }
  for (var base = 0u; base < p.rows; base += 32u) {
    let word = (p.first + base) / 32u;
    if (local < 32u && base + local < p.rows) {
      own_words[local] = load_bits(p.bits_at + (base + local) * p.words + word);
    }
    storageBarrier();
    workgroupBarrier();
    if (local == 0u) {
      var suppressed = load_state(p.state_at + word);
      var chosen = 0u;
      for (var k = 0u; k < 32u && base + k < p.rows; k++) {
        if ((suppressed & (1u << k)) == 0u) {
          chosen |= 1u << k;
          suppressed |= own_words[k];
        }
      }
      kept = chosen;
    }
    workgroupBarrier();
    let chosen = kept;
    if (local < 32u && (chosen & (1u << local)) != 0u) {
      let place = number + countOneBits(chosen & ((1u << local) - 1u));
      store_keep(p.keep_at + place, load_order(p.order_at + p.first + base + local));
    }
    for (var w = word + 1u + local; w < p.words; w += 256u) {
      var suppressed = load_state(p.state_at + w);
      for (var k = 0u; k < 32u; k++) {
        if ((chosen & (1u << k)) != 0u) {
          suppressed |= load_bits(p.bits_at + (base + k) * p.words + w);
        }
      }
      store_state(p.state_at + w, suppressed);
    }
    workgroupBarrier();
    if (local == 0u) {
      number += countOneBits(chosen);
    }
  }
  if (local == 0u) {
    store_state(p.state_at + p.words, number);
  }
}
