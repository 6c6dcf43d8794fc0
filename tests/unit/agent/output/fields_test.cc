#include "agent/output/fields.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const std::vector<Field> kFields{{"host", "node-3"}, {"job", "{host}"}};

std::string filled(std::string_view text) {
  return fill_fields(text, kFields).value();
}

std::string refused(std::string_view text) {
  return fill_fields(text, kFields).error();
}

TEST(Fields, AreFilledInOnce) {
  EXPECT_EQ(filled(""), "");
  EXPECT_EQ(filled("logs"), "logs");
  EXPECT_EQ(filled("a/{host}/{host}-{job}.b"), "a/node-3/node-3-{host}.b");
}

TEST(Fields, TwoBracesAreOne) {
  EXPECT_EQ(filled("{{host}}"), "{host}");
  EXPECT_EQ(filled("{{{host}}}"), "{node-3}");
  EXPECT_EQ(filled("{{}}}}{{"), "{}}{");
  EXPECT_EQ(filled("a}b}"), "a}b}") << "a brace that ends no field";
}

TEST(Fields, TheFirstUnknownOrUnclosedFieldIsNamed) {
  EXPECT_EQ(refused("{host}{hots}{x}"), "hots");
  EXPECT_EQ(refused("{}"), "");
  EXPECT_EQ(refused("{"), "");
  EXPECT_EQ(refused("{{{host"), "host");
  EXPECT_EQ(refused("{host {job}"), "host {job");
  EXPECT_EQ(names_of_fields(kFields), "{host}, {job}");
}

std::string log_dir(std::string_view text, const LaunchSpec& spec) {
  return fill_fields(text, log_dir_fields(spec, "run/7", "node-3")).value();
}

TEST(Fields, ComeFromTheEngineOrTheLaunchInTheLogFolder) {
  LaunchSpec spec;
  EXPECT_EQ(log_dir("{host} {job} {start} {node_rank}", spec), "node-3 run_7 0 0");
  spec.engine.job = "4711/2";
  spec.engine.starts = 3;
  spec.rendezvous.nnodes_max = 4;
  EXPECT_EQ(log_dir("{job} {start} {node_rank}", spec), "4711_2 3 ");
  spec.rendezvous.node_rank = 2;
  EXPECT_EQ(log_dir("{node_rank}", spec), "2");
}

TEST(Fields, ANodeThatMayBecomeASpareDoesNotKnowItsRank) {
  LaunchSpec spec;
  spec.rendezvous.spares = 1;
  EXPECT_EQ(log_dir("{node_rank}", spec), "");
}

}  // namespace
}  // namespace muster
