// Which boxes overlap: bit k of word w of a box says that it would suppress box 32 w + k, which comes later. Boxes come
// in the order of their scores. A workgroup takes 256 boxes and one word. Words before a box's own are not written.
//
// @operand bits: out {bits32}
// @operand boxes: in float
// @grid groups ceil_div(p.rows, 256) * p.words

struct Params {
  first: u32, // the first box of this part, a multiple of 32
  rows: u32,  // boxes of this part
  boxes: u32, // all
  words: u32, // of a box
  threshold: f32,
}

var<workgroup> others: array<vec4<f32>, 32>;

fn box_at(i: u32) -> vec4<f32> {
  let at = p.boxes_at + i * 4u;
  return vec4<f32>(load_boxes(at), load_boxes(at + 1u), load_boxes(at + 2u), load_boxes(at + 3u));
}

fn overlap(a: vec4<f32>, b: vec4<f32>) -> bool {
  let sides = max(min(a.zw, b.zw) - max(a.xy, b.xy), vec2<f32>(0.0));
  let both = sides.x * sides.y;
  let whole = (a.z - a.x) * (a.w - a.y) + (b.z - b.x) * (b.w - b.y) - both;
  let ratio = div_f(both, whole);
  return ratio > p.threshold && !is_nan_f(ratio);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let number = group.y * groups.x + group.x;
  let word = number % p.words;
  let row = number / p.words * 256u + local;
  if (local < 32u && word * 32u + local < p.boxes) {
    others[local] = box_at(word * 32u + local);
  }
  workgroupBarrier();
  let i = p.first + row;
  if (row >= p.rows || word < i / 32u) {
    return;
  }
  let own = box_at(i);
  var bits = 0u;
  for (var k = 0u; k < 32u; k++) {
    let j = word * 32u + k;
    if (j > i && j < p.boxes && overlap(own, others[k])) {
      bits |= 1u << k;
    }
  }
  store_bits(p.bits_at + row * p.words + word, bits);
}
