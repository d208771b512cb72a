#include "daemon/models/transformers_config.h"

#include <nlohmann/json.hpp>
#include <variant>

namespace gaccd {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigOf(const GptSpec& gpt) {
  return {{"architectures", {"GPT2LMHeadModel"}},
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
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

Json ConfigOf(const BertSpec& bert, std::span<const std::string> class_names) {
  const bool masked = bert.head == BertHead::kMaskedLm;
  const char* architecture = masked ? "BertForMaskedLM" : "BertForSequenceClassification";
  Json config = {{"architectures", {architecture}},
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
  for (std::int64_t label = 0; label < bert.classes; ++label) {
    const std::string number = std::to_string(label);
    const bool named = label < std::ssize(class_names);
    const std::string name =
        named ? class_names[static_cast<std::size_t>(label)] : "LABEL_" + number;
    config["id2label"][number] = name;
    config["label2id"][name] = label;
  }
  return config;
}

}  // namespace

Result<std::string> TransformersConfig(const ModelSpec& model,
                                       std::span<const std::string> class_names) {
  Json config;
  if (const auto* gpt = std::get_if<GptSpec>(&model.architecture)) {
    config = ConfigOf(*gpt);
  } else if (const auto* bert = std::get_if<BertSpec>(&model.architecture)) {
    config = ConfigOf(*bert, class_names);
  } else {
    return Status(ErrorKind::kConfig, "transformers opens gpt and bert; the model is neither");
  }
  config["torch_dtype"] = "float32";
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gaccd
