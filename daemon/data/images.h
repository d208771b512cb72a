// A data set of image files, alone or in tar files. Unlike the others it decodes when samples are
// gathered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/data/dataset.h"
#include "daemon/data/image_shards.h"
#include "daemon/data/image_transform.h"

namespace gaccd {

class RowThreads;
struct Opening;

class ImageDataset final : public Dataset {
 public:
  // REQUIRES: a checked source; the images are not empty.
  ImageDataset(ImageShards files, const ImagesSpec& source, ImageTransform transform,
               std::unique_ptr<RowThreads> threads);
  ~ImageDataset() override;

  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  // Image files of their own are not looked at.
  [[nodiscard]] Status CheckUnchanged() const override;
  [[nodiscard]] Status ReadError() const override;
  // The features of an image that cannot be read are NaN, so that nobody trains on them.
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override;

  // What Gather() does with sample `index` in that epoch; writes its features, unless null. kData
  // and kIo, with the file, when it cannot be read. Thread-safe.
  Result<ImageParameters> Read(std::int64_t index, std::uint64_t seed, std::int64_t epoch,
                               float* features) const;
  [[nodiscard]] const ImageTransform& transform() const { return transform_; }
  [[nodiscard]] std::int32_t label(std::int64_t index) const { return file(index).label; }
  // The path of the image; of one in a tar file "shard.tar: 17.jpg".
  [[nodiscard]] std::string NameOf(std::int64_t index) const;
  // Of tar files: images whose labels are no classes.
  [[nodiscard]] std::span<const DamagedLabel> damaged_labels() const { return files_.damaged; }

  // All files were read to their ends, here or by another rank of the node: from now on Gather()
  // and Read() look at what they need alone. To be called before the set is shared.
  void FilesAreChecked() { checked_ = true; }

  // Reads all, and hands bad(index, why) those that cannot be read, in their order, until it
  // returns an error. `tick` is called every now and then.
  Status CheckAll(const std::function<Status(std::int64_t, Status)>& bad,
                  const std::function<Status()>& tick) const;

 private:
  [[nodiscard]] const ImageFile& file(std::int64_t index) const {
    return files_.images[static_cast<std::size_t>(index)];
  }

  ImageShards files_;  // of files of their own: images alone
  ImageTransform transform_;
  SampleSpec spec_;
  std::unique_ptr<RowThreads> threads_;
  bool checked_ = false;
  struct Failure;
  std::unique_ptr<Failure> failure_;  // the first of Gather()
};

// Lists the files of a source, without a look at any, or indexes its tar files. Errors: kConfig for
// the normalisation; those of ListImages() and OpenShards(); kData for another number of classes.
Result<std::unique_ptr<ImageDataset>> OpenImages(const ImagesSpec& source, const Opening& opening);

}  // namespace gaccd
