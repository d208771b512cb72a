// A data set of images, as files, in tar files or in arrays. Unlike other data sets it reads and
// decodes in Gather().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/data/dataset.h"
#include "daemon/data/images/image_files.h"
#include "daemon/data/images/image_transform.h"

namespace gaccd {

class RowThreads;
struct OpenContext;

class ImageDataset final : public Dataset {
 public:
  // REQUIRES: a checked source and at least one image.
  ImageDataset(ImageShards files, const ImagesSpec& source, ImageTransform transform,
               std::unique_ptr<RowThreads> threads);
  ~ImageDataset() override;

  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  // Checks tar files and arrays only, and returns ReadError().
  [[nodiscard]] Status CheckUnchanged() const override;
  [[nodiscard]] Status ReadError() const override;
  // If an image cannot be read, its features are NaN, so that they are not trained on.
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override;

  // For each thread the memory of the largest image read, minus what the allocator already holds.
  [[nodiscard]] std::int64_t gather_bytes(std::int64_t samples) const override;

  // Decodes and transforms sample `index` as Gather() in that epoch; writes its features unless
  // null. kData and kIo, with the file, if it cannot be read; kConfig without memory. Thread-safe.
  Result<ImageParameters> Read(std::int64_t index, std::uint64_t seed, std::int64_t epoch,
                               float* features) const;
  [[nodiscard]] const ImageTransform& transform() const { return transform_; }
  [[nodiscard]] std::int32_t label(std::int64_t index) const { return file(index).label; }
  // The path of the image; in a tar file "shard.tar: 17.jpg", in an array "images.npy: image 17".
  [[nodiscard]] std::string ImageName(std::int64_t index) const;
  // For tar files and arrays: images with invalid labels.
  [[nodiscard]] std::span<const DamagedLabel> damaged_labels() const { return files_.damaged; }

  // Declares that all files were read completely, by this or another rank of the node: Gather() and
  // Read() then only decode what they need. REQUIRES: no other thread uses the set.
  void SetFilesChecked() { checked_ = true; }
  // largest_bytes() of a rank that read all images; 0: not known, reads some to find out.
  void SetLargestBytes(std::int64_t bytes);
  // The error if no image of an array can be transformed. OK for other sources.
  [[nodiscard]] Status CheckArrays() const;
  [[nodiscard]] bool in_arrays() const { return !files_.arrays.empty(); }
  // Memory in which the largest image that was read is decoded.
  [[nodiscard]] std::int64_t largest_bytes() const { return largest_bytes_; }

  // Reads all images and calls bad(index, why) for each that cannot be read, in order; stops at an
  // error of `bad` or of `tick`, which is called regularly.
  Status CheckAll(const std::function<Status(std::int64_t, Status)>& bad,
                  const std::function<Status()>& tick) const;

 private:
  // The image of a sample, or a part of it.
  [[nodiscard]] Result<ImagePart> ReadPart(std::int64_t index, const NeededPart& needed) const;
  // Read(); throws std::bad_alloc without memory.
  Result<ImageParameters> Decode(std::int64_t index, std::uint64_t seed, std::int64_t epoch,
                                 float* features) const;
  [[nodiscard]] const ImageFile& file(std::int64_t index) const {
    return files_.images[static_cast<std::size_t>(index)];
  }

  ImageShards files_;  // for plain files only images
  ImageTransform transform_;
  SampleSpec spec_;
  std::unique_ptr<RowThreads> threads_;
  bool checked_ = false;
  mutable std::atomic<std::int64_t> largest_bytes_{0};
  mutable std::int64_t retained_bytes_ = 0;  // by the allocator, after images were read
  struct Failure;
  std::unique_ptr<Failure> failure_;  // the first error of Gather()
};

// Lists the files of a source, without opening them, or indexes its tar files, or maps its arrays.
// Errors: kConfig for the normalisation; those of ListImages(), OpenShards(), LoadImageArray() and
// LoadImageLabels(); kData if the number of folders is not source.classes, and for other numbers of
// files of images and of labels.
Result<std::unique_ptr<ImageDataset>> OpenImages(const ImagesSpec& source,
                                                 const OpenContext& opening);

}  // namespace gaccd
