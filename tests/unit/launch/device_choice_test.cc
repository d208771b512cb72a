#include "daemon/launch/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

const RankGpu kWith{.host = "n1", .name = "NVIDIA H200", .problem = ""};
const RankGpu kWithout{.host = "n2", .name = "", .problem = "no NVIDIA driver"};

std::string ChoiceText(const Result<DeviceChoice>& choice) {
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  return choice.ok() ? choice->text : "";
}

TEST(DecideDevice, AutoUsesGpusIfAllRanksHaveOne) {
  const std::vector<RankGpu> ranks(240, kWith);
  const auto choice = DecideDevice(Device::kAuto, ranks);
  EXPECT_EQ(ChoiceText(choice), "device cuda: NVIDIA H200 on 240 ranks");
  EXPECT_EQ(choice->device, Device::kCuda);
  std::vector<RankGpu> two = {kWith, kWith, kWith};
  two[1].name = "NVIDIA A100";
  EXPECT_EQ(ChoiceText(DecideDevice(Device::kAuto, two)),
            "device cuda: NVIDIA A100 on 1 rank, NVIDIA H200 on 2 ranks");
}

TEST(DecideDevice, AutoUsesCpusIfNoRankHasGpu) {
  const std::vector<RankGpu> ranks(3, kWithout);
  const auto choice = DecideDevice(Device::kAuto, ranks);
  EXPECT_EQ(ChoiceText(choice), "device cpu: no NVIDIA driver");
  EXPECT_EQ(choice->device, Device::kCpu);
  std::vector<RankGpu> two = ranks;
  two[2].problem = "no GPU";
  EXPECT_EQ(ChoiceText(DecideDevice(Device::kAuto, two)),
            "device cpu: no rank has a usable GPU: rank 0 on n2 (no NVIDIA driver), rank 1 on n2 "
            "(no NVIDIA driver), rank 2 on n2 (no GPU)");
}

// A GPU that cannot be used counts as none, and its reason is printed.
TEST(DecideDevice, GpuWithoutLibrariesDoesNotCount) {
  const std::vector<RankGpu> ranks(2, {.host = "n1", .name = "H200", .problem = "no cuBLASLt"});
  EXPECT_EQ(ChoiceText(DecideDevice(Device::kAuto, ranks)), "device cpu: no cuBLASLt");
}

TEST(DecideDevice, AutoRefusesMixtureNamingMinority) {
  std::vector<RankGpu> ranks(240, kWith);
  ranks[17] = kWithout;
  ranks[18] = kWithout;
  Result<DeviceChoice> choice = DecideDevice(Device::kAuto, ranks);
  EXPECT_THAT(choice,
              IsError(ErrorKind::kConfig,
                      "found one on 238 of 240 ranks; without: rank 17 on n2 (no NVIDIA driver), "
                      "rank 18 on n2 (no NVIDIA driver). "));

  std::vector<RankGpu> others(240, kWithout);
  others[3] = kWith;
  choice = DecideDevice(Device::kAuto, others);
  EXPECT_THAT(
      choice,
      HasMessage(AllOf(HasSubstr("found one on 1 of 240 ranks; with: rank 3 on n1 (NVIDIA H200). "),
                       Not(HasSubstr("rank 4 ")))));
}

TEST(DecideDevice, CountsManyRanks) {
  std::vector<RankGpu> ranks(240, kWith);
  for (std::size_t r = 0; r < 100; ++r) ranks[r] = kWithout;
  EXPECT_THAT(DecideDevice(Device::kAuto, ranks),
              HasMessage(HasSubstr("rank 7 on n2 (no NVIDIA driver), and 92 more")));
}

TEST(DecideDevice, CudaRequiresGpuOnEveryRank) {
  std::vector<RankGpu> ranks(4, kWith);
  EXPECT_EQ(DecideDevice(Device::kCuda, ranks)->device, Device::kCuda);
  ranks[2] = kWithout;
  EXPECT_THAT(DecideDevice(Device::kCuda, ranks),
              IsError(ErrorKind::kConfig, "found none on 1 of 4: rank 2 on n2 (no NVIDIA driver)"));
}

TEST(DecideDevice, CpuIgnoresGpus) {
  const std::vector<RankGpu> ranks = {kWith, kWithout};
  EXPECT_EQ(ChoiceText(DecideDevice(Device::kCpu, ranks)), "device cpu: asked for");
}

