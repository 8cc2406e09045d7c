// Fills a dense tensor with values that follow from their position alone: ranges, random numbers.
// An invocation makes four consecutive elements.
//
// @operand out: words any
// @operand x: in float optional // an input of as many elements
// @const   family: {random, range, sampled}
// @const   row: u32 in 0..31 // of the family; its values are the regions
// @const   whole: bool       // the elements are a multiple of four
// @region values: fn values(block: u32, index: u32) -> array<T, 4>, the elements 4 * block and on; x at p.x_at + index
// @region stored: fn stored(v: T) -> out_t

struct Params {
  count: u32, // elements of this dispatch
  first: u32, // blocks of four elements in front of it
  philox: vec4<u32>, // key, counter
  s: array<vec4<u32>, 2>, // arguments
}

fn rounded(v: f32) -> f32 {
  @if(out_is_f16) return round_f16_f(v);
  @elif(out_is_bf16) return round_bf16_f(v);
  @else return v;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * 256u + local;
  let start = id * 4u;
  if (start >= p.count) {
    return;
  }
  var v = values(p.first + id, start);
  let at = p.out_at + start;
  @if(!whole) {
    if (p.count - start < 4u) {
      for (var k = 0u; k < p.count - start; k++) {
        store_out(at + k, stored(v[k]));
      }
      return;
    }
  }
  store4_out(at, stored(v[0]), stored(v[1]), stored(v[2]), stored(v[3]));
}
