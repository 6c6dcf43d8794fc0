// Whether a sanitizer watches the test. It looks at how something is computed, for which fewer
// seeds, sizes and shapes will do than for what comes out: that is for the release build.
#pragma once

namespace muster {

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) != 0 || __has_feature(thread_sanitizer) != 0;

}  // namespace muster
