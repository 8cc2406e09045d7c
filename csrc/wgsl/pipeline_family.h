// The users of the pipeline cache.
#pragma once

#include <cstdint>

namespace torch_webgpu {

/// One name for each host file's kernel: pipelines of two families never share a key. The compiler
/// numbers them, so no two can be equal.
enum class PipelineFamily : uint32_t {
  kAmp,
  kBinomial,
  kCat,
  kCheckValues,
  kCol2im,
  kCtcGradient,
  kCtcWalk,
  kDropout,
  kGemm,
  kGenerate,
  kGridSample,
  kGridSampleBackward,
  kIm2col,
  kIndexMove,
  kLossMargin,
  kLossNll,
  kLossNllBackward,
  kMultiTensor,
  kMultinomial,
  kNormBatch,
  kNormBatchBackward,
  kPadMap,
  kPointwise,
  kPoolAverage,
  kPoolAverageBackward,
  kPoolMax,
  kPoolMaxBackward,
  kQuantizeObserve,
  kReciprocalDouble,
  kReduce,
  kScan,
  kSearchSorted,
  kSegmentReduce,
  kSegmentReduceBackward,
  kSelect,
  kSort,
  kTriangle,
  kUpsample,
  kUpsampleBackward,
  kWeightMm,
  // Behind them, the kernels of KernelInfo by their ids.
  kKernels,
};

constexpr PipelineFamily family_of(uint32_t kernel_id) {
  return static_cast<PipelineFamily>(static_cast<uint32_t>(PipelineFamily::kKernels) + kernel_id);
}

} // namespace torch_webgpu
