// What an engine is made from: the device, the sizes of its micro-batches, the optimiser.
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
  std::int64_t kept_bytes = 0;    // of them: micro-batches that are kept until an update ends
  // Measured on the host, where it was asked for: what the process holds before the planned memory
  // is used.
  std::int64_t process_bytes = 0;
};

// Which device computes, and what a GPU needs beyond its number.
struct EngineChoice {
  Device device = Device::kCpu;  // kCpu or kCuda: kAuto was resolved before
  int gpu = 0;                   // as the CUDA runtime of this process counts
  // Several ranks on one GPU (tests): a rank's kernels are over before its collective starts, as a
  // collective waits for ranks that wait for the GPU. Messages of a pipeline are enqueued all the
  // same, and take turns with the kernels.
  bool gpu_sharing = false;
  // Reductions overlap the backward pass bucket by bucket also where they would not: with one
  // rank, and where ranks share a GPU. So one GPU can run what several do. REQUIRES: a communicator
  // of GPUs.
  bool always_overlap = false;
  bool time_algorithms = false;  // CudaNumerics::time_algorithms
  std::string choices_folder;    // where timed algorithms are kept from run to run; empty: nowhere
  // For tests: asked before each micro-step; true: there is no memory for one of so many samples.
  std::function<bool(std::int64_t samples)> refuses_memory = nullptr;
  const CublasLtApi* cublaslt = nullptr;  // null: the library, by LoadCublasLt()
  DnnOpener dnn = nullptr;  // attention and convolutions in 16 bits; null: by gaccd's own kernels
  // Multiprocessors that a reduction on a GPU takes, which concurrent products leave free; 0: they
  // need not know.
  int reduction_multiprocessors = 0;
  // Elements of one message of the reduction on a GPU: 64 MiB. Smaller gradients are joined.
  std::size_t bucket_elements = std::size_t{16} << 20;
};

struct EngineOptions {
  ReplicaOptions replica;
  OptimizerSpec optimizer;
  Sharding shard = Sharding::kNone;
  Numerics numerics;
  EngineChoice choice;
  std::size_t control_word_count = 0;  // the same on all ranks
  // An update whose loss or gradient is not finite is reported as such and changes nothing, and
  // training may continue; else it is an error.
  bool tolerate_nonfinite = false;
  bool measure_process = false;  // fill EngineMemory::process_bytes, which takes a millisecond
};

// A flat buffer of f32 that makes up the state of a run.
enum class EngineBuffer : std::uint8_t { kParameters, kOptimizer, kGradients };

}  // namespace gaccd
