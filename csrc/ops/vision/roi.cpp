// torchvision's pooling of regions of interest, with gradients: roi_align, roi_pool, ps_roi_align
// and ps_roi_pool. Registered before torchvision is loaded: they work from then on.
#include <ATen/Context.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "backend/empty.h"
#include "backend/registration.h"
#include "kernels/roi_align.h"
#include "kernels/roi_align_backward.h"
#include "kernels/roi_pool.h"
#include "kernels/roi_pool_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/halves.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// What all eight operators are told about their regions.
struct Pooling {
  const char* op;
  const char* kernel; // of torchvision, for errors
  bool sensitive;
  double scale;
  int64_t height, width; // of the pooled tensor
  int64_t sampling = 0;
  bool aligned = true;
};

void check(const Pooling& pooling, const Tensor& values, const char* name, const Tensor& rois,
           const char* same) {
  check_same_device(pooling.op, {{values, name}, {rois, "rois"}});
  TORCH_CHECK(values.dim() == 4, pooling.op, "(): ", name, " must have 4 dimensions, got ",
              values.dim());
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5,
              pooling.sensitive ? "Tensor rois should have shape as Tensor[K, 5]"
                                : "rois must have shape as Tensor[K, 5]");
  TORCH_CHECK(values.scalar_type() == rois.scalar_type(), same);
  TORCH_CHECK_NOT_IMPLEMENTED(is_native_float(values), '"', pooling.kernel,
                              "\" not implemented for '", values.scalar_type(), "'");
  TORCH_CHECK(pooling.height > 0 && pooling.width > 0, pooling.op,
              "(): the pooled size must be positive, got ", pooling.height, " x ", pooling.width);
}

// The parameters that all kernels share. `pooled` has the cells, `sizes` are those of the images.
template <class Params, class Launch>
Params params_of(const Pooling& pooling, const Tensor& pooled, at::IntArrayRef sizes,
                 Launch& launch) {
  for (const int64_t numel : {pooled.numel(), c10::multiply_integers(sizes)}) {
    TORCH_CHECK_NOT_IMPLEMENTED(numel < int64_t{1} << 31, pooling.op,
                                "(): more than 2^31 elements");
  }
  Params params;
  params.count = static_cast<uint32_t>(pooled.numel());
  params.images = static_cast<uint32_t>(sizes[0]);
  params.channels = static_cast<uint32_t>(sizes[1]);
  params.height = static_cast<uint32_t>(sizes[2]);
  params.width = static_cast<uint32_t>(sizes[3]);
  params.pooled_channels = static_cast<uint32_t>(pooled.size(1));
  params.pooled_height = static_cast<uint32_t>(pooling.height);
  params.pooled_width = static_cast<uint32_t>(pooling.width);
  params.sampling = static_cast<int32_t>(pooling.sampling);
  params.at_least_one = pooling.aligned ? 0 : 1;
  params.error =
      launch.error(std::string(pooling.op) +
                   "(): a row of rois begins with the number of an image that does not exist");
  params.scale = static_cast<float>(pooling.scale);
  params.offset = pooling.aligned ? 0.5f : 0.0f;
  return params;
}

Tensor pooled_like(const Pooling& pooling, const Tensor& input, const Tensor& rois) {
  int64_t channels = input.size(1);
  if (pooling.sensitive) {
    TORCH_CHECK(channels % (pooling.height * pooling.width) == 0,
                "input channels must be a multiple of pooling height * pooling width");
    channels /= pooling.height * pooling.width;
  }
  return empty_webgpu({rois.size(0), channels, pooling.height, pooling.width}, input.scalar_type(),
                      input.device());
}

// Whether there is nothing to pool: then the results are zero.
bool is_empty(const Tensor& pooled, const Tensor& input) {
  return pooled.numel() == 0 || input.numel() == 0;
}

