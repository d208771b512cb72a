#include "daemon/verbs/data_command.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/data/images.h"
#include "daemon/data/sources.h"
#include "daemon/data/write_png.h"

namespace gaccd {

Status RunDataCommand(const Flags& flags) {
  if (flags.words.empty() || !flags.job) {
    return {ErrorKind::kUsage, "expected gaccd data show --job=FILE --sample=N"};
  }
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  const auto* source = std::get_if<ImagesSpec>(&job.data.train);
  if (source == nullptr) {
    return {ErrorKind::kConfig, "data.train: expected the source images, found another"};
  }
  const BadRecordRules rules;
  GACCD_ASSIGN_OR_RETURN(const auto images,
                         OpenImages(*source, {job.data.normalize, rules, nullptr, job.folder}));
  if (flags.sample >= images->size()) {
    return {ErrorKind::kUsage, StrCat("--sample: expected one below the ", images->size(),
                                      " of data.train, found ", flags.sample)};
  }
  const ImageTransform& transform = images->transform();
  std::vector<float> features(static_cast<std::size_t>(images->spec().tensors[0].elements()));
  GACCD_ASSIGN_OR_RETURN(const ImageParameters drawn,
                         images->Read(flags.sample, job.seed, flags.epoch - 1, features.data()));
  const std::string out =
      flags.out.value_or(StrCat("sample-", flags.sample, "-epoch-", flags.epoch, ".png"));
  GACCD_RETURN_IF_ERROR(WritePng(transform.Restore(features.data()), out));
  return PrintOut(StrCat("sample ", flags.sample, " of ", images->size(), ": ",
                         images->NameOf(flags.sample), ", label ", images->label(flags.sample),
                         "\nepoch ", flags.epoch, ", seed ", job.seed, ": ", Describe(drawn),
                         "\nwritten: ", out, ", ", transform.width(), " x ", transform.height(),
                         "\n"));
}

}  // namespace gaccd
