// Moves elements between a tensor that is walked in full and one whose coordinates are a function of the walked
// ones: reflection and replication padding, and roll. Or adds the elements of the walked tensor to the other one: the
// gradients of padding.
//
// @operand out: out bits optional // of a move: is walked
// @operand in: in like out optional
// @operand sum: sum any optional  // of a gradient
// @operand terms: in like sum optional // is walked
// @const   map: {reflect, replicate, wrap} // how a coordinate beyond the mapped tensor comes back into it
// @require has_out == has_in
// @require has_sum == has_terms
// @require has_out != has_sum

struct Params {
  count: u32,
  rank: u32,
  shifts: array<vec4<i32>, 3>, // innermost dimension first
  dims: array<vec4<u32>, 12>,  // size of the walked tensor, its stride; stride of the mapped tensor, its size
}

fn mapped_coordinate(c: i32, size: i32) -> i32 {
  @if(reflect) {
    let m = abs(c);
    return select(m, 2 * size - 2 - m, m >= size);
  }
  @elif(replicate) return clamp(c, 0, size - 1);
  @else return select(c, c + size, c < 0);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  var walked = 0u;
  var mapped = 0u;
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let dim = p.dims[d];
    let c = rest % dim.x;
    rest /= dim.x;
    walked += c * dim.y;
    let m = mapped_coordinate(i32(c) - p.shifts[d / 4u][d % 4u], i32(dim.w));
    mapped += u32(m) * dim.z;
  }
  @if(has_out) store_out(p.out_at + walked, load_in(p.in_at + mapped));
  @else atomic_add_sum(p.sum_at + mapped, load_terms(p.terms_at + walked));
}