// One rank finds no driver: no rank continues, all say the same.
TEST(ChooseDevice, AllRanksChooseTheSame) {
  std::mutex mutex;
  std::multiset<std::string> answers;
  const Status run = RunThreadRanks(4, {}, [&](Communicator& comm) {
    GpuProbe probe;
    if (comm.rank() == 2) {
      probe.problem = "the driver is too old";
    } else {
      probe.gpus = {{.device = 0, .name = "NVIDIA H200", .uuid = "GPU-1"}};
    }
    const auto choice = ChooseDevice(comm, Device::kAuto, false, probe);
    const std::lock_guard lock(mutex);
    answers.insert(choice.ok() ? choice->text : choice.status().message());
    return Status::Ok();
  });
  ASSERT_TRUE(run.ok()) << run.message();
  ASSERT_EQ(answers.size(), 4U);
  EXPECT_EQ(answers.count(*answers.begin()), 4U);
  EXPECT_THAT(*answers.begin(), HasSubstr("without: rank 2 on "));
  EXPECT_THAT(*answers.begin(), HasSubstr("the driver is too old"));
}

// The text of all ranks, of which rank 2 finds no cuDNN if `one_lacks` it; "all" when they have the
// library, "none" when nobody has.
std::string AgreeOnLibrary(const DnnWork& work, Precision precision, bool one_lacks) {
  std::mutex mutex;
  std::set<std::string> answers;
  ExpectOk(RunThreadRanks(4, {}, [&](Communicator& comm) {
    Result<DnnFactory> mine = DnnFactory([](const CudaContext&) {
      return Result<std::unique_ptr<DnnLibrary>>(Status(ErrorKind::kInternal, "not asked"));
    });
    if (one_lacks && comm.rank() == 2) mine = Status(ErrorKind::kUnavailable, "no libcudnn.so.9");
    const auto choice = ChooseDnn(comm, work, precision, mine);
    const std::lock_guard lock(mutex);
    answers.insert(StrCat(choice->text, choice->library ? " (all)" : " (none",
                          choice->library ? ""
                          : choice->slow  ? ", a warning)"
                                          : ")"));
    return Status::Ok();
  }));
  EXPECT_EQ(answers.size(), 1U);
  return *answers.begin();
}

TEST(ChooseDnn, AllRanksOrNoRankUsesCudnn) {
  const DnnWork attention{.attention = true};
  EXPECT_EQ(AgreeOnLibrary(attention, Precision::kBF16, false), "attention: cuDNN (all)");
  EXPECT_THAT(AgreeOnLibrary(attention, Precision::kBF16, true),
              AllOf(HasSubstr("times slower: 1 of 4 ranks cannot use cuDNN; rank 2 on "),
                    HasSubstr(": no libcudnn.so.9 (none, a warning)")));
  EXPECT_EQ(AgreeOnLibrary(attention, Precision::kF32, false),
            "attention: gaccd's own kernels, as in f32 always (none)");
  EXPECT_EQ(AgreeOnLibrary({.attention = true, .convolution = true}, Precision::kFP16, false),
            "attention and convolutions: cuDNN (all)");
  EXPECT_THAT(AgreeOnLibrary({.convolution = true}, Precision::kBF16, true),
              StartsWith("convolution by gaccd's own kernels, which are slower: 1 of 4"));
}

// The one text of 4 ranks, of which rank 2 has `other`.
std::string AgreeOnBf16(CpuBf16 usual, CpuBf16 other, bool allow_emulation) {
  std::mutex mutex;
  std::set<std::string> answers;
  ExpectOk(RunThreadRanks(4, {}, [&](Communicator& comm) {
    const auto text = CheckBf16OnCpus(comm, comm.rank() == 2 ? other : usual, allow_emulation);
    const std::lock_guard lock(mutex);
    answers.insert(text.ok() ? *text : text.status().message());
    if (!text.ok()) {
      EXPECT_THAT(text, HasKind(ErrorKind::kConfig));
    }
    return Status::Ok();
  }));
  EXPECT_EQ(answers.size(), 1U);
  return *answers.begin();
}

TEST(CheckBf16OnCpus, RequiresItOnEveryCpu) {
  using enum CpuBf16;
  EXPECT_EQ(AgreeOnBf16(kAmx, kAmx, false), "products in bf16 by AMX");
  EXPECT_EQ(AgreeOnBf16(kAmx, kAvx512Bf16, false), "products in bf16 by AMX and AVX512_BF16");
  const std::string refused = AgreeOnBf16(kAmx, kEmulated, false);
  EXPECT_THAT(refused, HasSubstr("1 of 4 have neither; rank 2 on "));
  EXPECT_THAT(refused, HasSubstr(" has AVX-512 without AVX512_BF16: --allow-emulation"));
  EXPECT_EQ(AgreeOnBf16(kAvx512Bf16, kEmulated, true),
            "products in bf16 by emulation and AVX512_BF16");
  EXPECT_THAT(AgreeOnBf16(kEmulated, kNone, true), EndsWith(" has no AVX-512"));
}

