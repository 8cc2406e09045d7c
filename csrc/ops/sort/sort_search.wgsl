// searchsorted: where a value belongs in its row of sorted boundaries, by bisection.

struct Params {
  count: u32,      // values
  values_row: u32, // values of one row of boundaries
  boundaries_row: u32,
  shared_row: u32, // all values search the same row
  right: u32,
  values_offset: u32,
  boundaries_offset: u32,
  sorter_offset: u32,
  out_offset: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
fn store_out(i: u32, v: vec2<u32>) { b0[i] = v; }
fn load_values(i: u32) -> f32 { return b1[i]; }
fn load_boundaries(i: u32) -> f32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook key
alias key_t = f32;
fn key_less(a: f32, b: f32) -> bool { return a < b; }
fn key_of(v: f32) -> f32 { return v; }
// @end

// @hook boundary
fn boundary(row: u32, position: u32) -> key_t {
  return key_of(load_boundaries(p.boundaries_offset + row + position));
}
// @end

// Whether the two compare as neither less nor greater nor equal.
// @hook unordered
fn unordered(a: key_t, b: key_t) -> bool { return false; }
// @end

// @hook emit
fn emit(i: u32, place: u32) { store_out(p.out_offset + i, vec2<u32>(place, 0u)); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row = select(i / p.values_row * p.boundaries_row, 0u, p.shared_row != 0u);
  let value = key_of(load_values(p.values_offset + i));
  var low = 0u;
  var high = p.boundaries_row;
  while (low < high) {
    let probe = low + (high - low) / 2u;
    let there = boundary(row, probe);
    if (unordered(there, value) ||
        select(key_less(there, value), !key_less(value, there), p.right != 0u)) {
      low = probe + 1u;
    } else {
      high = probe;
    }
  }
  emit(i, low);
}
