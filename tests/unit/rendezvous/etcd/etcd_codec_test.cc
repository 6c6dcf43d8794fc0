#include "rendezvous/etcd/etcd_codec.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// ---- requests

TEST(EtcdCodec, ARangeEndsAfterItsLastKey) {
  EXPECT_EQ(etcd_range_request({"/m/a/host", "/m/a/job"}),
            R"({"key":"L20vYS9ob3N0","range_end":"L20vYS9qb2IA"})");
}

TEST(EtcdCodec, ATransactionComparesChangesAndReads) {
  const EtcdTxn txn{.revisions = {{"h", 7}, {"j", 0}},
                    .values = {{"h", "old"}},
                    .puts = {{"h", "new", 9}},
                    .deletes = {"j"},
                    .read_else = {"h", "j"}};
  EXPECT_EQ(etcd_txn_request(txn),
            R"({"compare":[)"
            R"({"key":"aA==","mod_revision":"7","result":"EQUAL","target":"MOD"},)"
            R"({"key":"ag==","mod_revision":"0","result":"EQUAL","target":"MOD"},)"
            R"({"key":"aA==","result":"EQUAL","target":"VALUE","value":"b2xk"}],)"
            R"("failure":[{"request_range":{"key":"aA==","range_end":"agA="}}],)"
            R"("success":[{"request_put":{"key":"aA==","lease":"9","value":"bmV3"}},)"
            R"({"request_delete_range":{"key":"ag=="}}]})");
}

TEST(EtcdCodec, LeaseWatchAndUserRequestsAreEncoded) {
  EXPECT_EQ(etcd_lease_grant_request(10), R"({"TTL":"10"})");
  EXPECT_EQ(etcd_lease_request(-1), R"({"ID":"-1"})");
  EXPECT_EQ(etcd_watch_request({"a", "b"}, 5),
            R"({"create_request":{"key":"YQ==","range_end":"YgA=","start_revision":"5"}})");
  EXPECT_EQ(etcd_authenticate_request("u", "p\"\n"), R"({"name":"u","password":"p\"\n"})");
  EXPECT_EQ(etcd_authenticate_request("u", "\xff"),
            "{\"name\":\"u\",\"password\":\"\xef\xbf\xbd\"}");
}

// ---- answers of etcd 3.4.23

#define HEADER                                                                         \
  R"("header":{"cluster_id":"3329623296236853885","member_id":"4543208931055087836",)" \
  R"("revision":"2","raft_term":"2"})"

TEST(EtcdCodec, AKeyIsReadWithItsRevisionAndLease) {
  EXPECT_EQ(decode_etcd_range("{" HEADER R"(,"kvs":[{"key":"YQ==","create_revision":"2",)"
                              R"("mod_revision":"2","version":"1","value":"Yg=="}],"count":"1"})"),
            (EtcdValues{false, 2, {{"a", "b", 2, 0}}}));
  EXPECT_EQ(decode_etcd_range("{" HEADER R"(,"kvs":[{"key":"YQ==","mod_revision":"2","lease":)"
                              R"("3520867255700083719"}]})"),
            (EtcdValues{false, 2, {{"a", "", 2, 3520867255700083719}}}));
}

TEST(EtcdCodec, AnAnswerWithoutKeysIsEmpty) {
  EXPECT_EQ(decode_etcd_range("{" HEADER "}"), (EtcdValues{false, 2, {}}));
}

TEST(EtcdCodec, AMissingSucceededMeansThatATransactionFailed) {
  EXPECT_EQ(decode_etcd_txn("{" HEADER R"(,"succeeded":true,"responses":[{"response_put":)"
                            R"({"header":{"revision":"2"}}}]})"),
            (EtcdValues{true, 2, {}}));
  EXPECT_EQ(decode_etcd_txn("{" HEADER R"(,"responses":[{"response_range":{"header":)"
                            R"({"revision":"2"},"kvs":[{"key":"YQ==","create_revision":"2",)"
                            R"("mod_revision":"2","version":"1","value":"Yg=="}],"count":"1"}}]})"),
            (EtcdValues{false, 2, {{"a", "b", 2, 0}}}));
}

TEST(EtcdCodec, ALeaseIsGrantedRenewedOrExpired) {
  EXPECT_EQ(decode_etcd_lease("{" HEADER R"(,"ID":"3520867255700083719","TTL":"5"})"),
            (EtcdLease{3520867255700083719, 5}));
  EXPECT_EQ(decode_etcd_lease(R"({"result":{)" HEADER R"(,"ID":"35","TTL":"7"}})"
                              "\n"),
            (EtcdLease{35, 7}));
  EXPECT_EQ(decode_etcd_lease(R"({"result":{)" HEADER R"(,"ID":"5"}})"), (EtcdLease{5, 0}));
}

