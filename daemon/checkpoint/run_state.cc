#include "daemon/checkpoint/run_state.h"

#include <algorithm>
#include <string>

#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"

namespace gaccd {
namespace {

std::uint64_t Bytes(std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * sizeof(float);
}

std::string Describe(const ParameterRecord& parameter) {
  return StrCat(parameter.name, " ", ToString(parameter.shape), " at ", parameter.offset);
}

template <typename T>
Status Differs(std::string_view what, const T& saved, const T& now) {
  return {ErrorKind::kConfig, StrCat("the checkpoint is of another run: it has ", what, " ", saved,
                                     ", this job has ", now)};
}

}  // namespace

std::vector<BufferSpec> RunBuffers(const FlatLayout& layout, std::int64_t optimizer_elements) {
  std::vector<BufferSpec> buffers = {{std::string(kParametersBuffer), Bytes(layout.size())}};
  if (optimizer_elements > 0) {
    buffers.push_back({std::string(kOptimizerBuffer), Bytes(optimizer_elements)});
  }
  return buffers;
}

BufferSpec AccumulatorsBuffer(const FlatLayout& layout) {
  return {std::string(kAccumulatorsBuffer), Bytes(layout.size()), true};
}

std::vector<ParameterRecord> ParameterRecords(const FlatLayout& layout) {
  std::vector<ParameterRecord> records;
  for (const FlatEntry& entry : layout.entries()) {
    records.push_back({entry.name, entry.shape, entry.offset});
  }
  return records;
}

Status CheckFits(const Manifest& manifest, const FlatLayout& layout,
                 std::int64_t optimizer_elements) {
  const std::vector<ParameterRecord> records = ParameterRecords(layout);
  const auto [ours, theirs] = std::ranges::mismatch(records, manifest.parameters);
  if (ours != records.end() || theirs != manifest.parameters.end()) {
    return Differs("the parameter",
                   theirs == manifest.parameters.end() ? "(none more)" : Describe(*theirs),
                   ours == records.end() ? "(none more)" : Describe(*ours));
  }
  std::vector<BufferSpec> expected = RunBuffers(layout, optimizer_elements);
  if (manifest.cursor.micro_step > 0) expected.push_back(AccumulatorsBuffer(layout));
  const auto text = [](std::span<const BufferSpec> buffers) {
    std::string all;
    for (const BufferSpec& buffer : buffers) {
      all += StrCat(all.empty() ? "" : ", ", buffer.name, " of ", buffer.bytes, " bytes");
    }
    return all;
  };
  if (expected == manifest.buffers) return Status::Ok();
  return Differs("the buffers", text(manifest.buffers), text(expected));
}

Status CheckSameSamples(const Manifest& manifest, const Job& job, const Plan& plan,
                        std::int64_t dataset_samples) {
  const RunCursor& cursor = manifest.cursor;
  if (cursor.seed != job.seed) return Differs("the seed", cursor.seed, job.seed);
  if (cursor.dataset_samples != dataset_samples) {
    return Differs("a data set of", cursor.dataset_samples, dataset_samples);
  }
  if (manifest.plan->effective_batch() != plan.effective_batch()) {
    return Differs("the effective batch", manifest.plan->effective_batch(), plan.effective_batch());
  }
  auto saved = ParseJobText(manifest.job_text, "job text of the checkpoint");
  if (!saved.ok()) return {ErrorKind::kData, saved.status().message()};
  if (saved->data.shuffle != job.data.shuffle) {
    return Differs("shuffle", saved->data.shuffle, job.data.shuffle);
  }
  if (saved->batch.last_cycle != job.batch.last_cycle) {
    return Differs("the last cycle", Name(saved->batch.last_cycle), Name(job.batch.last_cycle));
  }
  return Status::Ok();
}

std::span<const float> FloatsOf(const LoadedState& state, std::string_view buffer) {
  const auto& specs = state.manifest.buffers;
  const auto spec = std::ranges::find(specs, buffer, &BufferSpec::name);
  if (spec == specs.end()) return {};
  const std::vector<std::byte>& bytes =
      state.buffers[static_cast<std::size_t>(spec - specs.begin())];
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace gaccd
