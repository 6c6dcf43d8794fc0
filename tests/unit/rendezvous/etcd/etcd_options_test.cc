#include "rendezvous/etcd/etcd_options.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Conf = std::vector<std::pair<std::string, std::string>>;
using Variables = std::map<std::string, std::string, std::less<>>;

Result<EtcdOptions> read(std::string_view endpoint, const Conf& conf = {},
                         const Variables& variables = {}) {
  return read_etcd_options(endpoint, conf,
                           [&](std::string_view name) -> std::optional<std::string> {
                             const auto found = variables.find(name);
                             if (found == variables.end()) return std::nullopt;
                             return found->second;
                           });
}

std::string complaint(std::string_view endpoint, const Conf& conf = {},
                      const Variables& variables = {}) {
  const auto options = read(endpoint, conf, variables);
  if (options) return "";
  EXPECT_EQ(options.error().code, ExitCode::usage);
  return options.error().message;
}

std::string members(std::string_view endpoint, const Variables& variables = {}) {
  const auto options = read(endpoint, {}, variables);
  if (!options) return options.error().message;
  std::string text = options->tls ? "tls" : "plain";
  for (const EtcdMember& member : options->members)
    text += " " + member.to_string();
  return text;
}

TEST(EtcdOptions, MembersWithoutAPortGetTheDefaultPort) {
  EXPECT_EQ(members("node1"), "plain node1:2379");
  EXPECT_EQ(members("node1:99, 10.0.0.1,[fd00::1]:7,[::1]"),
            "plain node1:99 10.0.0.1:2379 [fd00::1]:7 [::1]:2379");
  EXPECT_EQ(members("https://node1:99/,https://node2"), "tls node1:99 node2:2379");
  EXPECT_EQ(members("http://node1"), "plain node1:2379");
}

TEST(EtcdOptions, EtcdctlsVariableReplacesAMissingEndpoint) {
  EXPECT_EQ(members("", {{"ETCDCTL_ENDPOINTS", "https://a:1,b:2"}}), "tls a:1 b:2");
  EXPECT_EQ(members("c", {{"ETCDCTL_ENDPOINTS", "a,b"}}), "plain c:2379");
  EXPECT_EQ(complaint(""),
            "the etcd backend needs the addresses of etcd; give --rdzv-endpoint "
            "HOST[:PORT],HOST[:PORT] or set ETCDCTL_ENDPOINTS");
}

TEST(EtcdOptions, BadAddressesAreNamedWithTheirSource) {
  for (const char* bad : {"a:x", "a:0", "a:65536", "a:", ":1", "::1", "[a]:1", "a b", "a/b", "[::1",
                          "ftp://a", "http://"}) {
    EXPECT_EQ(complaint(bad), std::string("--rdzv-endpoint '") + bad +
                                  "' is not an address of etcd; give HOST[:PORT],HOST[:PORT]");
  }
  EXPECT_EQ(complaint("a,,b"),
            "--rdzv-endpoint '' is not an address of etcd; give HOST[:PORT],HOST[:PORT]");
  EXPECT_EQ(complaint("", {}, {{"ETCDCTL_ENDPOINTS", "a:x"}}),
            "ETCDCTL_ENDPOINTS 'a:x' is not an address of etcd; give HOST[:PORT],HOST[:PORT]");
  EXPECT_EQ(complaint("http://a,https://b"),
            "--rdzv-endpoint mixes http:// and https://; give one of them");
}

TEST(EtcdOptions, CertificatesHaveTheNamesOfBothTorchrunBackends) {
  const EtcdTlsFiles files{"/ca", "/cert", "/key"};
  const Conf etcd{{"protocol", "https"}, {"cacert", "/ca"}, {"cert", "/cert"}, {"key", "/key"}};
  const Conf v2{
      {"protocol", "https"}, {"ca_cert", "/ca"}, {"ssl_cert", "/cert"}, {"ssl_cert_key", "/key"}};
  for (const Conf& conf : {etcd, v2}) {
    const auto options = read("a", conf);
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_TRUE(options->tls);
    EXPECT_EQ(options->files, files);
  }
}

