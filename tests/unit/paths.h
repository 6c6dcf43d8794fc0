// Paths of the build and source files that unit tests read. Only paths.cc is compiled with folder
// names, so that a compiler cache also hits for a clone in another folder.
#pragma once

namespace muster::paths {

extern const char* const kDeviceQuery;     // the program tests/fakes/device_query.cc
extern const char* const kFakeNvmlFolder;  // holds libnvidia-ml.so.1 of tests/fakes/fake_nvml.cc
extern const char* const kSchema;          // agent/report/schema.md
extern const char* const kLastWords;       // folder of samples
extern const char* const kFirstCause;      // folder of samples
extern const char* const kFuzzCorpus;      // folder of the fuzz targets' seeds

}  // namespace muster::paths
