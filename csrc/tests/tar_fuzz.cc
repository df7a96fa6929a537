// Any bytes, as an archive that lies at hand whole and as one that comes in pieces: the same samples or the same error.
// cmake -DFASTSHARD_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++, then tar_fuzz -max_total_time=60 FOLDER_OF_TARS
#include "tests/tar_in_memory.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* bytes, std::size_t n) {
  fastshard::check_any_bytes(bytes, n);
  // Mutated headers would all end at their checksums.
  const std::string right = fastshard::with_right_checksums({bytes, bytes + n});
  fastshard::check_any_bytes(reinterpret_cast<const unsigned char*>(right.data()), n);
  return 0;
}
