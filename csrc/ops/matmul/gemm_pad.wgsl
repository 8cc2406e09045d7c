// Copies rows of 2-byte elements to rows of whole groups of eight. Behind a row's last element the last group is zero.
//
// @operand out: out {bits128}
// @operand a: in {bits16}
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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = (wid.y * workgroups.x + wid.x) * 256u + t;
  let line = id / p.groups;
  let batch = line / p.rows;
  if (batch >= p.batches) {
    return;
  }
  let first = (id - line * p.groups) * 8u;
  let at = p.a_at + batch * p.a_batch + (line - batch * p.rows) * p.a_row + first * p.a_element;
  var group = vec4<u32>();
  for (var j = 0u; j < 8u; j++) {
    if (first + j < p.count) {
      group[j / 2u] |= load_a(at + j * p.a_element) << (j % 2u * 16u);
    }
  }
  store_out(p.out_at + id, group);
}
