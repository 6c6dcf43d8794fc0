#include "agent/job/meeting_facts.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "agent/meeting/pmi_child.h"
#include "agent/meeting/reachable.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/net/interfaces.h"

namespace muster {

void MeetingFacts::find(const NodeFacts& node, Done done) {
  NodeFacts found = node;
  found.token = spec_.token.value_or("");
  if (!spec_.token_file || !is_coordinated(spec_)) return ask_launch(found, done);
  job_.on_disk([this, path = *spec_.token_file, found, done = std::move(done)] {
    boost::asio::post(io_, [this, found, done, token = membership::read_token_file(path)] {
      if (job_.is_ending()) return;
      if (!token) return done(tl::unexpected<Error>(token.error()));
      NodeFacts with_token = found;
      with_token.token = *token;
      ask_launch(with_token, done);
    });
  });
}

void MeetingFacts::ask_launch(const NodeFacts& node, const Done& done) {
  if (!spec_.ask_pmi) return done(node);
  const std::string reached = spec_.local_addr.value_or(reachable_text(read_interfaces()));
  ask_pmi(helper_, environment_, reached, kPmiPatience,
          [this, node, done](const Result<PmiAnswer>& answer) {
            if (job_.is_ending()) return;
            if (!answer) return done(tl::unexpected<Error>(answer.error()));
            if (answer->rank != spec_.node_rank) {
              return done(fail(
                  ExitCode::rendezvous,
                  fmt::format("PMI says that this is rank {}, the variables say {}: is this a "
                              "launch within another one? Give --engine none and the flags about "
                              "nodes",
                              answer->rank, spec_.node_rank.value_or(0))));
            }
            NodeFacts found = node;
            found.pmi_host = answer->host;
            found.pmi_job = answer->job;
            if (spec_.id.empty()) found.run_id = answer->job;
            done(found);
          });
}

}  // namespace muster
