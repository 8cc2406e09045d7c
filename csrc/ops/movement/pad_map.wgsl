// Moves elements between a tensor that is walked in full and one whose coordinates are a function
// of the walked ones (hook `map_coordinate`): reflection and replication padding, their gradients,
// and roll.

struct Dim {
  size: u32, // of the walked tensor
  walked_stride: u32,
  mapped_stride: u32,
  mapped_size: u32,
  shift: i32,
  unused0: u32,
  unused1: u32,
  unused2: u32,
}

struct Params {
  count: u32,
  rank: u32,
  walked_offset: u32,
  mapped_offset: u32,
  dims: array<Dim, 12>, // innermost first
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook map_coordinate
fn map_coordinate(c: i32, size: i32) -> i32 { return clamp(c, 0, size - 1); }
// @end

// @hook move_element
fn move_element(walked: u32, mapped: u32) { store_out(walked, load_in(mapped)); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  var walked = p.walked_offset;
  var mapped = p.mapped_offset;
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let dim = p.dims[d];
    let c = rest % dim.size;
    rest /= dim.size;
    walked += c * dim.walked_stride;
    let m = map_coordinate(i32(c) - dim.shift, i32(dim.mapped_size));
    mapped += u32(m) * dim.mapped_stride;
  }
  move_element(walked, mapped);
}
