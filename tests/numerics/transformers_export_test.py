"""Models of transformers, exported and compared with PyTorch: transformers_export_test.py GACCD

Needs what graph_export_test.py needs, and transformers; is skipped otherwise.
"""
import sys
import unittest

from exporter import SKIPPED, ExportTest, open_exporter

SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
         "intermediate_size": 24, "max_position_embeddings": 12, "head_dim": 8}


class Models(ExportTest):
    def setUp(self):
        super().setUp()
        ids = torch.randint(4, 40, (2, 9))
        self.ids = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def check(self, kind, **config):
        """kind: of the config, such as Mixtral, whose model for the next token is exported."""
        model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**{**SIZES, **config}))
        self.check_model(model, self.ids)
        return (self.dir / "model" / "graph.txtpb").read_text()

    def test_experts_compute_all_tokens(self):
        few = {"num_local_experts": 4, "num_experts_per_tok": 2}
        for experts in ("eager", "grouped_mm", "batched_mm"):
            graph = self.check("Mixtral", **few, experts_implementation=experts)
            self.assertEqual(graph.count('op: "embedding"'), 3 if experts == "batched_mm" else 1)  # as rows of tables for each token
        self.check("GptOss", **few, layer_types=["full_attention"])  # with biases, and matrices [in, out]

    def test_refusals_of_experts_advise_what_their_config_offers(self):
        few = {"num_local_experts": 4, "num_experts_per_tok": 2}
        model = transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**{**SIZES, **few}, interleave_moe_layer_step=1))
        refusal = self.refusal_of(model, self.ids)
        self.assertIn("repeats samples", refusal)  # of the experts, whose class is not one that the config chooses
        self.assertNotIn("batched_mm", refusal)
        model.model.layers[0].feed_forward.experts.is_transposed = True
        self.assertIn("experts_implementation='batched_mm'", self.refusal_of(model, self.ids))

    def test_classifiers_of_the_last_end_of_text(self):
        """They select by a mask; a module around their parts takes the place that the refusal names."""
        class Classifier(torch.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, input_ids, attention_mask):
                x, mask = self.net.model(input_ids, attention_mask).last_hidden_state, input_ids == self.net.config.eos_token_id
                return self.net.classification_head(x[torch.arange(x.shape[0]), (mask * torch.arange(mask.shape[1])).amax(1)])
        sizes = {f"{part}_{size}": count for part in ("encoder", "decoder") for size, count in (
            ("layers", 1), ("attention_heads", 2), ("ffn_dim", 24))}
        net = transformers.BartForSequenceClassification(transformers.BartConfig(
            vocab_size=40, d_model=16, max_position_embeddings=12, eos_token_id=2, num_labels=3, **sizes))
        self.ids["input_ids"][:, 4:9:4] = 2
        self.assertIn("of the last place take x[torch.arange(x.shape[0]), (mask * torch.arange(mask.shape[1])).amax(1)]", self.refusal_of(net, self.ids))
        model = Classifier(net)
        with torch.no_grad():
            torch.testing.assert_close(model.eval()(**self.ids), net.eval()(**self.ids).logits)
        self.check_model(model, self.ids)

    def test_padded_audio(self):
        """The mask is written at one place of each sample, and hides by a mask."""
        model = transformers.Wav2Vec2ForSequenceClassification(transformers.Wav2Vec2Config(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3),
            num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, apply_spec_augment=False, layerdrop=0.0, classifier_proj_size=8))
        self.check_model(model, {"input_values": torch.randn(2, 200), "attention_mask": torch.ones(2, 200, dtype=torch.int64)}, 1e-3)

    def test_choices_with_padding(self):
        ids = torch.randint(4, 40, (2, 3, 9))
        sizes = {name: size for name, size in SIZES.items() if name not in ("num_key_value_heads", "head_dim")}
        self.check_model(transformers.BertForMultipleChoice(transformers.BertConfig(**sizes)), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, 1e-4)


if __name__ == "__main__":
    gaccd = open_exporter(__doc__)
    import torch
    try:
        import transformers
    except ImportError:
        print("skipped: transformers is not installed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
