// Copies rows of elements of 2 or 4 bytes to rows of whole groups of 16 bytes. Behind a row's last element the last group is
// zero.
//
// @operand out: out {bits128}
// @operand a: in {bits16, bits32}
// @grid invocations p.batches * p.rows * p.groups

struct Params {
  batches: u32,
  rows: u32,
  count: u32,    // of elements in a row,
  groups: u32,   // which are so many groups
  a_batch: u32,  // strides, in elements
  a_row: u32,
  a_element: u32,
}

@if(a_is_bits16) const unit = 8u; // elements of a group
@else const unit = 4u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = (wid.y * workgroups.x + wid.x) * 256u + t;
  let line = id / p.groups;
  let batch = line / p.rows;
  if (batch >= p.batches) {
    return;
  }
  let first = (id - line * p.groups) * unit;
  let at = p.a_at + batch * p.a_batch + (line - batch * p.rows) * p.a_row + first * p.a_element;
  var group = vec4<u32>();
  for (var j = 0u; j < unit; j++) {
    if (first + j < p.count) {
      let word = load_a(at + j * p.a_element);
      @if(a_is_bits16) group[j / 2u] |= word << (j % 2u * 16u);
      @else group[j] = word;
    }
  }
  store_out(p.out_at + id, group);
}
