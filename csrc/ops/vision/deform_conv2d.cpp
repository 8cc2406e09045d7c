// torchvision::deform_conv2d with its gradients: a kernel makes columns of the pixels beside each
// tap, products of matrices do the rest. Registered before torchvision is loaded: it works from
// then on.
#include <ATen/Context.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <tuple>

#include "backend/empty.h"
#include "backend/registration.h"
#include "kernels/deform_backward.h"
#include "kernels/deform_columns.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr int64_t kPartBytes = int64_t{64} << 20; // of the columns of a part

struct Deform {
  const char* op;
  Tensor input, weight, offset, mask; // contiguous
  int64_t stride[2], pad[2], dilation[2];
  int64_t groups, offset_groups;
  bool use_mask;
  int64_t out_height = 0, out_width = 0;

  int64_t images() const { return input.size(0); }
  int64_t area() const { return weight.size(2) * weight.size(3); }
  int64_t rows() const { return input.size(1) * area(); } // of an image's columns
  int64_t places() const { return out_height * out_width; }
};

void check_shapes(Deform& d) {
  TORCH_CHECK(d.input.dim() == 4 && d.offset.dim() == 4 && d.weight.dim() == 4 &&
                  (!d.use_mask || d.mask.dim() == 4),
              d.op, "(): input, offset, weight and mask must have 4 dimensions");
  const int64_t kh = d.weight.size(2);
  const int64_t kw = d.weight.size(3);
  TORCH_CHECK(kh > 0 && kw > 0, "weight_h: ", kh, " weight_w: ", kw);
  TORCH_CHECK(d.stride[0] > 0 && d.stride[1] > 0, "stride_h: ", d.stride[0],
              " stride_w: ", d.stride[1]);
  TORCH_CHECK(d.pad[0] >= 0 && d.pad[1] >= 0, "pad_h: ", d.pad[0], " pad_w: ", d.pad[1]);
  TORCH_CHECK(d.dilation[0] > 0 && d.dilation[1] > 0, "dilation_h: ", d.dilation[0],
              " dilation_w: ", d.dilation[1]);
  TORCH_CHECK(d.groups > 0 && d.offset_groups > 0, d.op, "(): groups must be positive");
  TORCH_CHECK(d.weight.size(1) * d.groups == d.input.size(1), d.op, "(): weight has ",
              d.weight.size(1), " channels in each of ", d.groups, " groups, input ",
              d.input.size(1));
  TORCH_CHECK(d.weight.size(0) % d.groups == 0, d.op, "(): ", d.weight.size(0),
              " output channels are not divisible by ", d.groups, " groups");
  TORCH_CHECK(d.offset.size(1) == d.offset_groups * 2 * kh * kw,
              "offset.shape[1] is not valid: got: ", d.offset.size(1),
              " expected: ", d.offset_groups * 2 * kh * kw);
  TORCH_CHECK(!d.use_mask || d.mask.size(1) == d.offset_groups * kh * kw,
              "mask.shape[1] is not valid: got: ", d.use_mask ? d.mask.size(1) : 0,
              " expected: ", d.offset_groups * kh * kw);
  TORCH_CHECK(d.input.size(1) % d.offset_groups == 0, d.op, "(): ", d.input.size(1),
              " channels are not divisible by ", d.offset_groups, " offset groups");
  TORCH_CHECK(d.offset.size(0) == d.input.size(0), "invalid batch size of offset");
  const auto reached = [&](int axis, int64_t taps) {
    const int64_t span =
        d.input.size(2 + axis) + 2 * d.pad[axis] - d.dilation[axis] * (taps - 1) - 1;
    return span < 0 ? 0 : span / d.stride[axis] + 1;
  };
  d.out_height = reached(0, kh);
  d.out_width = reached(1, kw);
  TORCH_CHECK(d.offset.size(2) == d.out_height && d.offset.size(3) == d.out_width,
              "offset output dims: (", d.offset.size(2), ", ", d.offset.size(3),
              ") - computed output dims: (", d.out_height, ", ", d.out_width, ")");
  TORCH_CHECK(d.mask.size(0) == d.input.size(0), "invalid batch size of mask");
  TORCH_CHECK(!d.use_mask || (d.mask.size(2) == d.out_height && d.mask.size(3) == d.out_width),
              "mask output dims: (", d.use_mask ? d.mask.size(2) : 0, ", ",
              d.use_mask ? d.mask.size(3) : 0, ") - computed output dims: (", d.out_height, ", ",
              d.out_width, ")");
  TORCH_CHECK(d.out_height > 0 && d.out_width > 0,
              "Calculated output size too small - out_h: ", d.out_height, " out_w: ", d.out_width);
  for (const Tensor& tensor : {d.input, d.offset, d.mask}) {
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.numel() < int64_t{1} << 31, d.op,
                                "(): more than 2^31 elements");
  }
}