std::tuple<Tensor, Tensor> align(const Pooling& pooling, const Tensor& input, const Tensor& rois) {
  check(pooling, input, "input", rois, "input should have the same type as rois");
  Tensor out = pooled_like(pooling, input, rois);
  Tensor mapping;
  if (pooling.sensitive) {
    mapping = empty_webgpu(out.sizes(), at::kInt, out.device());
  }
  if (is_empty(out, input)) {
    return {out.zero_(), pooling.sensitive ? mapping.zero_() : mapping};
  }
  namespace kernel = kernels::roi_align;
  const Tensor in = input.contiguous();
  const Tensor regions = rois.contiguous();
  kernel::Launch launch(pooling.op);
  launch.out(out).in(in).rois(regions).sensitive(pooling.sensitive);
  if (pooling.sensitive) {
    launch.mapping(mapping);
  }
  launch.run(params_of<kernel::Params>(pooling, out, in.sizes(), launch));
  return {out, mapping};
}

std::tuple<Tensor, Tensor> pool(const Pooling& pooling, const Tensor& input, const Tensor& rois) {
  check(pooling, input, "input", rois, "input and rois must have the same dtype");
  Tensor out = pooled_like(pooling, input, rois);
  Tensor place = empty_webgpu(out.sizes(), at::kInt, out.device());
  if (is_empty(out, input)) {
    return {out.zero_(), place.zero_()};
  }
  namespace kernel = kernels::roi_pool;
  const Tensor in = input.contiguous();
  const Tensor regions = rois.contiguous();
  kernel::Launch launch(pooling.op);
  launch.out(out).in(in).rois(regions).place(place).sensitive(pooling.sensitive);
  launch.run(params_of<kernel::Params>(pooling, out, in.sizes(), launch));
  return {out, place};
}

// The gradient of the images, summed in float32 and rounded once.
template <class Kernel>
Tensor backward(const Pooling& pooling, const Tensor& grad, const Tensor& rois, const char* same,
                at::IntArrayRef sizes, Kernel&& launch_kernel) {
  check(pooling, grad, "grad", rois, same);
  at::globalContext().alertNotDeterministic(pooling.op);
  const Tensor grad_in = at::zeros(sizes, grad.options().dtype(at::kFloat));
  if (!is_empty(grad, grad_in)) {
    // Kernels take the cells of the pooled tensor from its sizes.
    TORCH_CHECK(
        grad.size(0) == rois.size(0) && grad.size(2) == pooling.height &&
            grad.size(3) == pooling.width &&
            sizes[1] == grad.size(1) * (pooling.sensitive ? pooling.height * pooling.width : 1),
        pooling.op, "(): grad has sizes ", grad.sizes(), ", which are not those of the result");
    launch_kernel(grad_in, grad.contiguous(), rois.contiguous());
  }
  return grad_in.to(grad.scalar_type());
}

Tensor align_backward(const Pooling& pooling, const Tensor& grad, const Tensor& rois,
                      at::IntArrayRef sizes) {
  return backward(pooling, grad, rois, "grad should have the same type as rois", sizes,
                  [&](const Tensor& grad_in, const Tensor& out, const Tensor& regions) {
                    namespace kernel = kernels::roi_align_backward;
                    kernel::Launch launch(pooling.op);
                    launch.grad_in(grad_in).out(out).rois(regions).sensitive(pooling.sensitive);
                    launch.run(params_of<kernel::Params>(pooling, out, sizes, launch));
                  });
}

Tensor pool_backward(const Pooling& pooling, const Tensor& grad, const Tensor& rois,
                     const Tensor& place, at::IntArrayRef sizes) {
  return backward(pooling, grad, rois, "grad and rois must have the same dtype", sizes,
                  [&](const Tensor& grad_in, const Tensor& out, const Tensor& regions) {
                    namespace kernel = kernels::roi_pool_backward;
                    kernel::Launch launch(pooling.op);
                    launch.grad_in(grad_in).out(out).rois(regions).sensitive(pooling.sensitive);
                    Tensor places;
                    if (!pooling.sensitive) {
                      TORCH_CHECK(place.sizes() == grad.sizes(), pooling.op,
                                  "(): argmax must have the sizes of grad");
                      places = place.contiguous();
                      launch.place(places);
                    }
                    launch.run(params_of<kernel::Params>(pooling, out, sizes, launch));
                  });
}

