// gaccd's side of the GPU benchmarks, driven by tools/bench/gpu/run, which lets it and PyTorch take
// turns. One command a line on standard input, one line of JSON for each on standard output:
//
//   open step precision=f32 micro=32 k=4 updates=100    prepares a case; one at a time
//   run                                                  {"seconds": ..., "bytes": ..., "proof":
//   ...} close                                                frees its memory
//
// An error is {"error": "..."}; after a CUDA error the process is unusable.
#include <iostream>
#include <sstream>

#include "collectives/base/strings.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {

Result<std::int64_t> CaseArguments::Count(const std::string& name) const {
  const std::string text = Text(name);
  const auto value = ToNumber<std::int64_t>(text);
  if (value && *value >= 1) return *value;
  return Status(ErrorKind::kUsage,
                StrCat(name, ": expected a whole number >= 1, found '", text, "'"));
}

Result<bool> CaseArguments::Either(const std::string& name, const std::string& first,
                                   const std::string& second) const {
  const std::string text = Text(name);
  if (text == first || text == second) return text == second;
  return Status(ErrorKind::kUsage,
                StrCat(name, ": expected ", first, " or ", second, ", found '", text, "'"));
}

std::string CaseArguments::Text(const std::string& name) const {
  const auto found = words_.find(name);
  return found == words_.end() ? std::string() : found->second;
}

namespace {

MadeCase Open(std::istringstream& words) {
  std::string name;
  words >> name;
  std::map<std::string, std::string> given;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      return Status(ErrorKind::kUsage, StrCat("expected name=value, found '", word, "'"));
    }
    given[word.substr(0, equals)] = word.substr(equals + 1);
  }
  const CaseArguments arguments(std::move(given));
  if (name == "copy") return MakeCopyCase(arguments);
  if (name == "adamw") return MakeAdamWCase(arguments);
  if (name == "norm") return MakeNormCase(arguments);
  if (name == "entropy") return MakeEntropyCase(arguments);
  if (name == "embedding") return MakeEmbeddingCase(arguments);
  if (name == "layer_norm") return MakeLayerNormCase(arguments);
  if (name == "gemm") return MakeGemmCase(arguments);
  if (name == "attention") return MakeAttentionCase(arguments);
  if (name == "step") return MakeStepCase(arguments);
  return Status(
      ErrorKind::kUsage,
      StrCat("expected copy, adamw, norm, entropy, embedding, layer_norm, gemm, attention ",
             "or step, found '", name, "'"));
}

std::string ErrorLine(const Status& status) {
  std::string text;
  for (const char c : status.message()) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return StrCat("{\"error\": \"", text, "\"}");
}

std::string InferenceOutput(const std::string& line, std::unique_ptr<GpuCase>& open) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "open") {
    open.reset();  // first: two may not fit
    auto made = Open(words);
    if (!made.ok()) return ErrorLine(made.status());
    open = std::move(*made);
    return "{}";
  }
  if (verb == "close") {
    open.reset();
    return "{}";
  }
  if (verb != "run" || open == nullptr) {
    return ErrorLine(
        {ErrorKind::kUsage, StrCat("expected open, run or close, found '", line, "'")});
  }
  const Result<double> seconds = open->Run();
  if (!seconds.ok()) return ErrorLine(seconds.status());
  std::ostringstream json;
  json.precision(9);
  json << "{\"seconds\": " << *seconds << ", \"bytes\": " << open->bytes()
       << ", \"proof\": " << open->proof() << "}";
  return json.str();
}

}  // namespace
}  // namespace gaccd

int main() {
  std::unique_ptr<gaccd::GpuCase> open;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << gaccd::InferenceOutput(line, open) << std::endl;
  }
  return 0;
}
