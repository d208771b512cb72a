#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/data/images/image.h"
#include "daemon/data/images/images.h"
#include "daemon/data/mixed_samples.h"
#include "daemon/data/sources.h"
#include "daemon/data/update_schedule.h"
#include "daemon/tensor/random.h"
#include "daemon/verbs/verbs.h"

namespace gaccd {
namespace {

struct RenderedSample {
  std::vector<float> features;
  std::string text;  // the random parameters
};

Result<RenderedSample> RenderPlain(const ImageDataset& images, const Job& job, const Flags& flags) {
  RenderedSample rendered;
  rendered.features.resize(static_cast<std::size_t>(images.spec().tensors[0].elements()));
  GACCD_ASSIGN_OR_RETURN(
      const ImageParameters drawn,
      images.Read(flags.sample, job.seed, flags.epoch - 1, rendered.features.data()));
  rendered.text = Describe(drawn);
  return rendered;
}

// The position of a sample in the training.
struct SamplePosition {
  Update update;
  std::int64_t position = 0;  // in the run
  [[nodiscard]] std::int64_t in_update() const { return position - update.first; }
};

Result<SamplePosition> FindPosition(const Job& job, const Flags& flags, const SampleOrder& order) {
  // Mixing depends on positions in updates, not on ranks.
  GACCD_ASSIGN_OR_RETURN(const PlanRequest request, ToPlanRequest(job.batch, 1, 1));
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         MakeUpdateSchedule(job, plan, order.size()));
  const Status unused(ErrorKind::kUsage, StrCat("--epoch: the training of ", schedule.updates(),
                                                " updates does not take sample ", flags.sample,
                                                " in epoch ", flags.epoch));
  if (flags.epoch > std::numeric_limits<std::int64_t>::max() / order.size()) return unused;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(order.size()));
  const std::int64_t first = (flags.epoch - 1) * order.size();
  order.Fill(first, samples);
  const std::int64_t position =
      first + (std::ranges::find(samples, flags.sample) - samples.begin());
  const auto updates = std::views::iota(std::int64_t{0}, schedule.updates());
  const auto next = std::ranges::upper_bound(
      updates, position, {}, [&](std::int64_t index) { return schedule.At(index).first; });
  if (next == updates.begin()) return unused;
  const Update update = schedule.At(*std::ranges::prev(next));
  if (position >= update.first + update.samples) return unused;
  return SamplePosition{update, position};
}

// REQUIRES: the job mixes samples.
Result<RenderedSample> RenderMixed(std::unique_ptr<ImageDataset> plain, const Job& job,
                                   const Flags& flags) {
  const ImageDataset& images = *plain;
  const SampleOrder order(job.seed, images.size(), job.data.shuffle);
  GACCD_ASSIGN_OR_RETURN(const SamplePosition sample, FindPosition(job, flags, order));
  GACCD_ASSIGN_OR_RETURN(RenderedSample rendered, RenderPlain(images, job, flags));
  const std::uint64_t augmentation_seed =
      StreamKey(job.seed, static_cast<std::uint64_t>(sample.update.index));
  const std::int64_t group = sample.in_update() / job.data.mix_group;
  const std::int64_t first = group * job.data.mix_group;
  const GroupMix mix = DrawGroupMix(job.data, MixKey(augmentation_seed, group),
                                    std::min(job.data.mix_group, sample.update.samples - first),
                                    images.transform().height(), images.transform().width());
  const std::int64_t partner_position =
      sample.update.first + first +
      mix.partners[static_cast<std::size_t>(sample.in_update() - first)];
  const std::int64_t partner =
      order.IndexAt(partner_position / order.size(), partner_position % order.size());
  rendered.text +=
      StrCat("\nupdate ", sample.update.index + 1, ", place ", sample.in_update(), ": ");
  rendered.text += mix.lambda == 1 ? std::string("not mixed")
                                   : StrCat("lambda ", mix.lambda, ", with sample ", partner, ": ",
                                            Printable(images.ImageName(partner)), ", label ",
                                            images.label(partner));
  if (mix.box) {
    rendered.text += StrCat(", in the box top ", mix.box->top, " left ", mix.box->left, " height ",
                            mix.box->height, " width ", mix.box->width);
  }
  GACCD_ASSIGN_OR_RETURN(const auto mixed, MixSamples(std::move(plain), job.data, order));
  const BatchMemory memory(mixed->spec(), 1);
  BatchView view = memory.view();
  view.augmentation_seed = augmentation_seed;
  view.position = sample.in_update();
  view.run = {.seed = job.seed,
              .first = sample.position,
              .epoch_samples = order.size(),
              .update_samples = sample.update.samples};
  mixed->Gather({&flags.sample, 1}, view);
  GACCD_RETURN_IF_ERROR(mixed->ReadError());
  std::copy_n(view.tensor<float>(0), rendered.features.size(), rendered.features.begin());
  return rendered;
}

}  // namespace

Status RunDataCommand(const Flags& flags) {
  if (flags.words.empty() || !flags.job) {
    return {ErrorKind::kUsage, "expected gaccd data show --job=FILE --sample=N"};
  }
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  const auto* source = std::get_if<ImagesSpec>(&job.data.train);
  if (source == nullptr) {
    return {ErrorKind::kConfig,
            "data.train: expected the source images, found another (IDX files and NumPy arrays are "
            "images { path: .. labels: .. }, too)"};
  }
  const BadRecordRules rules;
  GACCD_ASSIGN_OR_RETURN(auto images,
                         OpenImages(*source, {job.data.normalize, rules, nullptr, job.folder}));
  if (flags.sample >= images->size()) {
    return {ErrorKind::kUsage, StrCat("--sample: expected one below the ", images->size(),
                                      " of data.train, found ", flags.sample)};
  }
  const auto damaged =
      std::ranges::find(images->damaged_labels(), flags.sample, &DamagedLabel::sample);
  const std::string label = damaged == images->damaged_labels().end()
                                ? StrCat(", label ", images->label(flags.sample))
                                : StrCat(", no label: ", Printable(damaged->why.message()));
  const std::string head = StrCat("sample ", flags.sample, " of ", images->size(), ": ",
                                  Printable(images->ImageName(flags.sample)), label);
  const ImageTransform transform = images->transform();
  GACCD_ASSIGN_OR_RETURN(const RenderedSample rendered,
                         job.data.mixup || job.data.cutmix
                             ? RenderMixed(std::move(images), job, flags)
                             : RenderPlain(*images, job, flags));
  const std::string out =
      flags.out.value_or(StrCat("sample-", flags.sample, "-epoch-", flags.epoch, ".png"));
  const std::string extension = std::filesystem::path(out).extension();
  if (!extension.empty() && extension != ".png") {
    return {ErrorKind::kUsage,
            StrCat("--out: expected a name that ends in .png, found '", out, "'")};
  }
  GACCD_RETURN_IF_ERROR(CheckReplacesPng(out));
  GACCD_RETURN_IF_ERROR(WritePng(transform.Restore(rendered.features.data()), out));
  return PrintOut(StrCat(head, "\nepoch ", flags.epoch, ", seed ", job.seed, ": ", rendered.text,
                         "\nwritten: ", out, ", ", transform.width(), " x ", transform.height(),
                         "\n"));
}

}  // namespace gaccd
