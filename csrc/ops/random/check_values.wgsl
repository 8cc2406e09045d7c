// Writes an error code if some element does not fulfil a condition.

struct Params {
  count: u32,
  x_offset: u32,
  error: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read> b0: array<f32>;
alias x_t = f32;
fn load_x(i: u32) -> f32 { return b0[i]; }
// @end

@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;

// @hook holds
fn holds(x: f32) -> bool { return x >= 0.0 && x <= 1.0 && !is_nan_f(x); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  for (var i = (group.y * groups.x + group.x) * 256u + local; i < p.count;
       i += groups.x * groups.y * 256u) {
    if (!holds(load_x(p.x_offset + i))) {
      atomicMax(&errors[0], p.error);
      return;
    }
  }
}
