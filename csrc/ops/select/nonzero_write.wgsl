// The last step of nonzero, masked_select and masked_scatter: the number of nonzero elements before an element says
// where its coordinates are written (nonzero), where the element of `in` at its place is written (masked_select), or
// which element of `in` is written to its place (masked_scatter).
//
// @operand coordinates: out {i64} optional
// @operand out: out bits optional
// @operand in: in like out optional
// @operand mask: in any
// @operand before: in {bits32} // selected elements before each block of 2048
// @const   scatters: bool
// @require has_out == has_in
// @require has_out != has_coordinates
// @require has_out || !scatters
// @grid groups ceil_div(p.count, 2048)

import package::select::prefix::{prefix_sum};
import package::select::selected::{is_selected};

struct Params {
  count: u32, // elements of the mask
  limit: u32, // number of results that fit the output, or of elements that masked_scatter reads
  rank: u32,
  row_stride: u32, // of the coordinates
  column_stride: u32,
  sizes: array<vec4<u32>, 16>, // x: sizes of the mask, innermost first
}

// Handles selected element i. `number` counts the selected elements before it.
fn emit(i: u32, number: u32) {
  if (number >= p.limit) {
    return;
  }
  @if(has_coordinates) {
    var rest = i;
    for (var d = 0u; d < p.rank; d++) {
      let size = p.sizes[d].x;
      let place = number * p.row_stride + (p.rank - 1u - d) * p.column_stride;
      store_coordinates(p.coordinates_at + place, vec2<u32>(rest % size, 0u));
      rest /= size;
    }
  }
  @elif(scatters) store_out(p.out_at + i, load_in(p.in_at + number));
  @else store_out(p.out_at + number, load_in(p.in_at + i));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let block = group.y * groups.x + group.x;
  let first = block * 2048u + local * 8u;
  var selected = 0u; // bit k: element first + k
  for (var k = 0u; k < 8u; k++) {
    if (first + k < p.count && is_selected(first + k)) {
      selected |= 1u << k;
    }
  }
  let own = countOneBits(selected);
  let sum = prefix_sum(own, local);
  if (selected == 0u) {
    return;
  }
  var number = load_before(p.before_at + block) + sum - own;
  for (var k = 0u; k < 8u; k++) {
    if ((selected & (1u << k)) != 0u) {
      emit(first + k, number);
      number++;
    }
  }
}
