// torchvision's operators under torch.autocast("webgpu"): computed in float32, as under CUDA's
// autocast. torchvision registers this for the devices that it knows only.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <tuple>

#include "backend/registration.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Operators are looked up at their first call: torchvision is loaded by then.
template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

Tensor wide(const Tensor& tensor) {
  return at::autocast::cached_cast(at::kFloat, tensor, c10::DeviceType::PrivateUse1);
}

using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;
constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;

Tensor nms(const Tensor& dets, const Tensor& scores, double threshold) {
  static const auto op = find<Tensor(const Tensor&, const Tensor&, double)>("torchvision::nms");
  const NoAutocast guard(kKey);
  return op.call(wide(dets), wide(scores), threshold);
}

Tensor narrow(const Tensor& out, at::ScalarType dtype) { return out.to(dtype); }

// The second tensor has numbers of channels or of pixels, which are integers.
std::tuple<Tensor, Tensor> narrow(const std::tuple<Tensor, Tensor>& out, at::ScalarType dtype) {
  return {std::get<0>(out).to(dtype), std::get<1>(out)};
}

template <class Operator, class... Numbers>
auto pool(const Operator& op, const Tensor& input, const Tensor& rois, Numbers... numbers) {
  const NoAutocast guard(kKey);
  return narrow(op.call(wide(input), wide(rois), numbers...), input.scalar_type());
}

Tensor roi_align(const Tensor& input, const Tensor& rois, double scale, int64_t height,
                 int64_t width, int64_t sampling, bool aligned) {
  static const auto op = find<decltype(roi_align)>("torchvision::roi_align");
  return pool(op, input, rois, scale, height, width, sampling, aligned);
}

std::tuple<Tensor, Tensor> ps_roi_align(const Tensor& input, const Tensor& rois, double scale,
                                        int64_t height, int64_t width, int64_t sampling) {
  static const auto op = find<decltype(ps_roi_align)>("torchvision::ps_roi_align");
  return pool(op, input, rois, scale, height, width, sampling);
}

std::tuple<Tensor, Tensor> roi_pool(const Tensor& input, const Tensor& rois, double scale,
                                    int64_t height, int64_t width) {
  static const auto op = find<decltype(roi_pool)>("torchvision::roi_pool");
  return pool(op, input, rois, scale, height, width);
}

std::tuple<Tensor, Tensor> ps_roi_pool(const Tensor& input, const Tensor& rois, double scale,
                                       int64_t height, int64_t width) {
  static const auto op = find<decltype(ps_roi_pool)>("torchvision::ps_roi_pool");
  return pool(op, input, rois, scale, height, width);
}

Tensor deform_conv2d(const Tensor& input, const Tensor& weight, const Tensor& offset,
                     const Tensor& mask, const Tensor& bias, int64_t stride_h, int64_t stride_w,
                     int64_t pad_h, int64_t pad_w, int64_t dilation_h, int64_t dilation_w,
                     int64_t groups, int64_t offset_groups, bool use_mask) {
  static const auto op = find<decltype(deform_conv2d)>("torchvision::deform_conv2d");
  const NoAutocast guard(kKey);
  return op
      .call(wide(input), wide(weight), wide(offset), wide(mask), wide(bias), stride_h, stride_w,
            pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask)
      .to(input.scalar_type());
}

TW_LIBRARY_IMPL(torchvision, AutocastPrivateUse1, m) {
  m.impl("nms", TORCH_FN(nms));
  m.impl("roi_align", TORCH_FN(roi_align));
  m.impl("ps_roi_align", TORCH_FN(ps_roi_align));
  m.impl("roi_pool", TORCH_FN(roi_pool));
  m.impl("ps_roi_pool", TORCH_FN(ps_roi_pool));
  m.impl("deform_conv2d", TORCH_FN(deform_conv2d));
}

} // namespace
} // namespace torch_webgpu
