// A model's buffers as a checkpoint names them, and the questions before a checkpoint is taken:
// does it fit this model, does its cursor mean the same samples for this job?
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

// All f32. The gradients of a window have the layout of the parameters.
inline constexpr std::string_view kOptimizerBuffer = "optimizer";
inline constexpr std::string_view kAccumulatorsBuffer = "accumulators";  // per rank

// What every save of a run has; an optimiser without state has no buffer.
[[nodiscard]] std::vector<BufferSpec> RunBuffers(const FlatLayout& layout,
                                                 std::int64_t optimizer_elements);
[[nodiscard]] BufferSpec AccumulatorsBuffer(const FlatLayout& layout);
[[nodiscard]] std::vector<ParameterRecord> ParameterRecords(const FlatLayout& layout);

// kConfig, naming the first difference: the checkpoint has other parameters.
Status CheckParameters(const Manifest& manifest, const FlatLayout& layout);

// kConfig, naming the first parameter that the optimiser would treat otherwise: frozen or not,
// another factor of the learning rate, another weight decay by its group. The optimisers' own
// weight decay may change. REQUIRES: CheckParameters().
Status CheckSameGroups(const Manifest& manifest, const FlatLayout& layout,
                       const OptimizerSpec& saved, const OptimizerSpec& now);

// CheckParameters(), and its buffers are those that this optimiser keeps.
Status CheckFits(const Manifest& manifest, const FlatLayout& layout,
                 std::int64_t optimizer_elements);

// kConfig, naming the differences: fields of the job that a run keeps (`resume = SAME` in
// proto/job.proto) have other values: the model, the optimiser and what gives its state a meaning,
// the seed, the order of the samples.
Status CheckSameRun(const Job& saved, const Job& job);

// kConfig when update `step` would take other samples than in the run that was saved: another data
// set, names of classes or columns, or effective batch; or when the update before it took others
// than it does in this job: a run with last_cycle carry that had ended with a smaller update.
// Nodes, micro-batch, learning rate and, this aside, the length of the run may change. REQUIRES:
// `saved` is CheckedJob(manifest); CheckSameRun().
Status CheckSameSamples(const Manifest& manifest, const Job& saved, const Job& job,
                        const Plan& plan, std::int64_t dataset_samples);

// kConfig, naming the difference: the job has another model or loss, which may have the same
// shapes.
Status CheckSameModel(Job saved, const Job& job);

// The same but for the loss and for dropout, which do not say what the weights mean.
Status CheckSameNetwork(Job saved, Job job);

// kConfig when the update inside which it was saved has other micro-steps in this job: on other
// ranks, in another precision, with another micro-batch, number of steps or of samples, grouped by
// length (`by_length`: this run's are) or not; or it was saved by a gaccd that did not save the
// divisor of the loss. REQUIRES: CheckSameSamples(), manifest.cursor.micro_step > 0.
Status CheckSameWindow(const Manifest& manifest, const Job& saved, const Job& job, const Plan& plan,
                       bool by_length);

// A loaded buffer as numbers; empty when there is none of that name.
[[nodiscard]] std::span<const float> FloatsOf(const LoadedState& state, std::string_view buffer);

}  // namespace gaccd
