// One op on lists of tensors in one dispatch. Each tensor has its own buffers ("roles" of an op:
// parameter, gradient, ...), and each workgroup works on one tensor; multi_tensor.cpp writes the
// parts that depend on how many there are.

struct Entry {
  head: vec4<u32>, // elements, first workgroup, scalar of this tensor (two words)
  offsets: vec4<u32>, // of roles 0 to 3, in vectors of 16 bytes
  more: vec4<u32>, // of role 4, in vectors; of the step, in words
}
struct Params {
  head: vec4<u32>, // tensors; offsets of the shared numbers, in words
  s: array<vec4<u32>, 4>, // scalars of the op
  tensors: array<Entry, 16>,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
// @end

// @hook BINDINGS
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<u32>>;
const kBytes = 4u; // of an element
const kRoles = 1u;
// @end

// @hook BODY
fn prepare(t: u32) {}
fn update(x: ptr<function, array<vec4<u32>, kRoles>>, t: u32) {
  (*x)[0] = bitcast<vec4<u32>>(-bitcast<vec4<f32>>((*x)[0]));
}
// @end

// The bits of the last vector that belong to the tensor.
fn tail_mask(left: u32) -> vec4<u32> {
  let bits = vec4<i32>(i32(left * kBytes * 8u)) - vec4<i32>(0, 32, 64, 96);
  let partial = (vec4<u32>(1u) << vec4<u32>(clamp(bits, vec4<i32>(0), vec4<i32>(31)))) - 1u;
  return select(partial, vec4<u32>(0xffffffffu), bits >= vec4<i32>(32));
}

fn merged(old: vec4<u32>, new_: vec4<u32>, left: u32) -> vec4<u32> {
  let mask = tail_mask(left);
  return (old & ~mask) | (new_ & mask);
}

// @hook APPLY
fn apply(t: u32, at: u32, left: u32) {
  let x = b0[p.tensors[0].offsets.x + at];
  var y = array<vec4<u32>, kRoles>(x);
  update(&y, t);
  b0[p.tensors[0].offsets.x + at] = merged(x, y[0], left);
}
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let group = id.y * groups.x + id.x;
  var t = 0u;
  while (t + 1u < p.head.x && group >= p.tensors[t + 1u].head.y) {
    t++;
  }
  let at = (group - p.tensors[t].head.y) * 256u + local;
  let lanes = 16u / kBytes;
  let count = p.tensors[t].head.x;
  if (at >= (count + lanes - 1u) / lanes) {
    return;
  }
  prepare(t);
  apply(t, at, min(count - at * lanes, lanes));
}
