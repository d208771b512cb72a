#include <variant>

#include "collectives/base/strings.h"
#include "daemon/data/array.h"
#include "daemon/data/idx.h"
#include "daemon/data/npy.h"
#include "daemon/data/synthetic.h"

namespace gaccd {
namespace {

Result<std::unique_ptr<Dataset>> Open(const IdxSource& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules) {
  if (source.classes < 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("idx: expected at least 1 class, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(Array images, LoadIdx(source.images));
  GACCD_ASSIGN_OR_RETURN(Array labels, LoadIdx(source.labels));
  return MakeArrayDataset(std::move(images), std::move(labels), source.classes, normalize, rules);
}

Result<std::unique_ptr<Dataset>> Open(const NpySource& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules) {
  if (source.classes < 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("npy: expected 0 classes or more, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(Array features, LoadNpy(source.features));
  GACCD_ASSIGN_OR_RETURN(Array targets, LoadNpy(source.targets));
  if (targets.dtype == DType::kU8) {
    return Status(ErrorKind::kData,
                  StrCat(source.targets, ": expected i32 or i64 labels, or f32 targets, found u8"));
  }
  return MakeArrayDataset(std::move(features), std::move(targets), source.classes, normalize,
                          rules);
}

Result<std::unique_ptr<Dataset>> Open(const SyntheticSource& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& /*rules*/) {
  return MakeSynthetic(source, normalize);
}

}  // namespace

Result<std::unique_ptr<Dataset>> OpenDataset(const SourceSpec& source,
                                             const NormalizeSpec& normalize,
                                             const BadRecordRules& rules) {
  return std::visit([&](const auto& kind) { return Open(kind, normalize, rules); }, source);
}

}  // namespace gaccd
