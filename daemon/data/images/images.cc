#include "daemon/data/images/images.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/images/row_threads.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"
#include "daemon/data/several_files.h"
#include "daemon/data/sources.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// How many are read to estimate the memory for decoding, if not all are.
constexpr std::int64_t kSomeImages = 16;

// Larger than numbers of updates, epochs and parameters, the other streams of the seed.
constexpr std::uint64_t kImageStream = std::uint64_t{1} << 33;

std::uint64_t SampleKey(std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  const std::uint64_t of_epoch =
      StreamKey(StreamKey(seed, kImageStream), static_cast<std::uint64_t>(epoch));
  return StreamKey(of_epoch, static_cast<std::uint64_t>(index));
}

// Keeps the ranks that wait for this one informed.
Status Tick(NodeShare* share) { return share == nullptr ? Status::Ok() : share->Tick(); }

// "3 folders: cat, dog, fox".
std::string FoldersText(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string text = Counted(names.size(), "folder");
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += StrCat(i == 0 ? ": " : ", ", Printable(names[i]));
  }
  return names.size() > kShown ? text + ", ..." : text;
}

// Files by the text for the '*', or one.
Result<std::map<std::string, std::string>> FindFiles(const std::string& path,
                                                     const OpenContext& opening) {
  if (NamesFiles(path, opening.folder)) return MatchFiles(path, opening.folder);
  GACCD_ASSIGN_OR_RETURN(std::string found, opening.Locate(path));
  return std::map<std::string, std::string>{{"", std::move(found)}};
}

// Appends the images of an array and their labels.
Status AddArray(const std::string& images_path, const std::string& labels_path,
                std::int64_t classes, NodeShare* share, ImageShards* files) {
  GACCD_ASSIGN_OR_RETURN(ImageArray images, LoadImageArray(images_path, share));
  GACCD_ASSIGN_OR_RETURN(const auto labels, LoadImageLabels(labels_path, images, share));
  const auto array = static_cast<std::int32_t>(files->arrays.size());
  for (std::int64_t i = 0; i < images.samples(); ++i) {
    std::int64_t label = labels[static_cast<std::size_t>(i)];
    if (label < 0 || label >= classes) {
      files->damaged.push_back(
          {std::ssize(files->images),
           {ErrorKind::kData, StrCat(labels_path, ": expected labels in [0, ", classes, "), found ",
                                     label, " (sample ", i, ")")}});
      label = 0;
    }
    files->images.push_back(
        {.path = "", .label = static_cast<std::int32_t>(label), .shard = array, .offset = i});
  }
  files->arrays.push_back(std::move(images));
  return Tick(share);
}

Result<ImageShards> OpenArrays(const ImagesSpec& source, const OpenContext& opening) {
  GACCD_ASSIGN_OR_RETURN(const auto images, FindFiles(source.path, opening));
  GACCD_ASSIGN_OR_RETURN(const auto labels, FindFiles(*source.labels, opening));
  ImageShards files;
  for (const auto& [text, path] : images) {
    const auto found = labels.find(text);
    if (found == labels.end() || labels.size() != images.size()) {
      return Status(ErrorKind::kData,
                    StrCat("'", *source.labels, "': expected a file for each of the ",
                           images.size(), " of '", source.path, "', found ", labels.size(),
                           found == labels.end() ? StrCat(", none for '", path, "'") : ""));
    }
    GACCD_RETURN_IF_ERROR(AddArray(path, found->second, source.classes, opening.share, &files));
  }
  return files;
}

Result<ImageShards> FindImageFiles(const ImagesSpec& source, const OpenContext& opening) {
  const auto tick = [&opening] { return Tick(opening.share); };
  if (source.labels) return OpenArrays(source, opening);
  if (NamesFiles(source.path, opening.folder)) {
    GACCD_ASSIGN_OR_RETURN(const auto files, MatchFiles(source.path, opening.folder));
    std::vector<std::string> paths;
    for (const auto& [text, path] : files) paths.push_back(path);
    return OpenShards(paths, source.classes, tick);
  }
  GACCD_ASSIGN_OR_RETURN(const std::string path, opening.Locate(source.path));
  if (IsShards(path)) return OpenShards({path}, source.classes, tick);
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> classes, ListClassFolders(path));
  if (std::ssize(classes) != source.classes) {
    return Status(ErrorKind::kData,
                  StrCat(path, ": expected a folder of images for each class, ", source.classes,
                         " (images.classes), found ", FoldersText(classes),
                         classes.empty() ? " (tar files are given as 'FOLDER/*.tar')" : "",
                         "; data.train and data.eval must have as many folders as images.classes "
                         "and as the model has classes"));
  }
  ImageShards files;
  GACCD_ASSIGN_OR_RETURN(files.images, ListImages(path, classes, tick));
  return files;
}

