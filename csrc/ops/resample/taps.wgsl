// The parameters of upsampling and its gradient, and the taps of the chosen method.

// Vectors hold depth, row, column. The `step` vectors hold the channel's stride behind these.
struct Params {
  count: u32,
  channels: u32,
  channels_last: u32,
  align_corners: u32,
  radius: f32, // of the filter at scale 1
  out_batch: u32,
  in_batch: u32,
  in_size: vec4<u32>,
  out_size: vec4<u32>,
  scale: vec4<f32>, // input cells per output cell
  out_step: vec4<u32>,
  in_step: vec4<u32>,
}

fn out_layout() -> Layout { return layout_of(p.out_at, p.out_batch, p.out_step); }

fn in_layout() -> Layout { return layout_of(p.in_at, p.in_batch, p.in_step); }

// The taps of output cell o along dimension d: the input cells that it is computed from.
fn taps_of(o: u32, d: u32) -> Taps {
  let align = p.align_corners != 0u;
  @if(nearest) return nearest_taps(o, p.in_size[d], p.scale[d], align);
  @elif(nearest_exact) return nearest_exact_taps(o, p.in_size[d], p.scale[d], align);
  @elif(linear) return linear_taps(o, p.in_size[d], p.scale[d], align);
  @elif(cubic) return cubic_taps(o, p.in_size[d], p.scale[d], align);
  @elif(linear_aa) return linear_aa_taps(o, p.in_size[d], p.scale[d], align);
  @else return cubic_aa_taps(o, p.in_size[d], p.scale[d], align);
}

fn weight_of(taps: Taps, k: i32) -> f32 {
  @if(nearest) return nearest_weight(taps, k);
  @elif(nearest_exact) return nearest_exact_weight(taps, k);
  @elif(linear) return linear_weight(taps, k);
  @elif(cubic) return cubic_weight(taps, k);
  @elif(linear_aa) return linear_aa_weight(taps, k);
  @else return cubic_aa_weight(taps, k);
}
