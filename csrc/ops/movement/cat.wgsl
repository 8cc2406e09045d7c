// Concatenation: one invocation per element of the output. As many inputs as there are storage
// bindings take part in one dispatch.

struct Input {
  end: u32,    // of its part of the concatenated dimension
  offset: u32, // of the element where that dimension starts, also for a part behind others
  unused0: u32,
  unused1: u32,
  strides: array<vec4<u32>, 2>,
}

struct Params {
  count: u32,
  rank: u32,
  out_offset: u32,
  cat_inner: u32, // elements of the dimensions inside of the concatenated one
  cat_size: u32,
  unused0: u32,
  unused1: u32,
  unused2: u32,
  dims: array<vec4<u32>, 8>, // innermost first: size, stride in `out`
  inputs: array<Input, 11>,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
alias out_t = f32;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in0(i: u32) -> f32 { return b1[i]; }
fn load_in1(i: u32) -> f32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook load_input
fn load_input(number: u32, i: u32) -> out_t {
  switch (number) {
    case 0u: { return load_in0(i); }
    default: { return load_in1(i); }
  }
}
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let along = (i / p.cat_inner) % p.cat_size;
  var number = 0u;
  while (along >= p.inputs[number].end) {
    number++;
  }
  var out = p.out_offset;
  var in = p.inputs[number].offset;
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let c = rest % p.dims[d].x;
    rest /= p.dims[d].x;
    out += c * p.dims[d].y;
    in += c * p.inputs[number].strides[d / 4u][d % 4u];
  }
  store_out(out, load_input(number, in));
}
