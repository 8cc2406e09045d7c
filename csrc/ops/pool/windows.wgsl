// The parameters and windows of the pooling kernels.

// Vectors hold depth, row, column. The `step` vectors hold the channel's stride behind these.
struct Params {
  count: u32, // cells that the kernel writes
  channels: u32,
  channels_last: u32,
  divisor: u32, // of averages; 0: the number of cells
  count_include_pad: u32,
  dims: u32,
  out_batch: u32,
  in_batch: u32,
  index_batch: u32,
  samples_batch: u32,
  in_size: vec4<u32>,
  out_size: vec4<u32>,
  kernel: vec4<u32>,
  stride: vec4<u32>,
  padding: vec4<u32>,
  dilation: vec4<u32>,
  out_step: vec4<u32>,
  in_step: vec4<u32>,
  index_step: vec4<u32>,
  samples_step: vec4<u32>,
}

fn out_layout() -> Layout { return layout_of(p.out_at, p.out_batch, p.out_step); }

fn in_layout() -> Layout { return layout_of(p.in_at, p.in_batch, p.in_step); }

// The input cells of an output cell along dimension d; `step` is their distance.
fn window(cell: Cell, d: u32, step: u32) -> Window {
  @if(fixed) {
    return fixed_window(cell.at[d], p.in_size[d], p.kernel[d], p.stride[d], p.padding[d], step);
  }
  @elif(adaptive) return adaptive_window(cell.at[d], p.in_size[d], p.out_size[d]);
  @else return fractional_window(cell.at[d], p.in_size[d], p.out_size[d], p.kernel[d], sample(cell, d));
}

// The output cells whose windows may contain an input cell, along dimension d: from .x to below .y.
fn cover(cell: Cell, d: u32, step: u32) -> vec2<u32> {
  @if(fixed) {
    return fixed_cover(cell.at[d], p.out_size[d], p.kernel[d], p.stride[d], p.padding[d], step);
  }
  @elif(adaptive) return adaptive_cover(cell.at[d], p.in_size[d], p.out_size[d]);
  @else return fractional_cover(cell.at[d], p.in_size[d], p.out_size[d], p.kernel[d]);
}
