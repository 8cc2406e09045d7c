// Moves elements between two tensors where index tensors select the element of `in` or `out`:
// gather, scatter, index, index_put, take and their relatives differ only in strides, in whether an
// index applies to `in` or to `out`, and in how an element is combined with the one at its place
// (hook `place`).
//
// An invocation handles one coordinate of the first `rank` dimensions, and in turn all coordinates
// of the `serial_rank` dimensions behind: the order in which one element is updated is then fixed,
// and no atomics are needed.

struct Params {
  count: u32, // coordinates of the parallel dimensions
  rank: u32,
  serial_count: u32,
  serial_rank: u32,
  out_offset: u32,
  in_offset: u32,
  flags: u32, // bit 0: negative indices count from the end; above: the first index's dimension
  error: u32,
  value: vec4<u32>,                 // scalar source, its first words
  indices: array<vec4<u32>, 5>,     // offset, valid size, stride in `out`, stride in `in`
  dims: array<vec4<u32>, 24>,       // innermost first, two each: size, out, in, index 0; index 1...4
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<vec2<u32>>;
alias out_t = f32;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
fn load_index0(i: u32) -> vec2<u32> { return b2[i]; }
// @end

@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;
@group(0) @binding(31) var<uniform> p: Params;

struct Place {
  out: u32,
  in: u32,
  index0: u32,
  index: vec4<u32>,
}

// Reports an index out of range to the host. The first invocation to do so also reports the index.
fn complain(index: vec2<u32>, dim: u32, size: u32) {
  loop {
    let claim = atomicCompareExchangeWeak(&errors[0], 0u, p.error);
    if (claim.exchanged) {
      atomicStore(&errors[1], index.x);
      atomicStore(&errors[2], index.y);
      atomicStore(&errors[3], dim);
      atomicStore(&errors[4], size);
    }
    if (claim.exchanged || claim.old_value != 0u) {
      break;
    }
  }
}

// Moves `place` by the index of tensor k. False if the index is out of range.
fn steer(place: ptr<function, Place>, k: u32, index: vec2<u32>) -> bool {
  let goal = p.indices[k];
  var low = index.x;
  var high = index.y;
  if ((p.flags & 1u) == 1u && (high >> 31u) == 1u) {
    let sum = low + goal.y;
    high += select(0u, 1u, sum < low);
    low = sum;
  }
  if (high != 0u || low >= goal.y) {
    complain(index, (p.flags >> 1u) + k, goal.y);
    return false;
  }
  (*place).out += low * goal.z;
  (*place).in += low * goal.w;
  return true;
}

// @hook follow_indices
fn follow_indices(place: ptr<function, Place>) -> bool {
  return steer(place, 0u, load_index0((*place).index0));
}
// @end

// @hook place
fn place_element(out: u32, in: u32) { store_out(out, load_in(in)); }
// @end

fn advance(place: ptr<function, Place>, number: u32, first: u32, rank: u32) {
  var rest = number;
  for (var d = first; d < first + rank; d++) {
    let dim = p.dims[2u * d];
    let c = rest % dim.x;
    rest /= dim.x;
    (*place).out += c * dim.y;
    (*place).in += c * dim.z;
    (*place).index0 += c * dim.w;
    (*place).index += c * p.dims[2u * d + 1u];
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  var start = Place(p.out_offset, p.in_offset, p.indices[0].x,
                    vec4<u32>(p.indices[1].x, p.indices[2].x, p.indices[3].x, p.indices[4].x));
  advance(&start, i, 0u, p.rank);
  for (var j = 0u; j < p.serial_count; j++) {
    var place = start;
    advance(&place, j, p.rank, p.serial_rank);
    if (follow_indices(&place)) {
      place_element(place.out, place.in);
    }
  }
}
