#include "daemon/weights/transformers_folder.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/prepared.h"
#include "daemon/data/tokenizer.h"
#include "daemon/weights/transformers_config.h"

namespace gaccd {
namespace {

// The tokenizer of the training as files of transformers.
struct Tokenizer {
  std::string path;
  std::string text;    // tokenizer.json
  std::string config;  // tokenizer_config.json
};

// The maximum number of tokens of a text: that of the training data or of the model.
std::int64_t LongestText(const Json& tokenizer, const ModelSpec& model) {
  const auto* gpt = std::get_if<GptSpec>(&model.architecture);
  const auto* bert = std::get_if<BertSpec>(&model.architecture);
  const std::int64_t context = gpt != nullptr ? gpt->context : bert->context;
  const Json* const truncation = tokenizer.Find("truncation");
  const auto longest =
      truncation == nullptr ? std::nullopt : truncation->integer<std::int64_t>("max_length");
  return longest && *longest >= 0 ? std::min(context, *longest) : context;
}

// Declares the special tokens that tools/prepare adds to vocabularies.
Result<std::string> TokenizerConfig(const std::string& path, const std::string& tokenizer,
                                    const ModelSpec& model) {
  constexpr std::pair<const char*, const char*> kMeanings[] = {
      {"pad_token", "[PAD]"},        {"unk_token", "[UNK]"},   {"cls_token", "[CLS]"},
      {"sep_token", "[SEP]"},        {"mask_token", "[MASK]"}, {"bos_token", "<|endoftext|>"},
      {"eos_token", "<|endoftext|>"}};
  GACCD_RETURN_IF_ERROR(CheckTokenizerDepth(path, tokenizer));
  const auto parsed = Json::ParseObject(tokenizer);
  if (!parsed) {
    return Status(ErrorKind::kData, path + ": expected a JSON object of a tokenizer");
  }
  Json::Object config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"model_max_length", LongestText(*parsed, model)}};
  // Without this the segments of a pair depend on the version: transformers 4 passes them to every
  // model (GPT-2 then adds the embedding of token 0), transformers 5 to none.
  Json::Array inputs = {"input_ids", "attention_mask"};
  const auto* const bert = std::get_if<BertSpec>(&model.architecture);
  if (bert != nullptr && bert->segments > 1) inputs.emplace_back("token_type_ids");
  config.emplace_back("model_input_names", std::move(inputs));
  const Json* const added = parsed->Find("added_tokens");
  if (added != nullptr && added->array() != nullptr) {
    for (const Json& token : *added->array()) {
      const std::string* const content = token.text("content");
      for (const auto& [key, text] : kMeanings) {
        const auto known = std::ranges::find(config, key, &Json::Member::first);
        if (content != nullptr && *content == text && known == config.end()) {
          config.emplace_back(key, text);
        }
      }
    }
  }
  return Json(std::move(config)).Dump(2) + "\n";
}

Result<Tokenizer> ReadTrainingTokenizer(const Job& job) {
  constexpr std::string_view kWithout = "; --without-tokenizer exports the model without one";
  Tokenizer found{.path = TokenizerPath(WithAbsolutePaths(job).data.train)};
  if (found.path.empty()) {
    return Status(ErrorKind::kConfig,
                  StrCat("the job trains on no tokens with a tokenizer", kWithout));
  }
  // The path is relative if the data does not exist; the current folder may have another tokenizer.
  if (!found.path.starts_with('/') || !PathExists(found.path)) {
    return Status(ErrorKind::kIo, StrCat("there is no tokenizer '", found.path,
                                         "' next to the training data", kWithout));
  }
  GACCD_ASSIGN_OR_RETURN(found.text, ReadTokenizer(found.path));
  Status belongs = CheckPreparedTokenizer(found.path, found.text);
  if (!belongs.ok()) return Status(belongs.kind(), StrCat(belongs.message(), kWithout));
  GACCD_ASSIGN_OR_RETURN(found.config, TokenizerConfig(found.path, found.text, job.model));
  return found;
}

Status MakeEmptyFolder(const std::string& folder, unsigned mode) {
  GACCD_RETURN_IF_ERROR(MakeFolders(folder, mode));
  constexpr std::size_t kMaxNames = 100'000;
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMaxNames));
  if (names.empty()) return Status::Ok();
  return {ErrorKind::kIo,
          StrCat("'", folder, "' is not empty, it has '", names.front(), "': it is not replaced")};
}

}  // namespace

Result<std::string> WriteTransformersFolder(const std::string& folder, const Job& job,
                                            std::span<const NamedTensor> tensors,
                                            const TransformersOptions& options) {
  const Modes& modes = options.modes;
  GACCD_ASSIGN_OR_RETURN(const std::string config,
                         TransformersConfig(job.model, job.data.class_name));
  std::optional<Tokenizer> tokenizer;
  if (!options.without_tokenizer) {
    GACCD_ASSIGN_OR_RETURN(tokenizer, ReadTrainingTokenizer(job));
  }
  GACCD_RETURN_IF_ERROR(MakeEmptyFolder(folder, modes.folder));
  GACCD_RETURN_IF_ERROR(WriteSafetensors(folder + "/model.safetensors", MakeViews(tensors),
                                         modes.file, DataMetadata(job.data)));
  const auto write = [&](std::string_view name, const std::string& text) {
    return ReplaceFile(StrCat(folder, "/", name), text, /*durable=*/true, modes.file);
  };
  if (tokenizer) {
    GACCD_RETURN_IF_ERROR(write("tokenizer.json", tokenizer->text));
    GACCD_RETURN_IF_ERROR(write("tokenizer_config.json", tokenizer->config));
  }
  GACCD_RETURN_IF_ERROR(write("config.json", config));
  return tokenizer ? "with the tokenizer " + tokenizer->path : std::string("without a tokenizer");
}

}  // namespace gaccd