TEST(EtcdCodec, AWatchIsCreatedHasEventsOrIsCancelled) {
  EXPECT_EQ(decode_etcd_watch(R"({"result":{)" HEADER R"(,"created":true}})"), EtcdWatchNews{});
  EXPECT_EQ(decode_etcd_watch(R"({"result":{)" HEADER
                              R"(,"events":[{"type":"DELETE","kv":{"key":"dy8y"}}]}})"),
            (EtcdWatchNews{true, false, false}));
  EXPECT_EQ(decode_etcd_watch(R"({"result":{)" HEADER R"(,"canceled":true,)"
                              R"("compact_revision":"2"}})"),
            (EtcdWatchNews{false, true, true}));
  EXPECT_EQ(decode_etcd_watch(R"({"result":{)" HEADER R"(,"created":true,"canceled":true,)"
                              R"("cancel_reason":"etcdserver: permission denied"}})"),
            (EtcdWatchNews{false, true, false}));
}

TEST(EtcdCodec, FailuresOfEachVersionAreRead) {
  const EtcdFailure no_leader{14, "etcdserver: no leader"};
  // A call and a stream of 3.4, then of 3.6 (grpc-gateway v2).
  EXPECT_EQ(decode_etcd_failure(R"({"error":"etcdserver: no leader","message":)"
                                R"("etcdserver: no leader","code":14})"),
            no_leader);
  EXPECT_EQ(decode_etcd_failure(R"({"error":{"grpc_code":14,"http_code":503,"message":)"
                                R"("etcdserver: no leader","http_status":"Service Unavailable"}})"),
            no_leader);
  EXPECT_EQ(decode_etcd_failure(R"({"code":14,"message":"etcdserver: no leader","details":[]})"),
            no_leader);
  EXPECT_EQ(decode_etcd_failure(R"({"error":{"code":14,"message":"etcdserver: no leader",)"
                                R"("details":[]}})"),
            no_leader);
}

TEST(EtcdCodec, OtherAnswersAreNoFailures) {
  EXPECT_EQ(decode_etcd_failure("{" HEADER "}"), std::nullopt);
  EXPECT_EQ(decode_etcd_failure(R"({"result":{"ID":"5"}})"), std::nullopt);
  EXPECT_EQ(decode_etcd_failure("404 page not found\n"), std::nullopt);
}

TEST(EtcdCodec, ATokenMustBePrintable) {
  EXPECT_EQ(decode_etcd_token("{" HEADER R"(,"token":"qdnWKvgtpFvYlatR.26"})"),
            "qdnWKvgtpFvYlatR.26");
  EXPECT_EQ(decode_etcd_token(R"({"token":"a\r\nHost: b"})"), std::nullopt);
  EXPECT_EQ(decode_etcd_token("{" HEADER "}"), std::nullopt);
}

TEST(EtcdCodec, NumbersMayBeUnquoted) {
  EXPECT_EQ(decode_etcd_range(R"({"header":{"revision":12}})"), (EtcdValues{false, 12, {}}));
  EXPECT_EQ(decode_etcd_lease(R"({"ID":3520867255700083719,"TTL":5})"),
            (EtcdLease{3520867255700083719, 5}));
}

// ---- malformed answers

TEST(EtcdCodec, MalformedAnswersAreRefused) {
  for (const char* text :
       {"", "x", "[]", "1", "{", "{}", "<html>", R"({"header":[]})",
        R"({"header":{"revision":"x"}})", R"({"header":{"revision":1.5}})",
        R"({"header":{"revision":18446744073709551615}})",
        R"({"header":{"revision":"1"},"kvs":[1]})",
        R"({"header":{"revision":"1"},"kvs":[{"key":"!"}]})",
        R"({"header":{"revision":"1"},"kvs":[{"key":"YQ==","mod_revision":{}}]})"}) {
    EXPECT_EQ(decode_etcd_range(text), std::nullopt) << text;
    EXPECT_EQ(decode_etcd_lease(text), std::nullopt) << text;
    EXPECT_EQ(decode_etcd_watch(text), std::nullopt) << text;
    EXPECT_EQ(decode_etcd_token(text), std::nullopt) << text;
    EXPECT_EQ(decode_etcd_failure(text), std::nullopt) << text;
  }
  EXPECT_EQ(decode_etcd_lease(R"({"ID":"1","TTL":"-1"})"), std::nullopt);
  EXPECT_EQ(decode_etcd_txn(R"({"header":{"revision":"1"},"responses":[{"response_range":)"
                            R"({"kvs":[{"key":"!"}]}}]})"),
            std::nullopt);
}

}  // namespace
}  // namespace muster
