// A model's buffers in a checkpoint, and the checks before a checkpoint is used: is it compatible
// with this model, and does its cursor mean the same samples for this job?
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// All f32. The gradients of a partial update have the layout of the parameters.
inline constexpr std::string_view kOptimizerBuffer = "optimizer";
inline constexpr std::string_view kAccumulatorsBuffer = "accumulators";  // per rank

// The buffers of every save of a run; an optimiser without state has none.
[[nodiscard]] std::vector<BufferSpec> RunBuffers(const FlatLayout& layout,
                                                 std::int64_t optimizer_elements);
[[nodiscard]] BufferSpec AccumulatorsBuffer(const FlatLayout& layout);
[[nodiscard]] std::vector<ParameterRecord> ParameterRecords(const FlatLayout& layout);

// kConfig, with the first difference: the checkpoint has other parameters.
Status CheckParameters(const Manifest& manifest, const FlatLayout& layout);

// kConfig, with the first parameter that the optimiser would handle differently: frozen or not,
// another learning-rate factor, another weight decay by its group. The optimisers' own weight decay
// may change. REQUIRES: CheckParameters().
Status CheckSameGroups(const Manifest& manifest, const FlatLayout& layout,
                       const OptimizerSpec& saved, const OptimizerSpec& now);

// CheckParameters(), and checks that the buffers are those of this optimiser.
Status CheckFits(const Manifest& manifest, const FlatLayout& layout,
                 std::int64_t optimizer_elements);

// kConfig, with the differences: job fields that a run must keep (`resume = SAME` in
// proto/job.proto) have other values: the model, the optimiser and what its state depends on, the
// seed, the order of the samples.
Status CheckSameRun(const Job& saved, const Job& job);

// kConfig if update `step` would use other samples than in the saved run: another data set, names
// of classes or columns, or effective batch; or if the previous update used other samples than in
// this job: a run with last_cycle carry that had ended with a smaller update. Nodes, micro-batch,
// learning rate and otherwise the length of the run may change. REQUIRES: `saved` is
// CheckedJob(manifest); CheckSameRun().
Status CheckSameSamples(const Manifest& manifest, const Job& saved, const Job& job,
                        const Plan& plan, std::int64_t dataset_samples);

// kConfig, with the difference: the job has another model or loss, possibly with the same shapes.
Status CheckSameModel(Job saved, const Job& job);

// The same without loss and dropout, which do not affect the meaning of the weights.
Status CheckSameNetwork(Job saved, Job job);

// kConfig if the update inside which it was saved has other micro-steps in this job: different
// ranks, stages, speeds, precision, micro-batch, number of steps or samples, or grouping by length
// (`by_length`: that of this run); or one of them uses --bits=any-split, whose accumulators are not
// saved; or it was saved by a gaccd that did not save the divisor of the loss.
// REQUIRES: CheckSameSamples(), manifest.cursor.micro_step > 0.
Status CheckSamePartialUpdate(const Manifest& manifest, const Job& saved, const Job& job,
                              const Plan& plan, bool by_length);

// A loaded buffer as floats; empty if there is none with that name.
[[nodiscard]] std::span<const float> LoadedFloats(const LoadedState& state,
                                                  std::string_view buffer);

}  // namespace gaccd