// Adds to `sum` by how much the memory of this process grows while this object exists.
class RetainedBytes {
 public:
  explicit RetainedBytes(std::int64_t& sum) : sum_(sum), before_(Resident()) {}
  ~RetainedBytes() { sum_ += std::max<std::int64_t>(Resident() - before_, 0); }
  RetainedBytes(const RetainedBytes&) = delete;
  RetainedBytes& operator=(const RetainedBytes&) = delete;

 private:
  static std::int64_t Resident() {
    const Result<std::int64_t> bytes = ResidentBytes();
    return bytes.ok() ? *bytes : 0;
  }

  std::int64_t& sum_;
  std::int64_t before_;
};

}  // namespace

struct ImageDataset::Failure {
  std::atomic<bool> any{false};
  std::mutex mutex;
  Status first;
};

ImageDataset::ImageDataset(ImageShards files, const ImagesSpec& source, ImageTransform transform,
                           std::unique_ptr<RowThreads> threads)
    : files_(std::move(files)),
      transform_(std::move(transform)),
      spec_(LabelledSample({transform_.channels(), transform_.height(), transform_.width()},
                           source.classes)),
      threads_(std::move(threads)),
      failure_(std::make_unique<Failure>()) {}

ImageDataset::~ImageDataset() = default;

std::int64_t ImageDataset::size() const { return std::ssize(files_.images); }

std::string ImageDataset::ImageName(std::int64_t index) const {
  const ImageFile& image = file(index);
  if (image.shard < 0) return image.path;
  if (in_arrays()) {
    return StrCat(files_.arrays[static_cast<std::size_t>(image.shard)].array.name, ": image ",
                  image.offset);
  }
  return StrCat(files_.shards[static_cast<std::size_t>(image.shard)].path, ": ", image.path);
}

Status ImageDataset::CheckUnchanged() const {
  for (const Shard& shard : files_.shards) GACCD_RETURN_IF_ERROR(shard.file->CheckUnchanged());
  for (const ImageArray& images : files_.arrays) {
    if (images.array.file) GACCD_RETURN_IF_ERROR(images.array.file->CheckUnchanged());
  }
  return ReadError();
}

Status ImageDataset::CheckArrays() const {
  for (std::int64_t i = 0; i < size() && in_arrays(); ++i) {
    if (file(i).offset == 0) GACCD_RETURN_IF_ERROR(Read(i, 0, 0, nullptr).status());
  }
  return Status::Ok();
}

Result<ImageParameters> ImageDataset::Read(std::int64_t index, std::uint64_t seed,
                                           std::int64_t epoch, float* features) const {
  try {
    return Decode(index, seed, epoch, features);
  } catch (const std::bad_alloc&) {  // in a thread, it would end the process
    return NoMemory(StrCat("the pixels of ", ImageName(index)), 0);
  }
}

Result<ImagePart> ImageDataset::ReadPart(std::int64_t index, const NeededPart& needed) const {
  const ImageFile& from = file(index);
  if (in_arrays()) {
    const ImageArray& images = files_.arrays[static_cast<std::size_t>(from.shard)];
    Result<ImagePart> part = CopyImagePart(images, from.offset, transform_.channels(), needed);
    if (!part.ok()) return part.status().WithContext(ImageName(index));
    return part;
  }
  std::shared_ptr<const MappedFile> own;
  std::span<const std::byte> bytes;
  if (from.shard < 0) {
    GACCD_ASSIGN_OR_RETURN(own, MappedFile::Open(from.path));
    bytes = own->bytes();
  } else {
    bytes = files_.shards[static_cast<std::size_t>(from.shard)].file->bytes().subspan(
        static_cast<std::size_t>(from.offset), static_cast<std::size_t>(from.bytes));
  }
  return DecodeImagePart(ImageName(index), bytes, transform_.channels(), needed, !checked_);
}

