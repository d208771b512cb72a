#include "daemon/checkpoint/train_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/class_names.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/update_schedule.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/speeds.h"
#include "daemon/tensor/group_rules.h"

namespace gaccd {
namespace {

std::uint64_t Bytes(std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * sizeof(float);
}

std::string Describe(const ParameterRecord& parameter) {
  return StrCat(parameter.name, " ", ToString(parameter.shape), " at ", parameter.offset);
}

constexpr std::string_view kTakeWeights = "gaccd ckpt export, then --init-weights in a new run";

template <typename T>
Status Differs(std::string_view what, const T& saved, const T& now) {
  return {ErrorKind::kConfig, StrCat("the checkpoint belongs to another run: it has ", what, " ",
                                     saved, ", this job has ", now)};
}

// For a run that continues, but not inside the update.
template <typename T>
Status PartialUpdateDiffers(std::string_view what, const T& saved, const T& now) {
  return {ErrorKind::kConfig,
          StrCat("the checkpoint has ", what, " ", saved, ", this job has ", now)};
}

std::string_view OnOff(bool on) { return on ? "on" : "off"; }

std::string ParameterText(const ParameterRecord& parameter) {
  return parameter.frozen ? "frozen" : GroupText(parameter.group);
}

// What treats the parameter as `before`, as the last group of the job.
std::string GroupToWrite(const ParameterRecord& before, const ParameterRecord& after,
                         const OptimizerSpec& saved) {
  std::string text = StrCat("group { match: \"", before.name, "\"");
  if (before.frozen) return text + " freeze: true }";
  text += StrCat(" weight_decay: ", before.group.weight_decay.value_or(OwnWeightDecay(saved)));
  if (before.group.lr_factor != after.group.lr_factor) {
    text += StrCat(" lr_factor: ", before.group.lr_factor);
  }
  if (after.frozen) text += " freeze: false";
  return text + " }";
}

void RemoveDropout(ModelSpec* model) {
  const auto is_dropout = [](const LayerSpec& layer) {
    return std::holds_alternative<DropoutSpec>(layer.kind);
  };
  std::erase_if(model->layer, is_dropout);
  if (auto* gpt = std::get_if<GptSpec>(&model->architecture)) gpt->dropout = 0;
  if (auto* bert = std::get_if<BertSpec>(&model->architecture)) bert->dropout = 0;
  if (auto* vit = std::get_if<VitSpec>(&model->architecture)) vit->dropout = 0;
  if (auto* dual = std::get_if<DualEncoderSpec>(&model->architecture)) {
    std::erase_if(dual->a.layer, is_dropout);
    std::erase_if(dual->b.layer, is_dropout);
  }
}

// Checks that update `step` (from 1) uses the same samples in both jobs. Ok past the end of this
// job.
Status CheckSameUpdate(const Manifest& manifest, const Job& saved, const Job& job, const Plan& plan,
                       std::int64_t step) {
  const std::int64_t samples = manifest.cursor.dataset_samples;
  const auto was = MakeUpdateSchedule(saved, *manifest.plan, samples);
  if (!was.ok()) return {ErrorKind::kData, was.status().message()};
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule now, MakeUpdateSchedule(job, plan, samples));
  if (step > now.updates()) return Status::Ok();
  const Update before = was->At(step - 1);
  const Update after = now.At(step - 1);
  if (before.first == after.first && before.samples == after.samples) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the checkpoint belongs to a run with other updates: its update ", step, " took ",
                 before.samples, " samples after ", before.first, ", in this job it takes ",
                 after.samples, " after ", after.first)};
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
    records.push_back({entry.name, entry.shape, entry.offset, entry.group, entry.frozen});
  }
  return records;
}

Status CheckParameters(const Manifest& manifest, const FlatLayout& layout) {
  const std::vector<ParameterRecord> records = ParameterRecords(layout);
  const auto [ours, theirs] = std::ranges::mismatch(
      records, manifest.parameters, [](const ParameterRecord& a, const ParameterRecord& b) {
        return a.name == b.name && a.shape == b.shape && a.offset == b.offset;
      });
  if (ours != records.end() || theirs != manifest.parameters.end()) {
    return Differs("the parameter",
                   theirs == manifest.parameters.end() ? "(none more)" : Describe(*theirs),
                   ours == records.end() ? "(none more)" : Describe(*ours));
  }
  return Status::Ok();
}

Status CheckSameGroups(const Manifest& manifest, const FlatLayout& layout,
                       const OptimizerSpec& saved, const OptimizerSpec& now) {
  const auto treats_alike = [&](const OptimizerGroup& a, const OptimizerGroup& b) {
    return a == b ||
           (a.lr_factor == b.lr_factor && a.weight_decay.value_or(OwnWeightDecay(saved)) ==
                                              b.weight_decay.value_or(OwnWeightDecay(now)));
  };
  const std::vector<ParameterRecord> records = ParameterRecords(layout);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const ParameterRecord& before = manifest.parameters[i];
    const ParameterRecord& after = records[i];
    if (before.frozen == after.frozen &&
        (after.frozen || treats_alike(before.group, after.group))) {
      continue;
    }
    return {
        ErrorKind::kConfig,
        StrCat("the checkpoint belongs to another run: optimizer group of '", after.name,
               "': ", ParameterText(before), " -> ", ParameterText(after),
               "; to continue, end the optimizer of the job with ",
               GroupToWrite(before, after, saved), "; to take only the weights: ", kTakeWeights)};
  }
  return Status::Ok();
}

