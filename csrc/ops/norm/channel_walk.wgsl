// How the kernels that sum over each channel of a tensor walk it: an image's positions have one stride, and so have
// images and channels. A workgroup takes a part of the elements of its channels.
//
// @const pairs: bool // of neighbours at a word boundary; else elements one by one

struct Params {
  channels: u32,
  positions: u32, // of an image, in units
  units: u32,     // of a channel, each a pair or an element
  units_of_part: u32,
  parts: u32,
  image_stride: u32,    // of elements
  position_stride: u32, // of units
  channel_stride: u32,
}

fn place_of_unit(channel: u32, unit: u32) -> u32 {
  return channel * p.channel_stride + unit / p.positions * p.image_stride + unit % p.positions * p.position_stride;
}
