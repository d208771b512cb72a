// A data set of image files. Unlike the others it reads and decodes when samples are gathered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/data/dataset.h"
#include "daemon/data/image_transform.h"

namespace gaccd {

class RowThreads;
struct ImageFile;
struct Opening;

class ImageDataset final : public Dataset {
 public:
  // REQUIRES: a checked source; `files` are not empty.
  ImageDataset(std::vector<ImageFile> files, const ImagesSpec& source, ImageTransform transform,
               std::unique_ptr<RowThreads> threads);
  ~ImageDataset() override;

  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] Status CheckUnchanged() const override { return ReadError(); }
  [[nodiscard]] Status ReadError() const override;
  // The features of an image that cannot be read are NaN, so that nobody trains on them.
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override;

  // What Gather() does with sample `index` in that epoch; writes its features, unless null. kData
  // and kIo, with the file, when it cannot be read. Thread-safe.
  Result<ImageParameters> Read(std::int64_t index, std::uint64_t seed, std::int64_t epoch,
                               float* features) const;
  [[nodiscard]] const ImageTransform& transform() const { return transform_; }
  [[nodiscard]] const ImageFile& file(std::int64_t index) const;

  // Reads all, and hands bad(index, why) those that cannot be read, in their order, until it
  // returns an error. `tick` is called every now and then.
  Status CheckAll(const std::function<Status(std::int64_t, Status)>& bad,
                  const std::function<Status()>& tick) const;

 private:
  std::vector<ImageFile> files_;
  ImageTransform transform_;
  SampleSpec spec_;
  std::unique_ptr<RowThreads> threads_;
  struct Failure;
  std::unique_ptr<Failure> failure_;  // the first of Gather()
};

// Lists the files of a source, without a look at any. Errors: kConfig for the normalisation; those
// of ListImages(); kData for another number of classes.
Result<std::unique_ptr<ImageDataset>> OpenImages(const ImagesSpec& source, const Opening& opening);

}  // namespace gaccd