Deform make(const char* op, const Tensor& input, const Tensor& weight, const Tensor& offset,
            const Tensor& mask, const Tensor& bias, std::array<int64_t, 6> steps, int64_t groups,
            int64_t offset_groups, bool use_mask) {
  check_same_device(
      op,
      {{input, "input"}, {weight, "weight"}, {offset, "offset"}, {mask, "mask"}, {bias, "bias"}});
  TORCH_CHECK_NOT_IMPLEMENTED(is_native_float(input), "\"deformable_im2col\" not implemented for '",
                              input.scalar_type(), "'");
  for (const Tensor& tensor : {weight, offset, mask, bias}) {
    check_dtype(tensor, input.scalar_type());
  }
  Deform d{op,
           input.contiguous(),
           weight.contiguous(),
           offset.contiguous(),
           mask.contiguous(),
           {steps[0], steps[1]},
           {steps[2], steps[3]},
           {steps[4], steps[5]},
           groups,
           offset_groups,
           use_mask};
  check_shapes(d);
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), op, "(): bias must have ",
              weight.size(0), " elements");
  return d;
}

// Images, or places of one image, whose columns are made at a time.
struct Part {
  int64_t image, images, place, places;
};

template <class Run>
void for_parts(const Deform& d, Run&& run) {
  const int64_t limit = std::max<int64_t>(1, kPartBytes / (d.rows() * d.input.itemsize()));
  const int64_t images = std::max<int64_t>(1, limit / d.places());
  const int64_t places = std::min(limit, d.places());
  for (int64_t image = 0; image < d.images(); image += images) {
    for (int64_t place = 0; place < d.places(); place += places) {
      run(Part{image, std::min(images, d.images() - image), place,
               std::min(places, d.places() - place)});
    }
  }
}

template <class Params>
Params params_of(const Deform& d, const Part& part, int64_t count) {
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  Params params;
  params.count = word(count);
  params.first_image = word(part.image);
  params.first_place = word(part.place);
  params.places = word(part.places);
  params.all_places = word(d.places());
  params.channels = word(d.input.size(1));
  params.groups = word(d.offset_groups);
  params.height = word(d.input.size(2));
  params.width = word(d.input.size(3));
  params.kernel_height = word(d.weight.size(2));
  params.kernel_width = word(d.weight.size(3));
  params.out_width = word(d.out_width);
  params.stride_height = word(d.stride[0]);
  params.stride_width = word(d.stride[1]);
  params.pad_height = word(d.pad[0]);
  params.pad_width = word(d.pad[1]);
  params.dilation_height = word(d.dilation[0]);
  params.dilation_width = word(d.dilation[1]);
  return params;
}

Tensor columns_of(const Deform& d, const Part& part) {
  const Tensor columns =
      empty_webgpu({part.images, d.rows(), part.places}, d.input.scalar_type(), d.input.device());
  namespace kernel = kernels::deform_columns;
  kernel::Launch launch(d.op);
  launch.columns(columns).in(d.input).offset(d.offset);
  if (d.use_mask) {
    launch.mask(d.mask);
  }
  launch.run(params_of<kernel::Params>(d, part, columns.numel()));
  return columns;
}

// Group `g` of tensors [images, groups * size, places].
Tensor group_of(const Tensor& tensor, int64_t g, int64_t groups) {
  const int64_t size = tensor.size(1) / groups;
  return tensor.narrow(1, g * size, size);
}

Tensor part_of(const Tensor& tensor, const Part& part) {
  return tensor.flatten(2).narrow(0, part.image, part.images).narrow(2, part.place, part.places);
}

// The weight of group `g` as a matrix, for each image of a part.
Tensor weight_of(const Deform& d, int64_t g, int64_t images) {
  const int64_t size = d.weight.size(0) / d.groups;
  return d.weight.narrow(0, g * size, size).flatten(1).unsqueeze(0).expand({images, -1, -1});
}

