#include "daemon/device/cuda/matmul_choices.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <functional>
#include <optional>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_context.h"

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

constexpr std::size_t kMaxChoices = 4000;  // 1 MiB of text has space for more
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
using Bytes = std::array<unsigned char, sizeof(cublasLtMatmulAlgo_t)>;

bool FromHex(std::string_view text, Bytes* bytes) {
  if (text.size() != 2 * bytes->size()) return false;
  for (std::size_t i = 0; i < bytes->size(); ++i) {
    const std::size_t high = kHexDigits.find(text[2 * i]);
    const std::size_t low = kHexDigits.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    (*bytes)[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

std::string Header(const MatmulChoicesKey& key) {
  return StrCat("gaccd matmul choices 3\ngpu ", key.gpu_name, "\ncompute_capability ",
                key.compute_capability, "\nmultiprocessors ", key.multiprocessors, "\ncublaslt ",
                key.cublaslt_version, "\ndriver ", key.driver_version, "\ntf32 ", key.tf32,
                "\nworkspace ", CudaContext::kWorkspaceBytes, "\n");
}

std::string Line(const MatmulChoice& choice) {
  const MatmulCudaSpec& s = choice.spec;
  const std::string content = StrCat(
      s.m, " ", s.n, " ", s.k, " ", s.transpose_a, " ", s.transpose_b, " ", Name(s.ab), " ",
      Name(s.c), " ", s.bias, " ", s.relu, " ", s.accumulate, " ", s.column_sums, " ",
      s.column_sums_of_b, " ", static_cast<int>(s.gelu), " ", s.multiprocessors, " ", s.stride_a,
      " ", s.stride_c, " ", choice.microseconds, " ", choice.separate_microseconds, " ",
      Hex(std::as_bytes(std::span(&choice.algorithm, 1))));
  std::array<char, 17> sum{};
  std::to_chars(sum.data(), sum.data() + 16, Fnv1a(content), 16);
  return StrCat(content, " ", sum.data(), "\n");
}

// Parses the words of one line; remembers whether all were valid.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view Next() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }
  template <typename Number>
  Number InRange(Number least, Number most) {
    const auto value = ToNumber<Number>(Next());
    good_ = good_ && value && *value >= least && *value <= most;
    return value.value_or(Number{});
  }
  std::int64_t Size() { return InRange<std::int64_t>(1, kMaxSize); }
  bool Flag() { return InRange<int>(0, 1) == 1; }
  DType Type() {
    const std::string_view word = Next();
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kFP16}) {
      if (word == Name(dtype)) return dtype;
    }
    good_ = false;
    return DType::kF32;
  }
  [[nodiscard]] bool good() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::optional<MatmulChoice> ParseLine(std::string_view line) {
  const std::size_t last = line.rfind(' ');
  if (last == std::string_view::npos) return std::nullopt;
  std::uint64_t sum = 0;
  const std::string_view sum_text = line.substr(last + 1);
  const char* const sum_end = sum_text.data() + sum_text.size();
  const auto [end, error] = std::from_chars(sum_text.data(), sum_end, sum, 16);
  if (error != std::errc{} || end != sum_end || sum != Fnv1a(line.substr(0, last))) {
    return std::nullopt;
  }
  Words words(line.substr(0, last));
  MatmulChoice choice;
  MatmulCudaSpec& s = choice.spec;
  s.m = words.Size();
  s.n = words.Size();
  s.k = words.Size();
  s.transpose_a = words.Flag();
  s.transpose_b = words.Flag();
  s.ab = words.Type();
  s.c = words.Type();
  s.bias = words.Flag();
  s.relu = words.Flag();
  s.accumulate = words.Flag();
  s.column_sums = words.Flag();
  s.column_sums_of_b = words.Flag();
  s.gelu = static_cast<MatmulGelu>(words.InRange<int>(0, 3));
  s.multiprocessors = words.InRange<int>(0, 10'000);
  s.stride_a = words.InRange<std::int64_t>(0, kMaxSize);
  s.stride_c = words.InRange<std::int64_t>(0, kMaxSize);
  choice.microseconds = words.InRange<double>(0, 1e9);
  choice.separate_microseconds = words.InRange<double>(0, 1e9);
  Bytes bytes{};
  if (!FromHex(words.Next(), &bytes) || !words.good() || !Check(s).ok()) return std::nullopt;
  choice.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(bytes);
  return choice;
}

Status Bad(std::string_view what) { return {ErrorKind::kData, std::string(what)}; }

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

// The text of the kept choices:
//   gaccd matmul choices 3
//   gpu NVIDIA H200
//   ...                              the rest of the key, one line each
//   <m> <n> <k> <10 flags and types> <multiprocessors> <stride of A> <stride of C>
//   <microseconds> <separate microseconds>
//   <algorithm, hex> <checksum of the line, hex>
//   end <number of choices>
std::string ToText(const MatmulChoicesKey& key, const std::vector<MatmulChoice>& choices) {
  const std::size_t count = std::min(choices.size(), kMaxChoices);
  std::string text = Header(key);
  for (std::size_t i = 0; i < count; ++i) text += Line(choices[i]);
  return text + StrCat("end ", count, "\n");
}

Result<std::vector<MatmulChoice>> ParseMatmulChoices(std::string_view text,
                                                     const MatmulChoicesKey& key) {
  const std::string header = Header(key);
  if (!text.starts_with(header)) return Bad("it is not for this GPU, driver and cuBLASLt");
  text.remove_prefix(header.size());
  std::vector<MatmulChoice> choices;
  while (true) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return Bad("it ends in the middle");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.starts_with("end ")) {
      if (line != StrCat("end ", choices.size()) || !text.empty()) {
        return Bad(StrCat("it has ", choices.size(), " choices and then '", line.substr(0, 40),
                          "' and ", text.size(), " more bytes"));
      }
      return choices;
    }
    std::optional<MatmulChoice> choice = ParseLine(line);
    if (!choice.has_value()) return Bad(StrCat("choice ", choices.size() + 1, " is damaged"));
    if (choices.size() == kMaxChoices) return Bad(StrCat("more than ", kMaxChoices, " choices"));
    choices.push_back(*choice);
  }
}

}  // namespace gaccd
