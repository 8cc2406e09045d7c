#include "distributed/statistics.h"

namespace torch_webgpu {

CommunicationStatistics& communication_statistics() {
  static CommunicationStatistics statistics;
  return statistics;
}

} // namespace torch_webgpu