TEST(FindDnnWork, InModelsOfTextAndImages) {
  Job job;
  job.model = {.layer = {{"fc1", LinearSpec{10, 2, true}}}, .loss = MeanSquaredErrorSpec{}};
  EXPECT_FALSE(FindDnnWork(job)->attention || FindDnnWork(job)->convolution);
  job.model = {.loss = SoftmaxCrossEntropySpec{},
               .architecture = GptSpec{.vocabulary = 11, .context = 4, .layers = 2, .heads = 2}};
  EXPECT_TRUE(FindDnnWork(job)->attention);
  EXPECT_FALSE(FindDnnWork(job)->convolution);
  job.model.architecture = ResnetSpec{.classes = 3};
  EXPECT_FALSE(FindDnnWork(job)->attention);
  EXPECT_TRUE(FindDnnWork(job)->convolution);
}

TEST(CheckModelOnGpu, NeedsNoData) {
  Job job;
  job.model = {.layer = {{"flatten", FlattenSpec{}},
                         {"fc1", LinearSpec{784, 512, true}},
                         {"relu", ReluSpec{}},
                         {"fc2", LinearSpec{512, 10, false}}},
               .loss = SoftmaxCrossEntropySpec{}};
  Status status = CheckModelOnGpu(job);
  EXPECT_TRUE(status.ok()) << status.message();
  job.model.loss = MeanSquaredErrorSpec{};
  status = CheckModelOnGpu(job);
  EXPECT_TRUE(status.ok()) << status.message();
  job.model.layer[3].kind = LinearSpec{511, 10, true};
  EXPECT_THAT(CheckModelOnGpu(job), HasKind(ErrorKind::kConfig));
}

TEST(CheckModelOnGpu, ContrastiveModelHasNoEvaluation) {
  Job job;
  DualEncoderSpec towers;
  towers.a = {.input = "features", .layer = {{"fc", LinearSpec{4, 8, true}}}};
  towers.b = {.input = "targets", .layer = {{"fc", LinearSpec{1, 8, true}}}};
  towers.width = 4;
  job.model = {.loss = ContrastiveSpec{}, .architecture = towers};
  EXPECT_OK(CheckModelOnGpu(job));
}

TEST(PeakFlops, DependOnNameAndNumerics) {
  const Numerics bf16{.precision = Precision::kBF16};
  EXPECT_EQ(PeakFlops("NVIDIA H100 80GB HBM3", bf16), 989.4e12);
  EXPECT_EQ(PeakFlops("NVIDIA H100 PCIe", bf16), 756e12);
  EXPECT_EQ(PeakFlops("NVIDIA GH200 480GB", bf16), 989.4e12);
  EXPECT_EQ(PeakFlops("NVIDIA GB200", bf16), 2500e12);
  EXPECT_EQ(PeakFlops("NVIDIA H200 NVL", bf16), 0);
  EXPECT_EQ(PeakFlops("NVIDIA L40S", bf16), 362e12);
  EXPECT_EQ(PeakFlops("NVIDIA A100-SXM4-80GB", {}), 19.5e12);
  EXPECT_EQ(PeakFlops("NVIDIA A100-SXM4-80GB", {.tf32 = true}), 156e12);
  EXPECT_EQ(PeakFlops("NVIDIA A100-SXM4-80GB MIG 1g.10gb", bf16), 0);
  EXPECT_EQ(PeakFlops("NVIDIA GeForce GTX 1080", bf16), 0);
  EXPECT_EQ(PeakFlops("NVIDIA RTX A1000 Laptop GPU", bf16), 0) << "no A100";
  EXPECT_EQ(PeakFlops("NVIDIA A30", bf16), 165e12);
}

TEST(CheckModelOnGpu, RefusesUnsupportedHeads) {
  Job job;
  job.model = {.loss = SoftmaxCrossEntropySpec{},
               .architecture = GptSpec{.vocabulary = 11, .context = 4, .layers = 2, .heads = 2}};
  std::get<GptSpec>(job.model.architecture).width = 256;
  EXPECT_TRUE(CheckModelOnGpu(job).ok()) << CheckModelOnGpu(job).message();
  std::get<GptSpec>(job.model.architecture).width = 258;
  EXPECT_THAT(CheckModelOnGpu(job), IsError(ErrorKind::kConfig,
                                            "layer 'transformer.h.0.attn': attention on the GPU: "
                                            "expected heads of at most 128 values, found 129"));
}

}  // namespace
}  // namespace gaccd
