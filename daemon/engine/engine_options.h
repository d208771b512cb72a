// Options of an engine: device, micro-batch sizes, optimiser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "daemon/config/job.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/replica/replica.h"

namespace gaccd {

struct CublasLtApi;

struct EngineMemory {
  std::int64_t host_bytes = 0;    // planned
  std::int64_t device_bytes = 0;  // planned; 0 on the CPU
  std::int64_t kept_bytes = 0;    // part of these: micro-batches that are kept until an update ends
  // Measured on the host if requested: memory that the process holds before the planned memory is
  // used.
  std::int64_t process_bytes = 0;
};

// Which device computes, and the GPU settings.
struct EngineChoice {
  Device device = Device::kCpu;  // kCpu or kCuda: kAuto is resolved before
  int gpu = 0;                   // index as counted by the CUDA runtime of this process
  // Several ranks share one GPU (tests): a collective starts only after the rank's kernels have
  // ended, because it waits for ranks that wait for the GPU. Pipeline messages are still enqueued,
  // and alternate with the kernels.
  bool gpu_sharing = false;
  // Overlaps reductions with the backward pass bucket by bucket also with one rank and where ranks
  // share a GPU, so that one GPU can run this code. REQUIRES: a communicator of GPUs.
  bool always_overlap = false;
  bool time_algorithms = false;  // see CudaNumerics::time_algorithms
  // folder in which timed algorithms are kept between runs; empty: not kept
  std::string choices_folder;
  // For tests: called before each micro-step, or once before the first update if the model has sums
  // over the update; true simulates a failed allocation for this many samples.
  std::function<bool(std::int64_t samples)> refuses_memory = nullptr;
  const CublasLtApi* cublaslt = nullptr;  // null: LoadCublasLt()
  DnnFactory dnn = nullptr;  // attention and convolutions in 16 bits; null: gaccd's own kernels
  // Multiprocessors used by a reduction on a GPU, which concurrent matrix products leave free; 0:
  // none are left free.
  int reduction_multiprocessors = 0;
  // Elements of one reduction message on a GPU (64 MiB). Smaller gradients are joined.
  std::size_t bucket_elements = std::size_t{16} << 20;
};

struct EngineOptions {
  ReplicaOptions replica;
  OptimizerSpec optimizer;
  Sharding shard = Sharding::kNone;
  Numerics numerics;
  EngineChoice choice;
  std::size_t control_word_count = 0;  // the same on all ranks
  // true: an update whose loss or gradient is not finite is reported and changes nothing, and
  // training may continue. false: it is an error.
  bool tolerate_nonfinite = false;
  bool measure_process = false;  // fill EngineMemory::process_bytes, which takes a millisecond
};

// A flat f32 buffer of the training state.
enum class EngineBuffer : std::uint8_t { kParameters, kOptimizer, kGradients };

}  // namespace gaccd
