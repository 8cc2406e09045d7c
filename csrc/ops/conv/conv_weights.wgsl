// A copy of a convolution's weights for conv_rows.wgsl, with the channels in blocks of 16: [group][block][tap][row][channel].
// Channels up to whole blocks are zeros. A workgroup copies 16 rows of a block by way of workgroup memory, so that both sides
// are walked along neighbours.
//
// @operand out: out {bits32} // two elements each
// @operand in: in {bits16}
// @grid groups p.groups * p.blocks * ceil_div(p.rows, 16)

struct Params {
  groups: u32,
  rows: u32,
  channels: u32,
  blocks: u32,
  taps: u32, // nine at most
  group_stride: u32, // strides of `in`
  row_stride: u32,
  channel_stride: u32,
  tap_stride: u32,
}

const side = 16u; // rows, and channels of a block

const most_taps = 9u;

const pitch = side + 1u; // against bank conflicts

var<workgroup> tile: array<u32, most_taps * side * pitch>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let tiles = (p.rows + side - 1u) / side;
  let row0 = id % tiles * side;
  let block = id / tiles % p.blocks;
  let group = id / tiles / p.blocks;
  if (group >= p.groups) {
    return;
  }
  let row = row0 + t / side;
  let channel = block * side + t % side;
  let at = p.in_at + group * p.group_stride + row * p.row_stride + channel * p.channel_stride;
  for (var tap = 0u; tap < most_taps; tap++) {
    var bits = 0u;
    if (tap < p.taps && row < p.rows && channel < p.channels) {
      bits = load_in(at + tap * p.tap_stride);
    }
    tile[(tap * side + t / side) * pitch + t % side] = bits;
  }
  workgroupBarrier();
  // Words of two channels: eight of a row.
  for (var i = t; i < most_taps * side * 8u; i += 256u) {
    let tap = i / (side * 8u);
    let in_tile = i / 8u % side;
    if (tap < p.taps && row0 + in_tile < p.rows) {
      let place = (tap * side + in_tile) * pitch + i % 8u * 2u;
      let out = ((group * p.blocks + block) * p.taps + tap) * p.rows + row0 + in_tile;
      store_out(p.out_at + out * 8u + i % 8u, tile[place] | (tile[place + 1u] << 16u));
    }
  }
}
