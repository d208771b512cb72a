// Whole trainings on a GPU against PyTorch's in double precision (tests/golden): GPT-2 and BERT
// from initial weights of Hugging Face's, a dual encoder, ResNets. GACCD_GOLDEN_DIR: tests/golden.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job_text.h"
#include "daemon/train/weight_source.h"
#include "daemon/weights/safetensors.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/rank_training.h"
#include "tests/support/status_matchers.h"
#include "tests/support/step_events.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

// Relative: of the loss and of the gradient norm of any update, and of all weights at the end (root
// of squares; AdamW makes noise of the key's bias, whose gradient is 0). f32 sums in another order;
// bf16 keeps 8 bits of every activation, fp16 11.
struct Tolerance {
  double loss, norm, weights;
};
constexpr Tolerance kF32 = {2e-6, 2e-5, 1e-4};
constexpr Tolerance kFP16 = {5e-4, 1e-2, 1e-2};
constexpr Tolerance kBF16 = {5e-3, 5e-2, 5e-2};

struct GoldenCase {
  const char* name;
  const char* job;   // below tests/golden
  const char* init;  // safetensors, in the folder of the job; "": as the job's seed says
  Precision precision;
  Tolerance same;
};

struct Figures {
  std::vector<double> losses, norms;
  std::vector<std::string> names;  // of the tensors in `weights`
  std::vector<float> weights;
};

std::vector<double> Numbers(const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) numbers.push_back(std::stod(text));
  return numbers;
}

// The figures of JOB.txt, weights of JOB.trained where there is one.
Figures ReadGolden(std::filesystem::path job) {
  Figures golden;
  std::ifstream in(job.replace_extension("txt"));
  EXPECT_TRUE(in.good()) << job;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "step") {
      double epoch, step, samples, total, lr;
      words >> epoch >> step >> samples >> total >> lr >> golden.losses.emplace_back() >>
          golden.norms.emplace_back();
    } else if (key == "weight") {
      words >> golden.names.emplace_back();
      for (float value = 0; words >> value;) golden.weights.push_back(value);
    }
  }
  if (!std::filesystem::exists(job.replace_extension("trained"))) return golden;
  auto trained = ValueOrThrow(ReadSafetensors(job));
  for (const NamedTensor& tensor : trained.tensors) {
    golden.names.push_back(tensor.name);
    golden.weights.insert(golden.weights.end(), tensor.values.begin(), tensor.values.end());
  }
  return golden;
}

// One rank on the GPU; its weights in the order of golden.names.
Result<Figures> TrainOnGpu(const Job& job, const std::string& init, const Figures& golden) {
  const TempFolder run;
  const auto comm = MakeSingle();
  // Without a library of attention: it takes no heads of 4 values (large_model_test.cc has it).
  const EngineChoice choice{.device = Device::kCuda, .cublaslt = CublasLtOfTest()};
  FlatLayout layout;
  const auto before = [&](int, Trainer& trainer) {
    layout = trainer.model().layout();
    if (init.empty()) return Status::Ok();
    LoadedWeights loaded;
    return LoadWeightsTogether(*comm, trainer.engine(), trainer.model(), job, {.path = init},
                               &loaded)
        .status;
  };
  tests::Trained trained(1);
  GACCD_RETURN_IF_ERROR(tests::TrainOnRank(*comm, job,
                                           {.ranks = 1, .run_dir = run.path(), .before = before},
                                           choice, nullptr, &trained));
  Figures found{.losses = Numbers(tests::StepValues(run.path(), "loss")),
                .norms = Numbers(tests::StepValues(run.path(), "grad_norm"))};
  for (const std::string& name : golden.names) {
    const FlatEntry* entry = layout.Find(name);
    if (entry == nullptr) return Status(ErrorKind::kData, StrCat("the model has no ", name));
    const auto from = trained.weights[0].begin() + entry->offset;
    found.weights.insert(found.weights.end(), from, from + entry->elements);
  }
  return found;
}

double Worst(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size() || found.empty()) return std::nan("");
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] / expected[i] - 1));
  }
  return worst;
}

void PrintTo(const GoldenCase& test, std::ostream* out) { *out << test.name; }

class GoldenTraining : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTraining, EqualsPyTorch) {
  const char* folder = std::getenv("GACCD_GOLDEN_DIR");
  ASSERT_NE(folder, nullptr) << "GACCD_GOLDEN_DIR has to name tests/golden";
  const GoldenCase& test = GetParam();
  const std::filesystem::path path = std::filesystem::absolute(folder) / test.job;
  std::filesystem::current_path(path.parent_path());  // the job names its data from there
  auto job = ValueOrThrow(LoadJob(path));
  job.precision = test.precision;
  const Figures golden = ReadGolden(path);
  const auto found = ValueOrThrow(TrainOnGpu(job, test.init, golden));
  const double loss = Worst(found.losses, golden.losses);
  const double norm = Worst(found.norms, golden.norms);
  const double weights = RelativeDifference(found.weights, golden.weights);
  EXPECT_LT(weights, test.same.weights);
  EXPECT_LT(loss, test.same.loss);
  EXPECT_LT(norm, test.same.norm);
  PrintRow(StrCat("training of ", test.name, " against PyTorch"), !HasFailure(),
           StrCat("loss within ", test.same.loss, ", gradient norm ", test.same.norm, ", weights ",
                  test.same.weights),
           StrCat(loss, ", ", norm, ", ", weights));
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenTraining,
    testing::Values(
        GoldenCase{"gpt_f32", "models/gpt_mini.txtpb", "gpt_mini.init", Precision::kF32, kF32},
        GoldenCase{"gpt_fp16", "models/gpt_mini.txtpb", "gpt_mini.init", Precision::kFP16, kFP16},
        GoldenCase{"gpt_bf16", "models/gpt_bf16.txtpb", "gpt_mini.init", Precision::kBF16, kBF16},
        GoldenCase{"gpt_weighted_f32", "models/gpt_weighted.txtpb", "gpt_mini.init",
                   Precision::kF32, kF32},
        GoldenCase{"bert_f32", "models/bert_mini.txtpb", "bert_mini.init", Precision::kF32, kF32},
        GoldenCase{"bert_bf16", "models/bert_bf16.txtpb", "bert_mini.init", Precision::kBF16,
                   kBF16},
        GoldenCase{"masked_f32", "models/masked_mini.txtpb", "masked_mini.init", Precision::kF32,
                   kF32},
        GoldenCase{"mixup_f32", "train/mixup.txtpb", "", Precision::kF32, kF32},
        GoldenCase{"mixup_fp16", "train/mixup.txtpb", "", Precision::kFP16, kFP16},
        GoldenCase{"dual_encoder_f32", "train/contrastive.txtpb", "", Precision::kF32, kF32},
        GoldenCase{"resnet_f32", "train/resnet.txtpb", "", Precision::kF32, kF32},
        GoldenCase{"resnet_bf16", "train/resnet.txtpb", "", Precision::kBF16, kBF16},
        GoldenCase{"resnet_ghost_f32", "train/resnet_ghost.txtpb", "", Precision::kF32, kF32}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace gaccd
