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
  kCholesky,
  kCol2im,
  kCtcGradient,
  kCtcWalk,
  kDistance,
  kDistanceBackward,
  kDropout,
  kFft,
  kGemm,
  kGenerate,
  kGridSample,
  kGridSampleBackward,
  kGru,
  kGruBackward,
  kIm2col,
  kIndexMove,
  kJacobi,
  kLossMargin,
  kLossNll,
  kLossNllBackward,
  kLstm,
  kLstmBackward,
  kLu,
  kMultiTensor,
  kMultinomial,
  kNorm,
  kNormBackward,
  kNormBatch,
  kNormBatchBackward,
  kPadMap,
  kPointwise,
  kPoolAverage,
  kPoolAverageBackward,
  kPoolMax,
  kPoolMaxBackward,
  kQr,
  kQuantizeObserve,
  kReciprocalDouble,
  kReduce,
  kReflectors,
  kRowSwap,
  kScan,
  kSearchSorted,
  kSegmentReduce,
  kSegmentReduceBackward,
  kSelect,
  kSoftmax,
  kSort,
  kTriangle,
  kTriangularSolve,
  kUnpackPivots,
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
