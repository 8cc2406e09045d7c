#include "ops/reduce/reduce_table.h"

#include "runtime/error.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

Kind result_kind(ReduceResult result, Kind kind) {
  return result == ReduceResult::kIndex  ? Kind::kLong
         : result == ReduceResult::kReal ? Kind::kFloat
                                         : kind;
}

} // namespace

kernels::reduce::Regions reduce_regions(ReduceOp op, Kind kind, std::span<const DType> results) {
  const ReduceRow& of = row(op);
  if (!of.has(kind)) {
    raise(ErrorKind::kNotImplemented,
          std::string(of.name) + "(): not implemented for " + std::string(kind_wgsl(kind)));
  }
  const ReduceTexts& texts = of.at(kind);
  const auto converted = [&](size_t k, std::string_view text) {
    return k < results.size()
               ? convert(result_kind(of.results[k], kind), info(results[k]).kind, std::string(text))
               : std::string();
  };
  return {.accumulator = std::string(texts.accumulator),
          .identity = std::string(texts.identity),
          .combine = std::string(texts.combine),
          .lift = std::string(texts.lift),
          .finish = converted(0, texts.finish),
          .second = converted(1, texts.second)};
}

} // namespace torch_webgpu