Result<ImageParameters> ImageDataset::Decode(std::int64_t index, std::uint64_t seed,
                                             std::int64_t epoch, float* features) const {
  ImageParameters drawn;
  std::int64_t pixels = 0;
  const NeededPart draw = [&](std::int64_t height, std::int64_t width) -> Result<Box> {
    pixels = height * width;
    GACCD_ASSIGN_OR_RETURN(drawn, transform_.Draw(height, width, SampleKey(seed, epoch, index)));
    return drawn.from;
  };
  GACCD_ASSIGN_OR_RETURN(const ImagePart part, ReadPart(index, draw));
  // Other epochs may take all of a JPEG image.
  const std::int64_t needed = pixels * part.image.channels + part.held_bytes;
  std::int64_t largest = largest_bytes_;
  while (needed > largest && !largest_bytes_.compare_exchange_weak(largest, needed)) {
  }
  if (features == nullptr) return drawn;
  ImageParameters of_part = drawn;
  of_part.from = part.part;
  transform_.Apply(part.image, of_part, features);
  return drawn;
}

void ImageDataset::Gather(std::span<const std::int64_t> indices, const BatchView& out) const {
  const auto row = static_cast<std::size_t>(spec_.tensors[0].elements());
  threads_->ForEach(indices.size(), [&](std::size_t i) {
    float* features = out.tensor<float>(0) + i * row;
    out.tensor<std::int32_t>(1)[i] = file(indices[i]).label;
    const auto read = Read(indices[i], out.run.seed, out.run.RowEpoch(i), features);
    if (read.ok()) return;
    std::fill_n(features, row, std::numeric_limits<float>::quiet_NaN());
    const std::lock_guard lock(failure_->mutex);
    if (!failure_->any) failure_->first = read.status();
    failure_->any = true;
  });
}

std::int64_t ImageDataset::gather_bytes(std::int64_t /*samples*/) const {
  return std::max<std::int64_t>(threads_->count() * largest_bytes_ - retained_bytes_, 0);
}

void ImageDataset::SetLargestBytes(std::int64_t bytes) {
  largest_bytes_ = bytes;
  if (bytes > 0) return;
  const RetainedBytes retained(retained_bytes_);
  const std::int64_t some = std::min(kSomeImages, size());
  // Damaged ones are found when they are used.
  threads_->ForEach(static_cast<std::size_t>(some), [&](std::size_t i) {
    (void)Read(static_cast<std::int64_t>(i) * size() / some, 0, 0, nullptr);
  });
}

Status ImageDataset::ReadError() const {
  if (!failure_->any) return Status::Ok();
  const std::lock_guard lock(failure_->mutex);
  return failure_->first;
}

Status ImageDataset::CheckAll(const std::function<Status(std::int64_t, Status)>& bad,
                              const std::function<Status()>& tick) const {
  const RetainedBytes retained(retained_bytes_);
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

Result<std::unique_ptr<ImageDataset>> OpenImages(const ImagesSpec& source,
                                                 const OpenContext& opening) {
  GACCD_ASSIGN_OR_RETURN(ImageTransform transform, ImageTransform::Make(source, opening.normalize));
  GACCD_ASSIGN_OR_RETURN(ImageShards files, FindImageFiles(source, opening));
  GACCD_ASSIGN_OR_RETURN(auto threads, RowThreads::Start(source.threads));
  return std::make_unique<ImageDataset>(std::move(files), source, std::move(transform),
                                        std::move(threads));
}

OpenedDataset OpenSource(const ImagesSpec& source, const OpenContext& opening) {
  GACCD_ASSIGN_OR_RETURN(auto images, OpenImages(source, opening));
  BadRecords bad(opening.rules);
  for (const DamagedLabel& label : images->damaged_labels()) {
    GACCD_RETURN_IF_ERROR(bad.Add(label.sample, label.why));
  }
  if (images->in_arrays()) {
    GACCD_RETURN_IF_ERROR(images->CheckArrays());
    return std::move(bad).Skip(std::move(images));
  }
  NodeShare* share = opening.share;
  const auto* center = std::get_if<CenterCropSpec>(&source.crop);
  const std::string known = StrCat(
      "images ", images->transform().height(), " ", images->transform().width(), " ",
      center == nullptr ? -1 : center->resize, " ", images->size(), " ", images->ImageName(0));
  if (!source.decode_all || (share != nullptr && share->IsChecked(known))) {
    images->SetLargestBytes(share == nullptr ? 0 : share->Found(known));
  } else {
    bool good = true;
    const auto add = [&](std::int64_t sample, Status damage) {
      good = false;
      return damage.kind() == ErrorKind::kData ? bad.Add(sample, std::move(damage)) : damage;
    };
    GACCD_RETURN_IF_ERROR(images->CheckAll(add, [share] { return Tick(share); }));
    if (good && share != nullptr) share->MarkChecked(known, images->largest_bytes());
  }
  if (source.decode_all) images->SetFilesChecked();
  return std::move(bad).Skip(std::move(images));
}

}  // namespace gaccd
