#include "daemon/data/images.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/image_folder.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"
#include "daemon/data/row_threads.h"
#include "daemon/data/sources.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// Apart from the numbers of updates and layers, whose streams have other first parts.
constexpr std::uint64_t kImageStream = std::uint64_t{1} << 33;

std::uint64_t SampleKey(std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  const std::uint64_t of_epoch =
      StreamKey(StreamKey(seed, kImageStream), static_cast<std::uint64_t>(epoch));
  return StreamKey(of_epoch, static_cast<std::uint64_t>(index));
}

}  // namespace

struct ImageDataset::Failure {
  std::atomic<bool> any{false};
  std::mutex mutex;
  Status first;
};

ImageDataset::ImageDataset(std::vector<ImageFile> files, const ImagesSpec& source,
                           ImageTransform transform, std::unique_ptr<RowThreads> threads)
    : files_(std::move(files)),
      transform_(std::move(transform)),
      spec_(LabelledSample({transform_.channels(), transform_.height(), transform_.width()},
                           source.classes)),
      threads_(std::move(threads)),
      failure_(std::make_unique<Failure>()) {}

ImageDataset::~ImageDataset() = default;

std::int64_t ImageDataset::size() const { return std::ssize(files_); }

const ImageFile& ImageDataset::file(std::int64_t index) const {
  return files_[static_cast<std::size_t>(index)];
}

Result<ImageParameters> ImageDataset::Read(std::int64_t index, std::uint64_t seed,
                                           std::int64_t epoch, float* features) const {
  const std::string& path = file(index).path;
  GACCD_ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(path));
  GACCD_ASSIGN_OR_RETURN(const Image image,
                         DecodeImage(path, mapped->bytes(), transform_.channels()));
  auto parameters = transform_.Draw(image.height, image.width, SampleKey(seed, epoch, index));
  if (!parameters.ok()) return parameters.status().WithContext(path);
  if (features != nullptr) transform_.Apply(image, *parameters, features);
  return parameters;
}

void ImageDataset::Gather(std::span<const std::int64_t> indices, const BatchView& out) const {
  const auto row = static_cast<std::size_t>(spec_.tensors[0].elements());
  threads_->ForEach(indices.size(), [&](std::size_t i) {
    float* features = out.tensor<float>(0) + i * row;
    out.tensor<std::int32_t>(1)[i] = file(indices[i]).label;
    const auto read = Read(indices[i], out.run.seed, out.run.EpochOf(i), features);
    if (read.ok()) return;
    std::fill_n(features, row, std::numeric_limits<float>::quiet_NaN());
    const std::lock_guard lock(failure_->mutex);
    if (!failure_->any) failure_->first = read.status();
    failure_->any = true;
  });
}

Status ImageDataset::ReadError() const {
  if (!failure_->any) return Status::Ok();
  const std::lock_guard lock(failure_->mutex);
  return failure_->first;
}

Status ImageDataset::CheckAll(const std::function<Status(std::int64_t, Status)>& bad,
                              const std::function<Status()>& tick) const {
  constexpr std::int64_t kPart = 64;
  std::vector<Status> found(kPart);
  for (std::int64_t first = 0; first < size(); first += kPart) {
    const std::int64_t count = std::min(kPart, size() - first);
    threads_->ForEach(static_cast<std::size_t>(count), [&](std::size_t i) {
      found[i] = Read(first + static_cast<std::int64_t>(i), 0, 0, nullptr).status();
    });
    for (std::int64_t i = 0; i < count; ++i) {
      Status& status = found[static_cast<std::size_t>(i)];
      if (!status.ok()) GACCD_RETURN_IF_ERROR(bad(first + i, std::move(status)));
    }
    GACCD_RETURN_IF_ERROR(tick());
  }
  return Status::Ok();
}

Result<std::unique_ptr<ImageDataset>> OpenImages(const ImagesSpec& source, const Opening& opening) {
  GACCD_ASSIGN_OR_RETURN(const std::string path, opening.Locate(source.path));
  GACCD_ASSIGN_OR_RETURN(ImageTransform transform, ImageTransform::Make(source, opening.normalize));
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> classes, ListClassFolders(path));
  if (std::ssize(classes) != source.classes) {
    return Status(ErrorKind::kData, StrCat(path, ": expected ", source.classes,
                                           " folders, one for each class, found ", classes.size()));
  }
  GACCD_ASSIGN_OR_RETURN(std::vector<ImageFile> files, ListImages(path, classes));
  GACCD_ASSIGN_OR_RETURN(auto threads, RowThreads::Start(source.threads));
  return std::make_unique<ImageDataset>(std::move(files), source, std::move(transform),
                                        std::move(threads));
}

OpenedDataset OpenSource(const ImagesSpec& source, const Opening& opening) {
  GACCD_ASSIGN_OR_RETURN(const std::string path, opening.Locate(source.path));
  GACCD_ASSIGN_OR_RETURN(auto images, OpenImages(source, opening));
  BadRecords bad(opening.rules);
  NodeShare* share = opening.share;
  const auto* center = std::get_if<CenterCropSpec>(&source.crop);
  const std::string known =
      StrCat("images ", images->transform().height(), " ", images->transform().width(), " ",
             center == nullptr ? -1 : center->resize, " ", path);
  if (source.decode_all && (share == nullptr || !share->IsChecked(known))) {
    bool good = true;
    const auto take = [&](std::int64_t sample, Status damage) {
      good = false;
      return damage.kind() == ErrorKind::kData ? bad.Take(sample, std::move(damage)) : damage;
    };
    GACCD_RETURN_IF_ERROR(images->CheckAll(
        take, [share] { return share == nullptr ? Status::Ok() : share->Tick(); }));
    if (good && share != nullptr) share->MarkChecked(known);
  }
  return std::move(bad).Skip(std::move(images));
}

}  // namespace gaccd
