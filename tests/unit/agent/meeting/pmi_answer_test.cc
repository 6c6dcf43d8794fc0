#include "agent/meeting/pmi_answer.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/base/hex.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// Gathers the record from the values that rank 0 has published.
Result<std::string> gathered_pmi(const std::map<std::string, std::string>& published) {
  return gather_pmi_record([&](const std::string& key) -> Result<std::string> {
    const auto found = published.find(key);
    if (found != published.end()) return found->second;
    return fail(ExitCode::rendezvous, "no " + key);
  });
}

Result<std::string> gathered_pmi_values(const std::vector<std::string>& values) {
  std::map<std::string, std::string> published;
  for (size_t i = 0; i < values.size(); ++i)
    published[pmi_key(i)] = values[i];
  return gathered_pmi(published);
}

TEST(PmiRecord, HoldsUtf8TextOfOneTo1000Bytes) {
  EXPECT_EQ(pmi_record("10.0.0.1,fd00::1 = ;\n\xC3\xA9", 0xab),
            "00000000000000ab10.0.0.1,fd00::1 = ;\n\xC3\xA9");
  EXPECT_TRUE(pmi_record(std::string(1000, 'x'), 0));
  for (const std::string& text : {std::string(), std::string(1001, 'x'), std::string("\xff")}) {
    EXPECT_EQ(pmi_record(text, 0).error().message,
              "the text for PMI is empty, longer than 1000 bytes or not UTF-8");
  }
}

TEST(PmiValues, AreHexDigitsInPieces) {
  EXPECT_EQ(pmi_values("abc", 100), (std::vector<std::string>{"616263."}));
  EXPECT_EQ(pmi_values("abc", 5), (std::vector<std::string>{"6162+", "63."}));
  EXPECT_EQ(pmi_values("abcd", 6), (std::vector<std::string>{"6162+", "6364."}));
  EXPECT_EQ(pmi_key(12), "muster-12");
}

RC_GTEST_PROP(PmiValues, AreJoinedToTheOriginalRecord, ()) {
  const std::string record = *rc::gen::nonEmpty(rc::gen::arbitrary<std::string>());
  const auto bytes_max = *rc::gen::inRange<size_t>(3, 200);
  const std::vector<std::string> values = pmi_values(record, bytes_max);
  for (const std::string& value : values)
    RC_ASSERT(value.size() <= bytes_max);
  RC_ASSERT(gathered_pmi_values(values) == record);
}

TEST(GatherPmiRecord, RefusesMalformedValues) {
  for (const char* value : {"", ".", "+", "61", "6.", "6G.", "61 .", "61.+", "6A."}) {
    const auto record = gathered_pmi_values({value});
    ASSERT_FALSE(record) << value;
    EXPECT_THAT(record.error().message, HasSubstr("is no address of a muster"));
  }
  EXPECT_EQ(gathered_pmi_values({"61+"}).error().message, "no muster-1");
}

TEST(GatherPmiRecord, StopsAtTheLimitIfTheValuesHaveNoEnd) {
  int asked = 0;
  const auto record = gather_pmi_record([&](const std::string&) -> Result<std::string> {
    ++asked;
    return "61+";
  });
  EXPECT_FALSE(record);
  EXPECT_EQ(asked, 1017);
  EXPECT_FALSE(gathered_pmi_values({std::string(4000, '6') + "."}));
}

TEST(PmiAnswerTest, HasARankOfTheLaunch) {
  const std::string record = pmi_record("h", 1).value();
  EXPECT_EQ(pmi_answer({"kvs_1", 0, 1}, record), (PmiAnswer{"h", "kvs_1-0000000000000001", 0, 1}));
  const PmiPlace wrong[] = {{"kvs", 1, 1}, {"kvs", -1, 1}, {"kvs", 0, 0}, {"kvs", 0, 1 << 25}};
  for (const PmiPlace& place : wrong)
    EXPECT_THAT(pmi_answer(place, record).error().message, HasSubstr("PMI says that this process"));
  for (const std::string& name : {std::string(), std::string("a b"), std::string(256, 'k')})
    EXPECT_THAT(pmi_answer({name, 0, 1}, record).error().message, HasSubstr("PMI's name for"));
}

TEST(PmiAnswerTest, NeedsTheRecordOfAMuster) {
  for (const std::string& record :
       {std::string(), std::string(16, '0'), std::string(15, '0') + "x", std::string(17, 'x'),
        std::string(16, '0') + "\xff", std::string(16 + 1001, '0')}) {
    EXPECT_THAT(pmi_answer({"kvs", 0, 1}, record).error().message,
                HasSubstr("is no address of a muster"))
        << record;
  }
}

TEST(PmiLine, CarriesAnAnswerOrAnError) {
  const PmiAnswer answer{"10.0.0.1,fd00::1 \"\n", "kvs-1", 1, 3};
  EXPECT_EQ(encode_pmi(answer),
            "{\"host\":\"10.0.0.1,fd00::1 \\\"\\n\",\"job\":\"kvs-1\",\"rank\":1,\"size\":3}\n");
  EXPECT_EQ(decode_pmi("noise of a library\n" + encode_pmi(answer)), answer);
  const Error error{ExitCode::rendezvous, "no way"};
  EXPECT_EQ(encode_pmi(tl::unexpected<Error>(error)), "{\"error\":\"no way\"}\n");
  EXPECT_EQ(decode_pmi("{\"error\":\"no way\"}\n").error(), error);
  EXPECT_EQ(decode_pmi("{\"error\":\"no\\u001bway\"}\n").error().message, "no?way");
  const PmiAnswer longest{std::string(1000, 'x'), std::string(255, 'k'), 0, 1};
  EXPECT_EQ(decode_pmi(encode_pmi(longest)), longest);
}

TEST(PmiLine, RefusesAnyOtherText) {
  for (const char* text : {"", "\n", "crashed", "[]", "{}", "{\"error\":\"\"}", "{\"error\":1}",
                           "{\"host\":\"\",\"job\":\"j\",\"rank\":0,\"size\":1}",
                           "{\"host\":\"h\",\"job\":\"\",\"rank\":0,\"size\":1}",
                           "{\"host\":\"h\",\"job\":\"j\",\"rank\":1,\"size\":1}",
                           "{\"host\":\"h\",\"job\":\"j\",\"rank\":-1,\"size\":1}",
                           "{\"host\":\"h\",\"job\":\"j\",\"rank\":0,\"size\":0}",
                           "{\"host\":\"h\",\"job\":\"j\",\"rank\":0}",
                           "{\"host\":\"h\",\"job\":\"j\",\"rank\":0,\"size\":1}\nthen noise\n"}) {
    const auto answer = decode_pmi(text);
    ASSERT_FALSE(answer) << text;
    EXPECT_THAT(answer.error().message, HasSubstr("has ended without an answer")) << text;
  }
}

}  // namespace
}  // namespace muster
