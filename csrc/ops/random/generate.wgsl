// Fills a dense tensor with values that follow from their position alone: ranges, random numbers.
// An invocation makes four consecutive elements and owns the words they lie in.

struct Params {
  count: u32, // elements of this dispatch
  first: u32, // blocks of four elements in front of it
  offset: u32, // words in front of it in the binding
  input_offset: u32, // elements in front of the inputs
  seed: vec2<u32>,
  stream: vec2<u32>, // position in the Philox stream
  s: array<vec4<u32>, 2>, // arguments
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
alias out_t = f32;
// @end

// @hook FORMAT
const kLanes = 1u; // elements in a word
const kWords = 1u; // words in an element
fn bits_of(v: f32) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(v), 0u);
}
fn rounded(v: f32) -> f32 {
  return v;
}
// @end

// @hook VALUES
fn values(block: u32, index: u32) -> array<f32, 4> {
  let at = f32(4u * block);
  return array<f32, 4>(at, at + 1.0, at + 2.0, at + 3.0);
}
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * 256u + local;
  let start = id * 4u;
  if (start >= p.count) {
    return;
  }
  let left = min(p.count - start, 4u);
  var v = values(p.first + id, start);
  for (var lane = 0u; lane < left; lane += kLanes) {
    if (kWords == 2u) {
      let bits = bits_of(v[lane]);
      let at = p.offset + (start + lane) * 2u;
      b0[at] = bits.x;
      b0[at + 1u] = bits.y;
    } else {
      var bits = 0u;
      var mask = 0u;
      for (var k = 0u; k < kLanes && lane + k < left; k++) {
        let shift = k * (32u / kLanes);
        bits |= bits_of(v[lane + k]).x << shift;
        mask |= (0xffffffffu >> (32u - 32u / kLanes)) << shift;
      }
      let at = p.offset + (start + lane) / kLanes;
      // Bytes behind the tensor belong to others.
      b0[at] = select((b0[at] & ~mask) | bits, bits, mask == 0xffffffffu);
    }
  }
}
