// MatmulChoices: which of cuBLASLt's algorithms was the fastest for a product, in memory and from
// run to run in a small text file.
//
// A choice is good for one GPU type, cuBLASLt and driver: all that is in MatmulChoicesKey, which
// is at the top of the file and is part of its name. The file is never trusted: its size, every
// number and a checksum of every line are checked; if anything is wrong it is left unread with a
// note. Many processes may share it: it is replaced as a whole, by rename.
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
  double microseconds = 0;  // of one product; 0: it was not timed
  // Of a product with an epilogue: of what the epilogue replaces, the product without it and a
  // kernel; 0: not timed.
  double separate_microseconds = 0;
};

// The text of the file, and its check. kData, with the line, when it is not whole or not for `key`.
std::string ToText(const MatmulChoicesKey& key, const std::vector<MatmulChoice>& choices);
Result<std::vector<MatmulChoice>> ParseMatmulChoices(std::string_view text,
                                                     const MatmulChoicesKey& key);

// Used by one thread.
class MatmulChoices {
 public:
  // `folder` empty: nothing is read or written. A file that cannot be used is a note, no error.
  MatmulChoices(std::string folder, const MatmulChoicesKey& key);
  // Writes what Save() was not called for.
  ~MatmulChoices();
  MatmulChoices(const MatmulChoices&) = delete;
  MatmulChoices& operator=(const MatmulChoices&) = delete;

  // The choice made by this process: it has run on this GPU.
  [[nodiscard]] const MatmulChoice* Find(const MatmulCudaSpec& spec) const;
  // The choice from the file: to be tried before it is used.
  [[nodiscard]] const MatmulChoice* FindKept(const MatmulCudaSpec& spec) const;
  // From now on Find() gives it. A newly timed one goes to the file with the next Save().
  enum class Source : std::uint8_t { kTimed, kKept, kUntimed };
  void Add(const MatmulChoice& choice, Source source);
  // Of a choice that Find() gives; goes to the file with the next Save().
  void SetSeparate(const MatmulCudaSpec& spec, double microseconds);

  // Adds this process's choices to the file. Call it when all products are prepared, not after each
  // one. It is a note, no error, when the file cannot be written: the choices only save time.
  void Save();

  // What people should know, each line once: an unreadable file, a choice that was refused, ...
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  [[nodiscard]] std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }
  // And what they must know: an algorithm that computes something else, one that was not tried.
  // Each text once.
  void AddWarning(std::string warning);
  [[nodiscard]] std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }

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
