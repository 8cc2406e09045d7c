// What the kernels over regions of interest share: parameters, the image of a region, errors.
//
// @operand rois: in float // a row of five for each region: number of its image, x1, y1, x2, y2
// @const   sensitive: bool // each place of the result has a channel of its own (ps_roi_align, ps_roi_pool)
// @grid invocations p.count
// @errors

struct Params {
  count: u32, // cells of the pooled tensor
  images: u32,
  channels: u32, // of the images
  height: u32,
  width: u32,
  pooled_channels: u32,
  pooled_height: u32,
  pooled_width: u32,
  sampling: i32,   // samples of a bin along a side; 0 or less: as many as the bin has pixels
  at_least_one: u32, // 1: regions have at least the size of a pixel
  error: u32, // the code for an image that does not exist
  scale: f32,
  offset: f32,
}

// A cell of the pooled tensor.
struct Bin {
  region: u32,
  row: u32,
  column: u32,
  plane: u32, // the first element of its plane in the images
  exists: bool,
}

fn roi(region: u32, k: u32) -> f32 { return load_rois(p.rois_at + region * 5u + k); }

fn bin_of(i: u32) -> Bin {
  var bin = Bin();
  bin.column = i % p.pooled_width;
  bin.row = i / p.pooled_width % p.pooled_height;
  let c = i / p.pooled_width / p.pooled_height % p.pooled_channels;
  bin.region = i / p.pooled_width / p.pooled_height / p.pooled_channels;
  let number = roi(bin.region, 0u);
  // A fraction is cut off, as by a conversion to an integer.
  bin.exists = number > -1.0 && number < f32(p.images) && !is_nan_f(number);
  if (!bin.exists) {
    atomicMax(&errors[0], p.error);
    return bin;
  }
  var channel = c;
  @if(sensitive) {
    channel = (c * p.pooled_height + bin.row) * p.pooled_width + bin.column;
  }
  bin.plane = (u32(max(number, 0.0)) * p.channels + channel) * p.height * p.width;
  return bin;
}

// The channel that a cell of a sensitive result is taken from.
fn channel_of(i: u32) -> i32 {
  return i32(i % (p.pooled_channels * p.pooled_height * p.pooled_width));
}
