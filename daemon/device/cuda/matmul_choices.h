// MatmulChoices: the fastest cuBLASLt algorithm of each product, in memory and between runs in a
// small text file.
//
// A choice is valid for one GPU type, cuBLASLt and driver: the fields of MatmulChoicesKey, which is
// stored in the file and is part of its name. The file is not trusted: its size, every number and a
// checksum of every line are checked; if anything is wrong the file is ignored with a note.
// Processes may share it: it is replaced atomically by rename.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cuda/matmul_spec.h"

namespace gaccd {

struct MatmulChoicesKey {
  std::string gpu_name;
  int compute_capability = 0;  // 90 = sm_90
  int multiprocessors = 0;
  std::size_t cublaslt_version = 0;
  int driver_version = 0;
  bool tf32 = false;
};

struct MatmulChoice {
  MatmulCudaSpec spec;
  cublasLtMatmulAlgo_t algorithm{};
  double microseconds = 0;  // of one product; 0: not timed
  // For a product with an epilogue: time of the product without it and a separate kernel; 0: not
  // timed.
  double separate_microseconds = 0;
};

// Writes and parses the file. kData, with the line, if it is incomplete or not for `key`.
std::string ToText(const MatmulChoicesKey& key, const std::vector<MatmulChoice>& choices);
Result<std::vector<MatmulChoice>> ParseMatmulChoices(std::string_view text,
                                                     const MatmulChoicesKey& key);

// Used by one thread.
class MatmulChoices {
 public:
  // folder empty: nothing is read or written. A file that cannot be used is a note, not an error.
  MatmulChoices(std::string folder, const MatmulChoicesKey& key);
  // Saves choices that Save() has not saved.
  ~MatmulChoices();
  MatmulChoices(const MatmulChoices&) = delete;
  MatmulChoices& operator=(const MatmulChoices&) = delete;

  // The choice made by this process, which has run on this GPU.
  [[nodiscard]] const MatmulChoice* Find(const MatmulCudaSpec& spec) const;
  // The choice from the file, to be tested before use.
  [[nodiscard]] const MatmulChoice* FindKept(const MatmulCudaSpec& spec) const;
  // Makes it available to Find(). A newly timed one is written by the next Save().
  enum class Source : std::uint8_t { kTimed, kKept, kUntimed };
  void Add(const MatmulChoice& choice, Source source);
  // For a choice that Find() returns; written by the next Save().
  void SetSeparate(const MatmulCudaSpec& spec, double microseconds);

  // Adds this process's choices to the file. Call it once after all products are prepared. A
  // failure to write is a note, not an error: the choices only save time.
  void Save();

  // Messages for users, each line once: an unreadable file, a rejected choice, ...
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  [[nodiscard]] std::vector<std::string> DrainNotes() { return std::exchange(notes_, {}); }
  // Warnings for users, each once: an algorithm with wrong results, one that was not tested.
  void AddWarning(std::string warning);
  [[nodiscard]] std::vector<std::string> DrainWarnings() { return std::exchange(warnings_, {}); }

  [[nodiscard]] const std::string& path() const { return path_; }  // empty without a folder
  [[nodiscard]] std::int64_t timed() const { return timed_; }      // products timed by this process

 private:
  std::vector<MatmulChoice> ReadFile();
  Status WriteFile();

  MatmulChoicesKey key_;
  std::string folder_;
  std::string path_;
  std::vector<MatmulChoice> kept_;
  std::vector<MatmulChoice> made_;
  std::int64_t timed_ = 0;
  bool unsaved_ = false;
  std::vector<std::string> notes_;
  std::vector<std::string> warnings_;
};

}  // namespace gaccd