Status CheckFits(const Manifest& manifest, const FlatLayout& layout,
                 std::int64_t optimizer_elements) {
  GACCD_RETURN_IF_ERROR(CheckParameters(manifest, layout));
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

Status CheckSameSamples(const Manifest& manifest, const Job& saved, const Job& job,
                        const Plan& plan, std::int64_t dataset_samples) {
  const RunCursor& cursor = manifest.cursor;
  if (cursor.dataset_samples != dataset_samples) {
    return {ErrorKind::kConfig,
            StrCat(Differs("a data set of", cursor.dataset_samples, dataset_samples).message(),
                   " samples; to take only the weights: ", kTakeWeights)};
  }
  if (manifest.plan->effective_batch() != plan.effective_batch()) {
    return {ErrorKind::kConfig,
            StrCat(Differs("the effective batch", manifest.plan->effective_batch(),
                           plan.effective_batch())
                       .message(),
                   "; a target_schedule with stage { at_update: N target: M } changes it in a run; "
                   "to take only the weights: ",
                   kTakeWeights)};
  }
  const Status classes = CheckSameClasses(JobClassNames(saved.data, "the checkpoint"),
                                          JobClassNames(job.data, "the data of this job"));
  if (!classes.ok()) {
    return {ErrorKind::kConfig, "the checkpoint belongs to another run: " + classes.message()};
  }
  const Status columns =
      CheckSameColumns(saved.data.column_name, "the checkpoint", job.data.column_name);
  if (!columns.ok()) {
    return {ErrorKind::kConfig, "the checkpoint belongs to another run: " + columns.message()};
  }
  if (cursor.step == 0) return Status::Ok();
  return CheckSameUpdate(manifest, saved, job, plan, cursor.step);
}

Status CheckSameRun(const Job& saved, const Job& job) {
  const std::string differences = CompareJobs(saved, job).other_run;
  if (differences.empty()) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the checkpoint belongs to another run (checkpoint -> this job): ", differences,
                 "; to take only its weights: ", kTakeWeights)};
}

Status CheckSameModel(Job saved, const Job& job) {
  Job other = saved;
  other.model = job.model;
  const std::string differences = CompareJobs(std::move(saved), other).other_run;
  if (differences.empty()) return Status::Ok();
  return {
      ErrorKind::kConfig,
      StrCat("the checkpoint belongs to another model (checkpoint -> this job): ", differences)};
}

Status CheckSameNetwork(Job saved, Job job) {
  saved.model.loss = job.model.loss;
  for (Job* one : {&saved, &job}) RemoveDropout(&one->model);
  return CheckSameModel(std::move(saved), job);
}

Status CheckSamePartialUpdate(const Manifest& manifest, const Job& saved, const Job& job,
                              const Plan& plan, bool by_length) {
  const Plan& was = *manifest.plan;
  if (was.world() != plan.world()) return PartialUpdateDiffers("ranks", was.world(), plan.world());
  if (was.stages() != plan.stages()) {
    return PartialUpdateDiffers("the stages of a pipeline", was.stages(), plan.stages());
  }
  if (was.request().micro_batch != plan.request().micro_batch) {
    return PartialUpdateDiffers("the micro-batch", was.request().micro_batch,
                                plan.request().micro_batch);
  }
  if (was.accum_steps() != plan.accum_steps()) {
    return PartialUpdateDiffers("micro-steps", was.accum_steps(), plan.accum_steps());
  }
  if (was.any_split() || plan.any_split()) {  // its accumulators are never saved
    return PartialUpdateDiffers("--bits", Name(was.request().bits), Name(plan.request().bits));
  }
  if (was.request().speeds != plan.request().speeds) {
    return PartialUpdateDiffers("the speeds of the ranks", SpeedsText(was.request().speeds),
                                SpeedsText(plan.request().speeds));
  }
  if (manifest.cursor.by_length != by_length) {
    return PartialUpdateDiffers("grouping by length", OnOff(manifest.cursor.by_length),
                                OnOff(by_length));
  }
  if (!manifest.has_divisors) {
    return {ErrorKind::kConfig, "the gaccd that saved it did not save the divisor of the loss"};
  }
  // Accumulators of fp16 contain the gradient of the scaled loss.
  if (saved.precision != job.precision) {
    return PartialUpdateDiffers("the precision", Name(saved.precision), Name(job.precision));
  }
  return CheckSameUpdate(manifest, saved, job, plan, manifest.cursor.step + 1);
}

std::span<const float> LoadedFloats(const LoadedState& state, std::string_view buffer) {
  const auto& specs = state.manifest.buffers;
  const auto spec = std::ranges::find(specs, buffer, &BufferSpec::name);
  if (spec == specs.end()) return {};
  return AsFloats(state.buffers[static_cast<std::size_t>(spec - specs.begin())]);
}

}  // namespace gaccd
