// The last step of nonzero, masked_select and masked_scatter: the number of nonzero elements before
// an element says where its result goes (hook `emit`).

struct Params {
  count: u32,
  mask_offset: u32,
  limit: u32, // results there is room for (or sources there are)
  out_offset: u32,
  in_offset: u32,
  rank: u32,
  row_stride: u32, // of nonzero's result
  column_stride: u32,
  sizes: array<vec4<u32>, 16>, // innermost first
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
fn store_out(i: u32, v: vec2<u32>) { b0[i] = v; }
fn load_mask(i: u32) -> f32 { return b1[i]; }
fn load_before(i: u32) -> u32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook is_selected
fn is_selected(i: u32) -> bool { return load_mask(i) != 0.0; }
// @end

// @hook emit
// The coordinates of element i.
fn emit(i: u32, number: u32) {
  if (number >= p.limit) {
    return;
  }
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let size = p.sizes[d].x;
    let place = number * p.row_stride + (p.rank - 1u - d) * p.column_stride;
    store_out(p.out_offset + place, vec2<u32>(rest % size, 0u));
    rest /= size;
  }
}
// @end

var<workgroup> sums: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let block = group.y * groups.x + group.x;
  let first = block * 2048u + local * 8u;
  var selected = 0u; // bit k: element first + k
  for (var k = 0u; k < 8u; k++) {
    if (first + k < p.count && is_selected(p.mask_offset + first + k)) {
      selected |= 1u << k;
    }
  }
  let own = countOneBits(selected);
  sums[local] = own;
  for (var step = 1u; step < 256u; step *= 2u) {
    workgroupBarrier();
    var other = 0u;
    if (local >= step) {
      other = sums[local - step];
    }
    workgroupBarrier();
    sums[local] += other;
  }
  if (selected == 0u) {
    return;
  }
  var number = load_before(block) + sums[local] - own;
  for (var k = 0u; k < 8u; k++) {
    if ((selected & (1u << k)) != 0u) {
      emit(first + k, number);
      number++;
    }
  }
}