TEST(EtcdOptions, CertificatesMeanTls) {
  EXPECT_TRUE(read("a", {{"cacert", "/ca"}})->tls);
  EXPECT_TRUE(read("a", {}, {{"ETCDCTL_CACERT", "/ca"}})->tls);
  EXPECT_EQ(read("a", {}, {{"ETCDCTL_CACERT", "/ca"}})->files.authorities, "/ca");
  EXPECT_EQ(read("a", {{"cacert", "/mine"}}, {{"ETCDCTL_CACERT", "/ca"}})->files.authorities,
            "/mine");
  // The variables belong to a shell rather than to this job, so http:// in the endpoint wins.
  const auto plain = read("http://a", {}, {{"ETCDCTL_CACERT", "/ca"}});
  EXPECT_FALSE(plain->tls);
  EXPECT_EQ(plain->files, EtcdTlsFiles{});
}

TEST(EtcdOptions, ContradictionsAreRefused) {
  EXPECT_EQ(complaint("http://a", {{"cacert", "/ca"}}),
            "--rdzv-conf cacert is for https, but http was asked for; leave out one");
  EXPECT_EQ(complaint("a", {{"protocol", "http"}, {"cert", "/c"}, {"key", "/k"}}),
            "--rdzv-conf cert is for https, but http was asked for; leave out one");
  EXPECT_EQ(complaint("https://a", {{"protocol", "http"}}),
            "--rdzv-conf protocol=http contradicts the https:// of the endpoint");
  EXPECT_EQ(complaint("a", {{"protocol", "h2"}}),
            "--rdzv-conf protocol='h2' is unknown; give http or https");
  EXPECT_EQ(complaint("a", {{"cert", "/c"}}),
            "--rdzv-conf has cert without the key of that certificate (key); give both");
  EXPECT_EQ(complaint("a", {{"ssl_cert_key", "/k"}}),
            "--rdzv-conf has ssl_cert_key without the certificate of that key (cert); give both");
  EXPECT_EQ(complaint("a", {}, {{"ETCDCTL_CERT", "/c"}}),
            "only one of ETCDCTL_CERT and ETCDCTL_KEY is set; set both or none");
}

TEST(EtcdOptions, UserAndPasswordComeFromEtcdctlsVariables) {
  const auto both = read("a", {}, {{"ETCDCTL_USER", "me:se:cret"}, {"ETCDCTL_PASSWORD", "other"}});
  EXPECT_EQ(both->user + "/" + both->password, "me/se:cret");
  const auto apart = read("a", {}, {{"ETCDCTL_USER", "me"}, {"ETCDCTL_PASSWORD", "secret"}});
  EXPECT_EQ(apart->user + "/" + apart->password, "me/secret");
  const auto file = read("a", {{"user", "me"}, {"password_file", "/p"}});
  EXPECT_EQ(file->user + "/" + file->password_file, "me//p");
  const auto nobody = read("a", {}, {{"ETCDCTL_PASSWORD", "secret"}});
  EXPECT_EQ(nobody->user + "/" + nobody->password, "/");
}

TEST(EtcdOptions, APasswordOnTheCommandLineIsRefused) {
  EXPECT_EQ(complaint("a", {{"user", "me"}, {"password", "secret"}}),
            "--rdzv-conf has a password, which every user of this machine can read; give "
            "password_file=/PATH or set ETCDCTL_PASSWORD");
  EXPECT_EQ(complaint("a", {{"user", "me"}}),
            "etcd's user 'me' has no password; set ETCDCTL_PASSWORD or give --rdzv-conf "
            "password_file=/PATH");
  EXPECT_EQ(complaint("a", {{"password_file", "/p"}}),
            "--rdzv-conf has a password_file but no user; give user=NAME or set ETCDCTL_USER");
  EXPECT_EQ(complaint("a", {{"user", "you"}}, {{"ETCDCTL_USER", "me:secret"}}),
            "etcd's user 'you' has no password; set ETCDCTL_PASSWORD or give --rdzv-conf "
            "password_file=/PATH");
}

TEST(EtcdOptions, ThePrefixEndsWithASlash) {
  EXPECT_EQ(read("a")->prefix, "/muster/");
  EXPECT_EQ(read("a", {{"etcd_prefix", "/jobs"}})->prefix, "/jobs/");
  EXPECT_EQ(read("a", {{"etcd_prefix", "jobs/"}})->prefix, "jobs/");
}

}  // namespace
}  // namespace muster
