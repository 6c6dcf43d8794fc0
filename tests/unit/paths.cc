#include "tests/unit/paths.h"

namespace muster::paths {

const char* const kDeviceQuery = MUSTER_DEVICE_QUERY;
const char* const kFakeNvmlFolder = MUSTER_FAKE_NVML_DIR;
const char* const kSchema = MUSTER_TESTS "/../agent/report/schema.md";
const char* const kLastWords = MUSTER_TESTS "/fixtures/last_words";
const char* const kFirstCause = MUSTER_TESTS "/fixtures/first_cause";
const char* const kFuzzCorpus = MUSTER_TESTS "/fuzz/corpus";

}  // namespace muster::paths
