// What communication cost this process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace torch_webgpu {

/// Sums over all process groups. Times are nanoseconds; those of parallel steps add up.
struct CommunicationStatistics {
  std::atomic<uint64_t> collectives{0};   // and transfers from one process to another
  std::atomic<uint64_t> bytes_read{0};    // device to host
  std::atomic<uint64_t> bytes_written{0}; // host to device
  std::atomic<uint64_t> reading{0};       // until the values were in host memory
  std::atomic<uint64_t> communicating{0}; // in the collective of the CPU's backend
  std::atomic<uint64_t> writing{0};       // until the upload was in the device's stream
};

CommunicationStatistics& communication_statistics();

/// Adds the time from its construction to its end.
class Stopwatch {
public:
  explicit Stopwatch(std::atomic<uint64_t>& total) : total_(total) {}
  ~Stopwatch() {
    total_ += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now() - start_)
                                        .count());
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

private:
  std::atomic<uint64_t>& total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace torch_webgpu
