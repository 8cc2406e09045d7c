// What the kernels of deform_conv2d share: parameters, and where a tap of the kernel falls.
//
// @operand offset: in float
// @operand mask: in like offset optional
// @grid invocations p.count

struct Params {
  count: u32, // elements of the columns, or taps in each group, at the images and places of this part
  first_image: u32,
  first_place: u32,
  places: u32, // of this part
  all_places: u32,
  channels: u32,
  groups: u32, // of offsets
  height: u32,
  width: u32,
  kernel_height: u32,
  kernel_width: u32,
  out_width: u32,
  stride_height: u32,
  stride_width: u32,
  pad_height: u32,
  pad_width: u32,
  dilation_height: u32,
  dilation_width: u32,
}

// A tap of an offset group at a place.
struct Tap {
  image: u32,
  place: u32,
  group: u32,
  number: u32,
}

fn area() -> u32 { return p.kernel_height * p.kernel_width; }

fn offset_place(tap: Tap, axis: u32) -> u32 {
  return p.offset_at +
         (((tap.image * p.groups + tap.group) * area() + tap.number) * 2u + axis) * p.all_places + tap.place;
}

fn mask_place(tap: Tap) -> u32 {
  return ((tap.image * p.groups + tap.group) * area() + tap.number) * p.all_places + tap.place;
}

fn point_of(tap: Tap) -> vec2<f32> {
  let row = i32(tap.place / p.out_width * p.stride_height + tap.number / p.kernel_width * p.dilation_height) -
            i32(p.pad_height);
  let column = i32(tap.place % p.out_width * p.stride_width + tap.number % p.kernel_width * p.dilation_width) -
               i32(p.pad_width);
  return vec2<f32>(f32(row) + load_offset(offset_place(tap, 0u)),
                   f32(column) + load_offset(offset_place(tap, 1u)));
}

// A point beside four pixels, of which some may lie outside of the image.
struct Corners {
  low: vec2<i32>,
  weight: vec2<f32>, // of the pixels behind
  near: bool, // some corner lies in the image
}

fn corners_of(point: vec2<f32>) -> Corners {
  var corners = Corners();
  let size = vec2<f32>(f32(p.height), f32(p.width));
  corners.near = all(point >= vec2<f32>(-1.0)) && all(point < size) && !is_nan_f(point.x) &&
                 !is_nan_f(point.y);
  if (corners.near) {
    let low = floor(point);
    corners.low = vec2<i32>(low);
    corners.weight = point - low;
  }
  return corners;
}

// Whether the corner lies in the image, for dy and dx of 0 and 1.
fn corner_exists(corners: Corners, dy: i32, dx: i32) -> bool {
  let at = corners.low + vec2<i32>(dy, dx);
  return all(at >= vec2<i32>(0)) && at.x < i32(p.height) && at.y < i32(p.width);
}

fn corner_place(corners: Corners, dy: i32, dx: i32) -> u32 {
  return u32(corners.low.x + dy) * p.width + u32(corners.low.y + dx);
}
