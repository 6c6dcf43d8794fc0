#include <gtest/gtest.h>

#include "agent/stacks/stack_sources.h"

namespace muster {
namespace {

TEST(PythonStacks, AreParsedFromPySpy) {
  const auto stacks = stacks_of_py_spy(R"([
    {"pid": 7, "thread_id": 140037, "thread_name": "MainThread", "os_thread_id": 7, "active": true,
     "frames": [{"name": "load", "filename": "/a/train.py", "module": null, "line": 88, "locals": null},
                {"name": "<module>", "filename": "/a/train.py", "line": 140}]},
    {"thread_id": 1, "thread_name": null, "os_thread_id": null, "frames": []}, 3])");
  ASSERT_TRUE(stacks);
  EXPECT_EQ(*stacks,
            (std::vector<ThreadStack>{
                {7, "MainThread", {{"load", "/a/train.py", 88}, {"<module>", "/a/train.py", 140}}},
                {0, "", {}}}));
  for (const char* const wrong : {"", "Error: Permission denied", "{}", "[", "null"})
    EXPECT_FALSE(stacks_of_py_spy(wrong)) << wrong;
}

TEST(PythonStacks, AreParsedFromFaulthandler) {
  const std::vector<ThreadStack> stacks = stacks_of_faulthandler(
      "Thread 0x00007f1c3d7fa6c0 [loader] (most recent call first):\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
      "  <no Python frame>\n"
      "\n"
      "Current thread 0x00007f1c5ba1b040 (most recent call first):\n"
      "  File \"/a/\", line 9 in b\", line 3 in <module>\n"
      "  File \"cut",
      7);
  EXPECT_EQ(stacks,
            (std::vector<ThreadStack>{{0, "", {{"wait", "/usr/lib/python3.11/threading.py", 324}}},
                                      {7, "", {{"<module>", "/a/\", line 9 in b", 3}}}}));
  EXPECT_EQ(stacks_of_faulthandler("Stack (most recent call first):\n"
                                   "  File \"a.py\", line 1 in f\n",
                                   7),
            (std::vector<ThreadStack>{{7, "", {{"f", "a.py", 1}}}}));
  EXPECT_TRUE(stacks_of_faulthandler("Segmentation fault\n  File \"a\", line 1 in f\n", 7).empty());
}

}  // namespace
}  // namespace muster
