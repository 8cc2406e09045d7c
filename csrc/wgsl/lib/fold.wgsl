// Images and the columns of their patches.

struct FoldParams {
  image: Layout,
  columns: Layout, // channels are rows of the matrix, step.z leads to the next column
  size: vec3<u32>,
  count: u32,
  grid: vec3<u32>, // places of the kernel
  channels: u32,
  kernel: vec3<u32>,
  stride: vec3<u32>,
  padding: vec3<u32>,
  dilation: vec3<u32>,
}
