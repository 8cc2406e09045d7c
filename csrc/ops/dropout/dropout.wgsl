// Dropout in one pass: draws, scales what is kept, and writes the mask for the backward pass. The
// outputs are new and dense; an invocation makes four elements and owns the words they lie in.

struct Params {
  count: u32,
  input_offset: u32,
  keep: f32, // probability
  scale: f32,
  seed: vec2<u32>,
  stream: vec2<u32>,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
fn load_x(i: u32) -> f32 {
  return bitcast<f32>(b2[i]);
}
// @end

// @hook FORMAT
const kLanes = 1u; // elements in a word
fn bits_of(v: f32) -> u32 {
  return bitcast<u32>(v);
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
  var random = philox_at(p.seed, id, p.stream);
  var mask = 0u;
  for (var lane = 0u; lane < left; lane += kLanes) {
    var word = 0u;
    for (var k = 0u; k < kLanes && lane + k < left; k++) {
      let kept = uniform_f(random[lane + k]) < p.keep;
      // A select, not a product: what is dropped is 0 also where the input is not finite.
      let value = select(0.0, load_x(p.input_offset + start + lane + k) * p.scale, kept);
      word |= bits_of(value) << (k * (32u / kLanes));
      mask |= select(0u, 1u, kept) << (8u * (lane + k));
    }
    b0[(start + lane) / kLanes] = word;
  }
  b1[id] = mask;
}
