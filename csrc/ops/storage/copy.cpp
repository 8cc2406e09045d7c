// Copies: within the device (with dtype conversion), and to and from the host.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_copy_from_native.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>

#include "backend/allocator.h"
#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/graph.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "launch/target_scope.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Whether the copy must conjugate, or negate: the lazy bit is set on exactly one side.
bool flips_conj(const Tensor& a, const Tensor& b) { return a.is_conj() != b.is_conj(); }
bool flips_neg(const Tensor& a, const Tensor& b) { return a.is_neg() != b.is_neg(); }

at::TensorIterator copy_iterator(const Tensor& dst, const Tensor& src) {
  return at::TensorIteratorConfig()
      .add_output(dst)
      .add_const_input(src)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .build();
}

// A view of the tensor's memory without lazy bits.
Tensor plain(const Tensor& tensor) {
  const Tensor memory = tensor.is_conj() ? tensor.conj() : tensor;
  return memory.is_neg() ? at::_neg_view(memory) : memory;
}

// `values` with the lazy bits of `like`.
Tensor with_bits_of(const Tensor& like, const Tensor& values) {
  const Tensor result = like.is_conj() ? values.conj() : values;
  return like.is_neg() ? at::_neg_view(result) : result;
}

void copy_on_device(const Tensor& dst, const Tensor& src);

// Copies real and imaginary parts separately, for complex types without a kernel (complex32,
// complex128).
bool copy_complex_parts(const Tensor& dst, const Tensor& src) {
  const auto has_parts = [](const Tensor& tensor) {
    return convertible_dtype(c10::toRealValueType(tensor.scalar_type())).has_value();
  };
  if (!(dst.is_complex() || src.is_complex()) || !has_parts(dst) || !has_parts(src)) {
    return false;
  }
  const Tensor from = src.is_complex() ? at::view_as_real(src).select(-1, 0) : src;
  const Tensor to = dst.is_complex() ? at::view_as_real(dst).select(-1, 0) : dst;
  copy_on_device(to, from.expand(to.sizes()));
  if (dst.scalar_type() == at::kBool) {
    const Tensor imaginary = at::view_as_real(src).select(-1, 1).to(at::kBool);
    Tensor(dst).logical_or_(imaginary);
  }
  if (dst.is_complex()) {
    const Tensor imaginary = at::view_as_real(dst).select(-1, 1);
    if (src.is_complex()) {
      copy_on_device(imaginary, at::view_as_real(src).select(-1, 1).expand(to.sizes()));
    } else {
      imaginary.zero_();
    }
  }
  return true;
}

// A type with kernels in which numbers are negated or conjugated exactly.
bool can_flip(at::ScalarType type, bool conj) {
  return native_dtype(type) && (at::isComplexType(type) || (at::isFloatingType(type) && !conj));
}

// A copy between tensors of which one is lazily conjugated or negated and the other is not. If one
// kernel cannot do it, the values are conjugated or negated in the dtype of the side that has
// kernels for it. False if neither has.
bool copy_flipped(at::TensorIterator& iter, const Tensor& dst, const Tensor& src) {
  const bool conj = flips_conj(dst, src);
  const bool neg = flips_neg(dst, src);
  const bool in_source = can_flip(src.scalar_type(), conj);
  const bool in_target = can_flip(dst.scalar_type(), conj);
  if (in_source && in_target && conj != neg) {
    const DType from = *native_dtype(src.scalar_type());
    const DType to = *native_dtype(dst.scalar_type());
    pointwise(iter, conj ? PointwiseOp::copy_conj : PointwiseOp::neg, {from, {to, from}});
    return true;
  }
  if (!in_source && !in_target) {
    return false;
  }
  Tensor value = plain(src);
  if (!in_source) {
    value = empty_webgpu(src.sizes(), dst.scalar_type(), dst.device());
    copy_on_device(value, plain(src));
  }
  value = conj ? value.conj_physical() : value;
  value = neg ? value.neg() : value;
  copy_on_device(plain(dst), value.expand(dst.sizes()));
  return true;
}

void copy_on_device(const Tensor& dst, const Tensor& src) {
  auto iter = copy_iterator(dst, src);
  if (flips_conj(dst, src) || flips_neg(dst, src)) {
    if (copy_flipped(iter, dst, src)) {
      return;
    }
  } else if (dst.scalar_type() == src.scalar_type()) {
    const DType bits = raw_dtype(src.scalar_type());
    pointwise(iter, PointwiseOp::copy, {bits, {bits, bits}});
    return;
  } else {
    const auto from = convertible_dtype(src.scalar_type());
    const auto to = convertible_dtype(dst.scalar_type());
    if (from && to) {
      pointwise(iter, PointwiseOp::copy, {*from, {*to, *from}});
      return;
    }
  }
  if (!flips_conj(dst, src) && !flips_neg(dst, src) && copy_complex_parts(plain(dst), plain(src))) {
    return;
  }
  note_fallback("aten::_copy_from", std::string("from ") + c10::toString(src.scalar_type()) +
                                        " to " + c10::toString(dst.scalar_type()));
  // Copies the memory of both without lazy bits, and resolves the bits on the host. Resolving them
  // on the device would call this function again.
  Tensor host = with_bits_of(src, plain(src).cpu()).resolve_conj().resolve_neg();
  host = with_bits_of(dst, host.to(dst.scalar_type())).resolve_conj().resolve_neg();
  plain(dst).copy_(host);
}

