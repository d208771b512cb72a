#include "daemon/train/final_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/data/dataset.h"
#include "daemon/replica/model.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

// A file that is already there keeps its content; the next folder is tried.
TEST(FinalWeightsTest, DoesNotReplaceFilesElsewhere) {
  const TempFolder dir;
  const Job job = tests::SmallRegression();
  const Model model =
      ValueOrThrow(Model::Make(job.model, OpenDataset(job.data.train, {}).value()->spec()));
  const FlatLayout& layout = model.layout();
  const std::vector<float> parameters(static_cast<std::size_t>(layout.size()), 1.0F);
  const std::string there = dir.Write(StrCat("w.safetensors.", ::getpid()), "thesis");
  int ticks = 0;
  const auto tick = [&] {
    ++ticks;
    return Status::Ok();
  };
  const Status saved = SaveFinalWeights(layout, parameters,
                                        {.path = dir.path() + "/none/w.safetensors",
                                         .bound = std::chrono::seconds(120),
                                         .tick = tick,
                                         .run_dir = dir.path()});
  EXPECT_GE(ticks, 2) << "one a write";
  EXPECT_THAT(saved, IsError(ErrorKind::kIo, "the weights are in '", "' instead"));
  EXPECT_EQ(*ReadStart(there, 99), "thesis");
  const std::string message(saved.message());
  const std::string quoted = "the weights are in '";
  const std::size_t begin = message.find(quoted) + quoted.size();
  const std::string elsewhere = message.substr(begin, message.find("' instead") - begin);
  EXPECT_NE(elsewhere, there);
  EXPECT_EQ(::unlink(elsewhere.c_str()), 0) << elsewhere;
}

}  // namespace
}  // namespace gaccd
