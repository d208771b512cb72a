#include "daemon/checkpoint/transformers_folder.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/tokenizer.h"
#include "daemon/models/transformers_config.h"

namespace gaccd {
namespace {

using Json = nlohmann::ordered_json;

// Which of its tokens mean what: those that tools/prepare gives a vocabulary.
Result<std::string> TokenizerConfig(const std::string& path, const std::string& tokenizer) {
  constexpr std::pair<const char*, const char*> kMeanings[] = {
      {"pad_token", "[PAD]"},        {"unk_token", "[UNK]"},   {"cls_token", "[CLS]"},
      {"sep_token", "[SEP]"},        {"mask_token", "[MASK]"}, {"bos_token", "<|endoftext|>"},
      {"eos_token", "<|endoftext|>"}};
  GACCD_RETURN_IF_ERROR(CheckTokenizerDepth(path, tokenizer));
  const Json parsed = Json::parse(tokenizer, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return Status(ErrorKind::kData, path + ": expected a JSON object of a tokenizer");
  }
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const auto added = parsed.find("added_tokens");
  if (added != parsed.end() && added->is_array()) {
    for (const Json& token : *added) {
      if (!token.is_object()) continue;
      for (const auto& [key, text] : kMeanings) {
        if (token.value("content", Json()) == text) config[key] = text;
      }
    }
  }
  return config.dump(2) + "\n";
}

Status MakeEmptyFolder(const std::string& folder, unsigned mode) {
  GACCD_RETURN_IF_ERROR(MakeFolders(folder, mode));
  constexpr std::size_t kMostNames = 100'000;
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMostNames));
  if (names.empty()) return Status::Ok();
  return {ErrorKind::kIo,
          StrCat("'", folder, "' is not empty, it has '", names.front(), "': it is not replaced")};
}

}  // namespace

Result<std::string> WriteTransformersFolder(const std::string& folder, const Job& job,
                                            std::span<const NamedTensor> tensors,
                                            const Modes& modes) {
  GACCD_ASSIGN_OR_RETURN(const std::string config, TransformersConfig(job.model));
  GACCD_RETURN_IF_ERROR(MakeEmptyFolder(folder, modes.folder));
  GACCD_RETURN_IF_ERROR(
      WriteSafetensors(folder + "/model.safetensors", ViewsOf(tensors), modes.file));
  const auto write = [&](std::string_view name, const std::string& text) {
    return ReplaceFile(StrCat(folder, "/", name), text, /*durable=*/true, modes.file);
  };
  const std::string tokenizer = TokenizerPath(job.data.train);
  std::string note = "without a tokenizer: the job trains on no tokens";
  if (!tokenizer.empty() && !PathExists(tokenizer)) {
    note = StrCat("without a tokenizer: there is no '", tokenizer, "'");
  } else if (!tokenizer.empty()) {
    GACCD_ASSIGN_OR_RETURN(const std::string text, ReadTokenizer(tokenizer));
    GACCD_ASSIGN_OR_RETURN(const std::string meanings, TokenizerConfig(tokenizer, text));
    GACCD_RETURN_IF_ERROR(write("tokenizer.json", text));
    GACCD_RETURN_IF_ERROR(write("tokenizer_config.json", meanings));
    note = StrCat("with the tokenizer ", tokenizer);
  }
  GACCD_RETURN_IF_ERROR(write("config.json", config));
  return note;
}

}  // namespace gaccd