// Whether the elements fill [begin, begin + bytes) of the buffer without gaps.
bool is_dense(const Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

// Whether nbytes from the tensor's start can be written in whole words without touching a
// neighbour.
bool owns_its_words(const Tensor& tensor) {
  const uint64_t begin = byte_offset(tensor);
  const uint64_t end = begin + tensor.nbytes();
  return begin % 4 == 0 && (end % 4 == 0 || end == tensor.storage().nbytes());
}

void copy_from_host(const Tensor& dst, const Tensor& src, bool non_blocking) {
  if (!is_dense(dst) || !owns_its_words(dst)) {
    // Uploads to a dense tensor first. The copy kernel then handles strides and partial words.
    Tensor staged = empty_webgpu(dst.sizes(), dst.scalar_type(), dst.device());
    copy_from_host(staged, src, non_blocking);
    copy_on_device(dst, staged);
    return;
  }
  const auto options = src.options().dtype(dst.scalar_type()).requires_grad(false);
  check_not_capturing("aten::copy_ from the CPU",
                      "a replay would not read the host's memory again");
  Tensor host = src;
  if (src.scalar_type() != dst.scalar_type() || src.sizes() != dst.sizes() ||
      src.strides() != dst.strides() || src.is_conj() || src.is_neg() || dst.is_conj() ||
      dst.is_neg()) {
    host = at::empty_strided(dst.sizes(), dst.strides(), options);
    host.copy_(src);
    // Lazy bits of the target: its memory holds the conjugate (or negative) of its values.
    if (dst.is_conj()) {
      host.conj_physical_();
    }
    if (dst.is_neg()) {
      host.neg_();
    }
  }
  Stream& stream = context_of(dst).stream;
  const WrittenBuffer target(dst);
  // With non_blocking, pinned memory is not to be written until the device has read it, as on CUDA.
  if (non_blocking && host.is_same(src)) {
    const PinnedPosition pinned = find_pinned(src.const_data_ptr());
    if (pinned.block != nullptr &&
        stream.upload_from(*target, byte_offset(dst), *pinned.block, pinned.offset, dst.nbytes())) {
      return;
    }
  }
  stream.upload(*target, byte_offset(dst), host.const_data_ptr(), dst.nbytes());
}

void copy_to_host(const Tensor& dst, const Tensor& src) {
  check_not_capturing("aten::copy_ to the CPU", "it reads values on the host");
  if (!is_dense(src)) {
    Tensor packed = empty_webgpu(src.sizes(), src.scalar_type(), src.device());
    copy_on_device(packed, src);
    copy_to_host(dst, packed);
    return;
  }
  const bool direct = dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes() &&
                      dst.strides() == src.strides() && !flips_conj(dst, src) &&
                      !flips_neg(dst, src);
  Tensor host = direct ? dst
                       : at::empty_strided(src.sizes(), src.strides(),
                                           dst.options().dtype(src.scalar_type()));
  Stream& stream = context_of(src).stream;
  const PinnedPosition pinned = find_pinned(host.mutable_data_ptr());
  if (pinned.block == nullptr || !stream.read_into(buffer_of(src), byte_offset(src), *pinned.block,
                                                   pinned.offset, src.nbytes())) {
    stream.read(buffer_of(src), byte_offset(src), host.mutable_data_ptr(), src.nbytes());
  }
  if (!direct) {
    if (src.is_conj()) {
      host.conj_physical_();
    }
    if (src.is_neg()) {
      host.neg_();
    }
    dst.copy_(host);
  }
}

// Whether two tensors are the same view of the same memory. A copy then has nothing to do, and
// does not raise for elements that share memory.
bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(dst.defined(), "dst is undefined");
  if (is_same_view(self, dst)) {
    return dst;
  }
  if (dst.numel() == 0) { // nothing to copy, but shapes that do not fit are an error
    const c10::Device device = is_webgpu(dst) ? dst.device() : self.device();
    const Tensor none = empty_webgpu(self.sizes(), dst.scalar_type(), device);
    copy_iterator(is_webgpu(dst) ? dst : empty_webgpu(dst.sizes(), dst.scalar_type(), device),
                  none);
    return dst;
  }
  if (is_webgpu(self) && is_webgpu(dst) && self.device() == dst.device()) {
    if (self.is_complex() && !dst.is_complex() && dst.scalar_type() != at::kBool) {
      // at::copy_ calls this function before it warns. Copies to and from the host warn there.
      TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
    }
    if (same_buffer(self, dst) && buffer_of(dst).size > plan_target(dst).max_storage_binding_size) {
      // A buffer is bound once, and the two may lie too far apart in it for one binding.
      const Tensor staged = empty_webgpu(self.sizes(), self.scalar_type(), self.device());
      copy_on_device(staged, self);
      copy_on_device(dst, staged);
      return dst;
    }
    copy_on_device(dst, self);
  } else if (is_webgpu(dst)) {
    // From another GPU, also another webgpu device, through the host.
    const bool is_host = self.device().is_cpu();
    copy_from_host(dst, is_host ? self : self.cpu(), non_blocking && is_host);
  } else if (dst.device().is_cpu()) {
    copy_to_host(dst, self);
  } else {
    dst.copy_(self.cpu(), non_blocking); // a GPU of another kind: through the host
  }
  return dst;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_copy_from", copy_from); }

} // namespace
} // namespace torch_webgpu
