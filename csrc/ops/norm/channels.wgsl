// Workgroups of batch normalization: `channel_lanes` neighbouring channels each, with `lanes` invocations for every
// one of them, which combine what they have.
//
// @const channel_lanes: u32 in {1, 8, 32, 256}

const lanes = 256u / channel_lanes;

var<workgroup> lane_moments: array<Moments_f, 256>;
var<workgroup> lane_sums: array<vec2<f32>, 256>;

// What all lanes of a channel have together, in lane 0. Barriers: all invocations of the workgroup call it.
fn all_moments(own: Moments_f, lid: u32) -> Moments_f {
  var total = own;
  lane_moments[lid] = own;
  for (var step = lanes / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (lid < step * channel_lanes) {
      total = merge_moments_f(total, lane_moments[lid + step * channel_lanes]);
      lane_moments[lid] = total;
    }
  }
  return total;
}

fn all_sums(own: vec2<f32>, lid: u32) -> vec2<f32> {
  var total = own;
  lane_sums[lid] = own;
  for (var step = lanes / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (lid < step * channel_lanes) {
      total += lane_sums[lid + step * channel_lanes];
      lane_sums[lid] = total;
    }
  }
  return total;
}