Tensor roi_align(const Tensor& input, const Tensor& rois, double scale, int64_t height,
                 int64_t width, int64_t sampling, bool aligned) {
  return std::get<0>(align(
      {"roi_align", "roi_align_forward_kernel", false, scale, height, width, sampling, aligned},
      input, rois));
}

Tensor roi_align_backward(const Tensor& grad, const Tensor& rois, double scale, int64_t height,
                          int64_t width, int64_t images, int64_t channels, int64_t rows,
                          int64_t columns, int64_t sampling, bool aligned) {
  return align_backward({"_roi_align_backward", "roi_align_backward_kernel", false, scale, height,
                         width, sampling, aligned},
                        grad, rois, {images, channels, rows, columns});
}

std::tuple<Tensor, Tensor> ps_roi_align(const Tensor& input, const Tensor& rois, double scale,
                                        int64_t height, int64_t width, int64_t sampling) {
  return align(
      {"ps_roi_align", "ps_roi_align_forward_kernel", true, scale, height, width, sampling}, input,
      rois);
}

// The channel of a cell follows from its place, so that the mapping is not read.
Tensor ps_roi_align_backward(const Tensor& grad, const Tensor& rois, const Tensor& mapping,
                             double scale, int64_t height, int64_t width, int64_t sampling,
                             int64_t images, int64_t channels, int64_t rows, int64_t columns) {
  return align_backward({"_ps_roi_align_backward", "ps_roi_align_backward_kernel", true, scale,
                         height, width, sampling},
                        grad, rois, {images, channels, rows, columns});
}

std::tuple<Tensor, Tensor> roi_pool(const Tensor& input, const Tensor& rois, double scale,
                                    int64_t height, int64_t width) {
  return pool({"roi_pool", "roi_pool_forward_kernel", false, scale, height, width}, input, rois);
}

Tensor roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor& argmax, double scale,
                         int64_t height, int64_t width, int64_t images, int64_t channels,
                         int64_t rows, int64_t columns) {
  check_same_device("_roi_pool_backward", {{grad, "grad"}, {argmax, "argmax"}});
  return pool_backward(
      {"_roi_pool_backward", "roi_pool_backward_kernel", false, scale, height, width}, grad, rois,
      argmax, {images, channels, rows, columns});
}

std::tuple<Tensor, Tensor> ps_roi_pool(const Tensor& input, const Tensor& rois, double scale,
                                       int64_t height, int64_t width) {
  return pool({"ps_roi_pool", "ps_roi_pool_forward_kernel", true, scale, height, width}, input,
              rois);
}

Tensor ps_roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor& mapping,
                            double scale, int64_t height, int64_t width, int64_t images,
                            int64_t channels, int64_t rows, int64_t columns) {
  return pool_backward(
      {"_ps_roi_pool_backward", "ps_roi_pool_backward_kernel", true, scale, height, width}, grad,
      rois, mapping, {images, channels, rows, columns});
}

TW_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("roi_align", TORCH_FN(roi_align));
  m.impl("_roi_align_backward", TORCH_FN(roi_align_backward));
  m.impl("ps_roi_align", TORCH_FN(ps_roi_align));
  m.impl("_ps_roi_align_backward", TORCH_FN(ps_roi_align_backward));
  m.impl("roi_pool", TORCH_FN(roi_pool));
  m.impl("_roi_pool_backward", TORCH_FN(roi_pool_backward));
  m.impl("ps_roi_pool", TORCH_FN(ps_roi_pool));
  m.impl("_ps_roi_pool_backward", TORCH_FN(ps_roi_pool_backward));
}

} // namespace
} // namespace torch_webgpu
