#include "daemon/train/final_weights.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "collectives/base/environment.h"
#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/train/storage_limits.h"
#include "daemon/weights/weights.h"

namespace gaccd {
namespace {

enum class Over : std::uint8_t { kReplace, kRefuse };
using Write = std::function<Status(const std::string& path, Over over)>;

// The path where the weights were written instead of the user's, or why they were not.
Result<std::string> SaveElsewhere(const FinalWeights& weights, const Write& write) {
  const std::string name = weights.path.substr(weights.path.rfind('/') + 1);
  Status refused;
  for (const std::string& folder :
       {weights.run_dir, ProcessEnvironment()("TMPDIR").value_or(""), std::string("/tmp")}) {
    if (folder.empty()) continue;
    const std::string path = StrCat(folder, "/", name, ".", ::getpid());
    refused = write(path, Over::kRefuse);
    if (refused.ok()) return path;
  }
  return refused;
}

double ExportedBytes(const FlatLayout& layout, const FinalWeights& weights) {
  std::int64_t elements = layout.size();
  for (const auto& [copy, name] : weights.copies) {
    if (const FlatEntry* entry = layout.Find(name)) elements += entry->elements;
  }
  return static_cast<double>(elements) * sizeof(float);
}

}  // namespace

Status SaveFinalWeights(const FlatLayout& layout, std::vector<float> parameters,
                        const FinalWeights& weights) {
  struct Values {
    FlatLayout layout;
    std::vector<float> parameters;
    std::map<std::string, std::string> metadata;
    std::map<std::string, std::string> copies;
  };
  // Shared with abandoned writes.
  const auto values = std::make_shared<const Values>(
      Values{layout, std::move(parameters), weights.metadata, weights.copies});
  const auto limit = SaveLimit(weights.bound, ExportedBytes(layout, weights));
  const Write write = [&](const std::string& path, Over over) {
    return WriteWithin(limit, path, weights.tick,
                       [values, path, over, mode = weights.mode]() -> Status {
                         if (over == Over::kRefuse && PathExists(path)) {
                           return {ErrorKind::kIo, StrCat("'", path, "' already exists")};
                         }
                         return SaveParameters(path, values->layout, values->parameters, mode,
                                               values->metadata, values->copies);
                       });
  };
  const Status saved = write(weights.path, Over::kReplace).WithContext("--save-weights");
  if (saved.ok()) return saved;
  if (!weights.checkpoint.empty()) {
    return {saved.kind(),
            StrCat(saved.message(), "; the weights are in the last checkpoint: gaccd ckpt export ",
                   weights.checkpoint, " --out=FILE")};
  }
  const auto elsewhere = SaveElsewhere(weights, write);
  return {ErrorKind::kIo,
          StrCat(saved.message(), "; ",
                 elsewhere.ok() ? StrCat("the weights are in '", *elsewhere, "' instead")
                                : StrCat("could not be saved elsewhere either: ",
                                         elsewhere.status().message()))};
}

}  // namespace gaccd
