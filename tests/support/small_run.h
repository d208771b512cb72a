// A small run to save: buffers whose content is a function of (step, name).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/comm/threads.h"
#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/writer.h"

namespace gaccd {

inline Plan MakeSmallPlan(std::int64_t ranks) {
  return *Plan::Make({.nodes = 1, .gpus_per_node = ranks, .micro_batch = 4, .target_batch = 64});
}

using Bytes = std::vector<std::byte>;

// Host memory that stays as it is during Save().
inline BufferSource HostSource(std::string name, std::span<const std::byte> bytes,
                               bool per_rank = false) {
  return {{std::move(name), bytes.size(), per_rank},
          [bytes](std::uint64_t offset, std::span<std::byte> out) {
            if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
            return Status::Ok();
          }};
}

// Bytes that differ everywhere: a hash of (step, salt, position).
inline Bytes Content(std::size_t bytes, std::int64_t step, std::uint64_t salt) {
  Bytes content(bytes);
  std::uint64_t state = static_cast<std::uint64_t>(step) * 0x9e3779b97f4a7c15u + salt;
  for (std::byte& byte : content) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return content;
}

// The same, as f32 values that are all finite.
inline Bytes FiniteContent(std::size_t bytes, std::int64_t step, std::uint64_t salt) {
  Bytes content = Content(bytes, step, salt);
  for (std::size_t i = 3; i < bytes; i += 4) content[i] &= std::byte{0xbf};  // an exponent bit
  return content;
}

struct SmallRun {
  // Every update takes 64 samples.
  static constexpr const char* kJob =
      "name: 'x' model { layer { name: 'fc' linear { in: 1 out: 1 } } loss { mean_squared_error {} "
      "} } data { train { synthetic { samples: 999 features: 1 } } } batch { last_cycle: CARRY } "
      "optimizer { lr: 1 sgd {} } epochs: 0 max_updates: 1000000";

  std::size_t parameter_bytes = 4 * 1000;  // not a multiple of 64: the last unit is short
  std::size_t optimizer_bytes = 8 * 1000;
  std::size_t nan_at = SIZE_MAX;  // this parameter is NaN
  std::string job = kJob;
  bool frozen_weight = false;  // a.weight
  std::int64_t best_step = 0;  // of evaluations; 0: there are none

  [[nodiscard]] Manifest Identity(std::int64_t ranks) const {
    return {.program = "test",
            .job_text = job,
            .plan = MakeSmallPlan(ranks),
            .parameters = {{"a.weight", {10, 90}, 0, {}, frozen_weight}, {"a.bias", {10}, 912}},
            .buffers = {{"parameters", parameter_bytes}, {"optimizer", optimizer_bytes}}};
  }
  [[nodiscard]] RunCursor CursorAt(std::int64_t step) const {
    RunCursor cursor{.step = step,
                     .samples = step * 64,
                     .optimizer_updates = step,
                     .seed = 7,
                     .dataset_samples = 999};
    const std::int64_t best = std::min(best_step, step);
    if (best > 0) cursor.best = {.evaluated = step, .step = best, .value = 0.25};
    return cursor;
  }
  [[nodiscard]] Bytes Parameters(std::int64_t step) const {
    Bytes parameters = FiniteContent(parameter_bytes, step, 1);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (nan_at != SIZE_MAX) std::memcpy(parameters.data() + 4 * nan_at, &nan, 4);
    return parameters;
  }
  [[nodiscard]] Bytes Optimizer(std::int64_t step) const {
    return FiniteContent(optimizer_bytes, step, 2);
  }
  Status SaveAt(CheckpointWriter& writer, std::int64_t step) const {
    const Bytes parameters = Parameters(step);
    const Bytes optimizer = Optimizer(step);
    const std::vector<BufferSource> sources = {HostSource("parameters", parameters),
                                               HostSource("optimizer", optimizer)};
    return writer.Save(CursorAt(step), sources);
  }
  [[nodiscard]] bool Matches(const LoadedState& state) const {
    const std::int64_t step = state.generation.step;
    return state.manifest.cursor == CursorAt(step) && state.buffers.size() == 2 &&
           state.buffers[0] == Parameters(step) && state.buffers[1] == Optimizer(step);
  }
};

inline OwnerName Me() { return MakeOwnerName("test-job", 0); }

// With a lease that is claimed now.
inline Result<std::unique_ptr<CheckpointWriter>> StartWriter(Communicator& comm,
                                                             const CheckpointOptions& options,
                                                             Manifest common, const OwnerName& me,
                                                             SaveListener listener) {
  GACCD_ASSIGN_OR_RETURN(CheckpointLease lease, CheckpointWriter::Claim(comm, options, me));
  return CheckpointWriter::Start(comm, options, std::move(common), std::move(lease),
                                 std::move(listener));
}

inline Status AcceptAll(const Manifest&, const Job&) { return Status::Ok(); }

// Saves the steps on so many ranks, one after the other.
inline Status SaveSteps(const SmallRun& run, int ranks, const CheckpointOptions& options,
                        const std::vector<std::int64_t>& steps) {
  return RunThreadRanks(ranks, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer,
                           StartWriter(comm, options, run.Identity(ranks), Me(), nullptr));
    for (const std::int64_t step : steps) {
      GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, step));
      GACCD_RETURN_IF_ERROR(writer->Finish());
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