Tensor deform_conv2d(const Tensor& input, const Tensor& weight, const Tensor& offset,
                     const Tensor& mask, const Tensor& bias, int64_t stride_h, int64_t stride_w,
                     int64_t pad_h, int64_t pad_w, int64_t dilation_h, int64_t dilation_w,
                     int64_t groups, int64_t offset_groups, bool use_mask) {
  const Deform d = make("deform_conv2d", input, weight, offset, mask, bias,
                        {stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w}, groups,
                        offset_groups, use_mask);
  const Tensor out = empty_webgpu({d.images(), weight.size(0), d.out_height, d.out_width},
                                  input.scalar_type(), input.device());
  if (out.numel() == 0) {
    return out;
  }
  if (d.input.numel() == 0) {
    out.zero_();
  } else {
    for_parts(d, [&](const Part& part) {
      const Tensor columns = columns_of(d, part);
      for (int64_t g = 0; g < groups; ++g) {
        Tensor result = group_of(part_of(out, part), g, groups);
        at::bmm_out(result, weight_of(d, g, part.images), group_of(columns, g, groups));
      }
    });
  }
  return out.add_(bias.view({1, -1, 1, 1}));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
deform_conv2d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                       const Tensor& offset, const Tensor& mask, const Tensor& bias,
                       int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w,
                       int64_t dilation_h, int64_t dilation_w, int64_t groups,
                       int64_t offset_groups, bool use_mask) {
  const char* op = "_deform_conv2d_backward";
  const Deform d = make(op, input, weight, offset, mask, bias,
                        {stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w}, groups,
                        offset_groups, use_mask);
  check_same_device(op, {{input, "input"}, {grad, "grad"}});
  check_dtype(grad, input.scalar_type());
  const int64_t sizes[] = {d.images(), weight.size(0), d.out_height, d.out_width};
  TORCH_CHECK(grad.sizes() == at::IntArrayRef(sizes), op, "(): grad has sizes ", grad.sizes(),
              ", which are not those of the result");
  at::globalContext().alertNotDeterministic(op);
  const auto as_float = input.options().dtype(at::kFloat);
  // Sums over many taps, images and parts: kept in float32 and rounded once.
  const Tensor grad_input = at::zeros(input.sizes(), as_float);
  const Tensor grad_weight = at::zeros(weight.sizes(), as_float);
  Tensor grad_offset = at::empty_like(offset, at::MemoryFormat::Contiguous);
  Tensor grad_mask = use_mask ? at::empty_like(mask, at::MemoryFormat::Contiguous)
                              : at::zeros_like(mask, at::MemoryFormat::Contiguous);
  if (d.input.numel() == 0 || grad.numel() == 0) {
    grad_offset.zero_();
    grad_mask.zero_();
  } else {
    const Tensor out = grad.contiguous();
    const int64_t size = weight.size(0) / groups;
    for_parts(d, [&](const Part& part) {
      const Tensor part_out = part_of(out, part);
      const Tensor grad_columns =
          empty_webgpu({part.images, d.rows(), part.places}, input.scalar_type(), input.device());
      {
        const Tensor columns = columns_of(d, part);
        for (int64_t g = 0; g < groups; ++g) {
          const Tensor own = group_of(part_out, g, groups);
          Tensor result = group_of(grad_columns, g, groups);
          at::bmm_out(result, weight_of(d, g, part.images).transpose(1, 2), own);
          grad_weight.narrow(0, g * size, size)
              .flatten(1)
              .add_(at::bmm(own, group_of(columns, g, groups).transpose(1, 2))
                        .sum(0, false, at::kFloat));
        }
      }
      namespace kernel = kernels::deform_backward;
      kernel::Launch launch(op);
      launch.grad_in(grad_input).grad_offset(grad_offset).columns(grad_columns).in(d.input);
      launch.offset(d.offset);
      if (use_mask) {
        launch.mask(d.mask).grad_mask(grad_mask);
      }
      const int64_t taps = part.images * offset_groups * d.area() * part.places;
      launch.run(params_of<kernel::Params>(d, part, taps));
    });
  }
  return {grad_input.to(input.scalar_type()), grad_weight.to(weight.scalar_type()), grad_offset,
          grad_mask, grad.sum({0, 2, 3})};
}

TW_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("deform_conv2d", TORCH_FN(deform_conv2d));
  m.impl("_deform_conv2d_backward", TORCH_FN(deform_conv2d_backward));
}

} // namespace
} // namespace torch_webgpu
