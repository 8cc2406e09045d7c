// One triangle of every matrix of a batch, and zeros elsewhere. May work in place.
//
// @operand out: out bits
// @operand in: in like out
// @const   upper: bool // the upper triangle, else the lower one

struct Params {
  count: u32,
  rank: u32,
  diagonal: i32,
  dims: array<vec4<u32>, 12>, // innermost first: size, stride in `out`, stride in `in`
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let column = i32(i % p.dims[0].x);
  let row = i32(i / p.dims[0].x % p.dims[1].x);
  var out = p.out_at;
  var in = p.in_at;
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let c = rest % p.dims[d].x;
    rest /= p.dims[d].x;
    out += c * p.dims[d].y;
    in += c * p.dims[d].z;
  }
  let distance = column - row;
  @if(upper) let kept = distance >= p.diagonal;
  @else let kept = distance <= p.diagonal;
  if (kept) {
    store_out(out, load_in(in));
  } else {
    store_out(out, out_t());
  }
}
