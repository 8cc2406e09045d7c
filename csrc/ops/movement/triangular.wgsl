// One triangle of every matrix of a batch; zeros elsewhere. May work in place.

struct Params {
  count: u32,
  rank: u32,
  out_offset: u32,
  in_offset: u32,
  diagonal: i32,
  upper: u32,
  unused0: u32,
  unused1: u32,
  dims: array<vec4<u32>, 12>, // innermost first: size, stride in `out`, stride in `in`
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
alias out_t = f32;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let column = i32(i % p.dims[0].x);
  let row = i32(i / p.dims[0].x % p.dims[1].x);
  var out = p.out_offset;
  var in = p.in_offset;
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let c = rest % p.dims[d].x;
    rest /= p.dims[d].x;
    out += c * p.dims[d].y;
    in += c * p.dims[d].z;
  }
  let distance = column - row;
  let kept = select(distance <= p.diagonal, distance >= p.diagonal, p.upper != 0u);
  if (kept) {
    store_out(out, load_in(in));
  } else {
    store_out(out, out_t());
  }
}
