// Where files of the build and of the sources are that unit tests read. Only paths.cc is compiled
// with folders, so that a compiler's cache finds the tests in another clone.
#pragma once

namespace muster::paths {

extern const char* const kDeviceQuery;     // the program tests/fakes/device_query.cc
extern const char* const kFakeNvmlFolder;  // holds libnvidia-ml.so.1 of tests/fakes/fake_nvml.cc
extern const char* const kSchema;          // agent/report/schema.md
extern const char* const kLastWords;       // folder of samples
extern const char* const kFirstCause;      // folder of samples
extern const char* const kFuzzCorpus;      // folder of the fuzz targets' seeds

}  // namespace muster::paths
