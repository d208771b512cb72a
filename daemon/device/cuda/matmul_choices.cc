#include "daemon/device/cuda/matmul_choices.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// "matmul-nvidia-h200-sm90-1f2e3d4c5b6a7988.txt": the GPU for users, and a hash of the whole key.
std::string FileName(const MatmulChoicesKey& key) {
  std::string gpu;
  for (const char c : key.gpu_name) {
    const auto letter = static_cast<unsigned char>(c);
    gpu += std::isalnum(letter) != 0 ? static_cast<char>(std::tolower(letter)) : '-';
  }
  const std::uint64_t number = std::hash<std::string>{}(ToText(key, {}));
  return StrCat("matmul-", gpu.substr(0, 60), "-sm", key.compute_capability, "-", Hex(number),
                ".txt");
}

const MatmulChoice* FindIn(const std::vector<MatmulChoice>& choices, const MatmulCudaSpec& spec) {
  const auto at = std::ranges::find(choices, spec, &MatmulChoice::spec);
  return at == choices.end() ? nullptr : &*at;
}

}  // namespace

MatmulChoices::MatmulChoices(std::string folder, const MatmulChoicesKey& key)
    : key_(key), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  path_ = StrCat(folder_, "/", FileName(key_));
  kept_ = ReadFile();
}

MatmulChoices::~MatmulChoices() { Save(); }

std::vector<MatmulChoice> MatmulChoices::ReadFile() {
  if (access(path_.c_str(), F_OK) != 0) return {};  // the first run on this GPU
  const Result<std::string> text = ReadSmallFile(path_, ErrorKind::kData);
  if (!text.ok()) {
    AddNote(StrCat("cached algorithms of matrix products are not used: ", text.status().message()));
    return {};
  }
  Result<std::vector<MatmulChoice>> choices = ParseMatmulChoices(text.value(), key_);
  if (choices.ok()) return std::move(choices).value();
  AddNote(StrCat("cached algorithms of matrix products are not used: '", path_,
                 "': ", choices.status().message()));
  return {};
}

const MatmulChoice* MatmulChoices::Find(const MatmulCudaSpec& spec) const {
  return FindIn(made_, spec);
}

const MatmulChoice* MatmulChoices::FindKept(const MatmulCudaSpec& spec) const {
  return FindIn(kept_, spec);
}

void MatmulChoices::Add(const MatmulChoice& choice, Source source) {
  made_.push_back(choice);
  if (source != Source::kTimed) return;
  ++timed_;
  unsaved_ = true;
}

void MatmulChoices::SetSeparate(const MatmulCudaSpec& spec, double microseconds) {
  const auto at = std::ranges::find(made_, spec, &MatmulChoice::spec);
  if (at == made_.end()) return;
  at->separate_microseconds = microseconds;
  unsaved_ = true;
}

void MatmulChoices::AddWarning(std::string warning) {
  if (std::ranges::find(warnings_, warning) == warnings_.end()) {
    warnings_.push_back(std::move(warning));
  }
}

void MatmulChoices::Save() {
  if (!std::exchange(unsaved_, false) || folder_.empty()) return;
  const Status status = WriteFile();
  if (!status.ok()) {
    AddNote(StrCat("algorithms of matrix products are not cached: ", status.message()));
  }
}

// Others may have written since the file was read: their choices are kept. Two simultaneous writers
// may lose each other's choices, which the next run then times again.
Status MatmulChoices::WriteFile() {
  GACCD_RETURN_IF_ERROR(MakeFolders(folder_));
  std::vector<MatmulChoice> all;
  for (const MatmulChoice& choice : made_) {
    if (choice.microseconds > 0) all.push_back(choice);
  }
  for (const MatmulChoice& choice : ReadFile()) {
    if (FindIn(all, choice.spec) == nullptr) all.push_back(choice);
  }
  return ReplaceFile(path_, ToText(key_, all), /*durable=*/false);
}

}  // namespace gaccd
