// A copy of a tensor with its channels innermost: [images][positions][channels], for kernels that load groups of channels.
// Channels up to a whole number of groups are zeros. 32 or eight channels a workgroup by way of workgroup memory, so that
// both sides are walked along neighbours.
//
// @operand out: out {bits32} // of narrower elements two each
// @operand in: in {bits16, bits32}
// @const   wide: bool // 64 positions a workgroup, else 16
// @const   few: bool // eight channels and 256 positions a workgroup
// @require wide || !few
// @grid groups p.images * p.channel_tiles * ceil_div(p.positions, 16 + 48 * wide + 192 * few)

struct Params {
  images: u32,
  positions: u32,
  channels: u32,
  padded: u32,        // channels of the copy
  channel_tiles: u32,
  group_images: u32,  // images lie in groups of so many
  group_stride: u32,  // strides of `in`
  image_stride: u32,
  position_stride: u32,
  channel_stride: u32,
}

@if(few) const side = 256u;
@elif(wide) const side = 64u;
@else const side = 16u;

@if(few) const tile_channels = 8u;
@else const tile_channels = 32u;

const pitch = tile_channels + 1u; // against bank conflicts

var<workgroup> tile: array<u32, side * pitch>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let tiles = (p.positions + side - 1u) / side;
  let position0 = id % tiles * side;
  let channel0 = id / tiles % p.channel_tiles * tile_channels;
  let image = id / tiles / p.channel_tiles;
  if (image >= p.images) {
    return;
  }
  let base = p.in_at + image / p.group_images * p.group_stride + image % p.group_images * p.image_stride;
  // All positions of few, such as taps, one channel after another.
  @if(wide) const positions = side;
  @else let positions = min(side, p.positions);
  for (var i = t; i < positions * tile_channels; i += 256u) {
    let in_tile = i % positions;
    let position = position0 + in_tile;
    let channel = channel0 + i / positions;
    var bits = 0u;
    if (position < p.positions && channel < p.channels) {
      bits = load_in(base + position * p.position_stride + channel * p.channel_stride);
    }
    tile[in_tile * pitch + i / positions] = bits;
  }
  workgroupBarrier();
  @if(in_is_bits16) const per_word = 2u;
  @else const per_word = 1u;
  for (var i = t; i < side * tile_channels / per_word; i += 256u) {
    let position = i / (tile_channels / per_word);
    let channel = i % (tile_channels / per_word) * per_word;
    if (position0 + position < p.positions && channel0 + channel < p.padded) {
      var bits = tile[position * pitch + channel];
      @if(in_is_bits16) bits |= tile[position * pitch + channel + 1u] << 16u;
      let at = (image * p.positions + position0 + position) * p.padded + channel0 + channel;
      store_out(p.out_at + at / per_word, bits);
    }
  }
}
