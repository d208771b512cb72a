#include "daemon/weights/transformers_folder.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/prepared.h"
#include "daemon/data/tokenizer.h"
#include "daemon/tensor/group_rules.h"

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

namespace {

Json::Object MakeConfig(const GptSpec& gpt) {
  return {{"architectures", Json::Array{"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", gpt.vocabulary},
          {"n_positions", gpt.context},
          {"n_layer", gpt.layers},
          {"n_head", gpt.heads},
          {"n_embd", gpt.width},
          {"n_inner", gpt.hidden > 0 ? gpt.hidden : 4 * gpt.width},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", gpt.epsilon},
          {"resid_pdrop", gpt.dropout},
          {"embd_pdrop", gpt.dropout},
          {"attn_pdrop", 0.0},
          {"tie_word_embeddings", true},
          {"bos_token_id", Json()},
          {"eos_token_id", Json()}};
}

Json::Object MakeConfig(const BertSpec& bert, std::span<const std::string> class_names) {
  const bool masked = bert.head == BertHead::kMaskedLm;
  const char* architecture = masked ? "BertForMaskedLM" : "BertForSequenceClassification";
  Json::Object config = {{"architectures", Json::Array{architecture}},
                         {"model_type", "bert"},
                         {"vocab_size", bert.vocabulary},
                         {"max_position_embeddings", bert.context},
                         {"type_vocab_size", bert.segments},
                         {"num_hidden_layers", bert.layers},
                         {"num_attention_heads", bert.heads},
                         {"hidden_size", bert.width},
                         {"intermediate_size", bert.hidden > 0 ? bert.hidden : 4 * bert.width},
                         {"hidden_act", "gelu"},
                         {"layer_norm_eps", bert.epsilon},
                         {"hidden_dropout_prob", bert.dropout},
                         {"attention_probs_dropout_prob", 0.0}};
  if (masked) return config;
  Json::Object names;
  Json::Object numbers;
  for (std::int64_t label = 0; label < bert.classes; ++label) {
    const std::string number = std::to_string(label);
    const bool named = label < std::ssize(class_names);
    const std::string name =
        named ? class_names[static_cast<std::size_t>(label)] : "LABEL_" + number;
    names.emplace_back(number, name);
    numbers.emplace_back(name, label);
  }
  config.emplace_back("id2label", std::move(names));
  config.emplace_back("label2id", std::move(numbers));
  return config;
}

// A key of config.json that must match the job.
struct Expected {
  std::string_view key;
  std::string_view field;       // of the job, or what gaccd computes
  std::vector<Json> values;     // accepted values; gaccd writes the first
  Json absent;                  // the default of transformers
  std::string_view table = {};  // the parameter whose number of rows it is
};

std::vector<Expected> ExpectedKeys(const BertSpec& bert) {
  constexpr std::string_view kEmbeddings[] = {"bert.embeddings.position_embeddings.weight",
                                              "bert.embeddings.token_type_embeddings.weight"};
  return {{"num_attention_heads", "bert.heads", {bert.heads}, 12},
          {"layer_norm_eps", "bert.epsilon", {bert.epsilon}, 1e-12},
          {"hidden_act", "bert computes it", {"gelu", "gelu_python"}, "gelu"},
          {"position_embedding_type", "bert computes it", {"absolute"}, "absolute"},
          {"is_decoder", "bert reads the whole text", {false}, false},
          {"max_position_embeddings", "bert.context", {bert.context}, 512, kEmbeddings[0]},
          {"type_vocab_size", "bert.segments", {bert.segments}, 2, kEmbeddings[1]}};
}

std::vector<Expected> ExpectedKeys(const GptSpec& gpt) {
  constexpr std::string_view kAlike[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
  return {{"n_head", "gpt.heads", {gpt.heads}, 12},
          {"layer_norm_epsilon", "gpt.epsilon", {gpt.epsilon}, 1e-5},
          {"activation_function", "gpt computes it", {kAlike[0], kAlike[1], kAlike[2]}, kAlike[0]},
          {"scale_attn_weights", "gpt computes it", {true}, true},
          {"scale_attn_by_inverse_layer_idx", "gpt does not", {false}, false},
          {"n_positions", "gpt.context", {gpt.context}, 1024, "transformer.wpe.weight"}};
}

bool IsNewTable(std::string_view table, std::span<const std::string> new_weights) {
  return !table.empty() && std::ranges::any_of(new_weights, [&](const std::string& pattern) {
    return MatchesPattern(pattern, std::string(table));
  });
}

std::string FindDifferences(const Json& found, const std::vector<Expected>& all,
                            std::span<const std::string> new_weights) {
  std::string text;
  for (const Expected& one : all) {
    const Json* const member = found.Find(one.key);
    const Json& value = member == nullptr ? one.absent : *member;
    if (IsNewTable(one.table, new_weights)) continue;
    if (std::ranges::find(one.values, value) != one.values.end()) continue;
    text +=
        StrCat(text.empty() ? "" : "; ", one.key, ": expected ", one.values.front().Dump(), " (",
               one.field, "), found ", value.Dump(), member == nullptr ? ", its default" : "");
  }
  return text;
}

}  // namespace

Result<std::string> TransformersConfig(const ModelSpec& model,
                                       std::span<const std::string> class_names) {
  Json::Object config;
  if (const auto* gpt = std::get_if<GptSpec>(&model.architecture)) {
    config = MakeConfig(*gpt);
  } else if (const auto* bert = std::get_if<BertSpec>(&model.architecture)) {
    config = MakeConfig(*bert, class_names);
  } else {
    return Status(ErrorKind::kConfig, "transformers opens gpt and bert; the model is neither");
  }
  config.emplace_back("torch_dtype", "float32");
  return Json(std::move(config)).Dump(2) + "\n";
}

Status CheckTransformersConfig(std::string_view config, const ModelSpec& model,
                               std::span<const std::string> new_weights) {
  const auto* bert = std::get_if<BertSpec>(&model.architecture);
  const auto* gpt = std::get_if<GptSpec>(&model.architecture);
  if (bert == nullptr && gpt == nullptr) return Status::Ok();
  const auto found = Json::ParseObject(config);
  if (!found) {
    return {ErrorKind::kData, "expected a JSON object, as transformers writes it"};
  }
  const Json kind = bert != nullptr ? "bert" : "gpt2";
  const Json* const type = found->Find("model_type");
  const std::string differences =
      type != nullptr && *type != kind
          ? StrCat("model_type: expected ", kind.Dump(), ", found ", type->Dump())
          : FindDifferences(*found, bert != nullptr ? ExpectedKeys(*bert) : ExpectedKeys(*gpt),
                            new_weights);
  if (differences.empty()) return Status::Ok();
  return {ErrorKind::kData, StrCat("the weights belong to another model: ", differences)};
}

}  // namespace gaccd
